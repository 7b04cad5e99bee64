"""Samples and oracles by which the registry-driven tests exercise an op."""

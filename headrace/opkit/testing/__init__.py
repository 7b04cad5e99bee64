"""Samples and oracles with which the tests over the registry run an op."""

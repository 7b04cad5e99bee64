"""Optimization passes, which rewrite the structured graph of a step (`base`, `pipeline`)."""

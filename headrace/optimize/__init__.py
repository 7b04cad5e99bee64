"""Optimization: the same results by less work, on the structured graph, before anything runs (`base`, `pipeline`)."""

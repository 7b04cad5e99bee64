"""Analyses of graphs: frames, trip counts, value ranges, sizes. No function changes a graph."""

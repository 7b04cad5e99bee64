"""Questions about graphs: frames of loops, trip counts, value ranges, sizes. Nothing here changes a graph."""

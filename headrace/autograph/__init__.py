"""Source conversion: plain Python functions as functions that build graphs."""

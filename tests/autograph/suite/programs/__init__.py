"""Longer programs of the suite, one module for each: `program` and the arguments `CALLS`."""

"""Analyses of the syntax tree of a function, without effects on it."""

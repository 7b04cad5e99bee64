"""Targets: printers of programs.

`python` prints Python functions and takes every program; `native` prints machine code for the parts that it knows.
"""

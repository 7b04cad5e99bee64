"""Applications: programs that learn something, each with the figures that show it.

`make applications` runs all of them and writes docs/applications.md.
"""

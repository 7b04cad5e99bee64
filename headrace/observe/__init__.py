"""Looking into a running step: first bad values and breakpoints.

The token machine passes its records to an inspector (`execute.inspector`). The modules here are inspectors and their
tools, imported by the session only for runs that ask for them.
"""

"""The tests.

They are a regular package, so that no other `tests` on the path precedes it.
"""

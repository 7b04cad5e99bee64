"""The tests. A regular package, so that no other `tests` on the path stands before it."""

"""First values of variables."""

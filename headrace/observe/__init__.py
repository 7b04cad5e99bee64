"""Looking into a running step."""

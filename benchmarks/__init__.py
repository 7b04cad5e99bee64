"""Speed, measured. `python -m benchmarks` runs everything and prints medians; docs quote its output."""

"""Observation of running steps: recordings of all tokens of a step."""

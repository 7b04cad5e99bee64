"""Device types whose arrays belong to other libraries than numpy."""

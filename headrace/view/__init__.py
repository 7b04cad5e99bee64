"""The page that shows a recording of a step."""

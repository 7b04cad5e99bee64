"""Text: joining, splitting, hashing, patterns, encodings, and parsing of records."""

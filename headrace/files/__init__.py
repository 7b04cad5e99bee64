"""What is kept in files, byte for byte: checkpoints, records, events. Nothing here knows what a graph is."""

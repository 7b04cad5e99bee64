"""File formats, byte for byte: checkpoints, records and events; independent of graphs."""

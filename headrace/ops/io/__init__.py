"""Files: checkpoints, readers, images in their formats, and summaries."""

"""Images: resizing, cropping, colours, boxes, patches, morphology."""

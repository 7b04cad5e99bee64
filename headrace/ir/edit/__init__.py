"""Changes of private graphs: copies, rewiring, values added to and removed from structured operations."""

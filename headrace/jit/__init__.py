"""Functions that are traced once for each signature and called many times (`hr.jit`)."""

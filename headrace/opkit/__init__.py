"""Building blocks of op records: shape rules, tangent rules, windows, samples."""

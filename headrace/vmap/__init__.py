"""Vectorization: functions of single examples as functions of batches (`hr.vmap`)."""

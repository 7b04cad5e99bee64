"""Recurrent networks: cells, and loops over time."""

# cells are layers, and `hr.layers` has the cells: whichever is imported first, layers come before cells
import headrace.api.layers  # noqa: F401

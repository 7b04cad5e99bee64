"""Metadata of runs and sessions.

`run` has `RunMetadata` and the options that request it, `counters` fills it, `step_stats` has TensorFlow's records of
the same run, and `session` the state of a session.
"""

from headrace.metadata.run import RunMetadata, RunOptions
from headrace.metadata.session import MemoryStatistics, SessionStatistics

__all__ = ["MemoryStatistics", "RunMetadata", "RunOptions", "SessionStatistics"]

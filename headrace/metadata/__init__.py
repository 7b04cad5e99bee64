"""Metadata of runs and sessions.

`run` has `RunMetadata` and the options that request it, `counters` fills it, `step_stats` has TensorFlow's records of
the same run, and `session` the state of a session. `scoped_options` applies options to the runs in a `with` block, and
`cancellation` ends runs from another thread.
"""

from headrace.metadata.cancellation import Cancellation
from headrace.metadata.run import NumericsCheck, RunMetadata, RunOptions
from headrace.metadata.session import MemoryStatistics, SessionStatistics

__all__ = ["Cancellation", "MemoryStatistics", "NumericsCheck", "RunMetadata", "RunOptions", "SessionStatistics"]

"""What is told of a run when it is over: `RunMetadata` and how to ask for it (`run`), who counts (`counters`),
TensorFlow's records of the same (`step_stats`), and the state of a session (`session`)."""

from headrace.metadata.run import RunMetadata, RunOptions
from headrace.metadata.session import MemoryStatistics, SessionStatistics

__all__ = ["MemoryStatistics", "RunMetadata", "RunOptions", "SessionStatistics"]

"""What is told of a run when it is over: `RunMetadata` and how to ask for it (`run`), who counts (`counters`), and
TensorFlow's records of the same (`step_stats`)."""

from headrace.metadata.run import RunMetadata, RunOptions

__all__ = ["RunMetadata", "RunOptions"]

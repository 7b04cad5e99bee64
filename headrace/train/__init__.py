"""Training: so far what keeps threads together that feed queues."""

from headrace.train.coordinator import Coordinator
from headrace.train.queue_runner import QueueRunner

__all__ = ["Coordinator", "QueueRunner"]

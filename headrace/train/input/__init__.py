"""Input through queues, which read data while the previous step computes.

`producers` enqueue names, numbers or rows; `batching` combines single examples into batches, shuffled if requested;
`bucketing` forms batches of similar examples; `feeding` reads data from Python. Each creates a queue and a queue
runner, whose threads fill the queue; `running` stores and starts the runners.
"""

from headrace.train.input.batching import (
    batch,
    batch_join,
    maybe_batch,
    maybe_batch_join,
    maybe_shuffle_batch,
    maybe_shuffle_batch_join,
    prefetch,
    shuffle_batch,
    shuffle_batch_join,
)
from headrace.train.input.bucketing import bucket, bucket_by_sequence_length
from headrace.train.input.feeding import feed, feed_queue
from headrace.train.input.producers import (
    input_producer,
    limit_epochs,
    match_filenames_once,
    range_input_producer,
    slice_input_producer,
    string_input_producer,
)
from headrace.train.input.running import add_queue_runner, start_queue_runners

__all__ = [
    "add_queue_runner",
    "batch",
    "batch_join",
    "bucket",
    "bucket_by_sequence_length",
    "feed",
    "feed_queue",
    "input_producer",
    "limit_epochs",
    "match_filenames_once",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "prefetch",
    "range_input_producer",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "start_queue_runners",
    "string_input_producer",
]

"""Input through queues: what brings data to the training step while the step before computes.

`producers` gives names, numbers or rows one after the other; `batching` makes batches of what comes one by one,
shuffled if asked for; `bucketing` makes batches of what is alike; `feeding` lets Python be where data comes from. Each
makes a queue and a queue runner, whose threads fill it; `running` tells where the runners are kept, and starts them.
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

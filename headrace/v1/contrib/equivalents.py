"""Names of `tf.contrib` that headrace does not have, and the names to use instead.

`of` is `headrace.public_names.of` for the modules of this package: the error for a missing name has the equivalent of
`INSTEAD`, and otherwise names near to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headrace import public_names

_HOME: Final = "headrace.v1.contrib"

#: Name below `tf.contrib` -> its equivalent; a sentence that follows "use" in the text of the error.
INSTEAD: Final = {
    "autograph": "tf.autograph",
    "batching": "tf.train.batch, or tf.py_func for batches of separate callers",
    "bayesflow": "tf.random and scipy.stats in tf.py_func",
    "checkpoint": "tf.train.Saver",
    "cloud": "tf.gfile, on paths of mounted file systems",
    "cluster_resolver": "tf.train.ClusterSpec with the addresses of the tasks",
    "compiler": "tf.Session: every step is compiled (`headrace docs reference/compiling`)",
    "compiler.xla": "tf.Session: every step is compiled (`headrace docs reference/compiling`)",
    "constrained_optimization": "tf.clip_by_value after a step, or the `constraint` of tf.get_variable",
    "cudnn_rnn.CudnnRNN": "tf.contrib.cudnn_rnn.CudnnLSTM or CudnnGRU",
    "data": "tf.data (`headrace docs how-to/datasets`)",
    "distribute": "tf.device and tf.train.replica_device_setter (`headrace docs distributed`)",
    "estimator": "tf.estimator",
    "factorization": "tf.nn.nce_loss, or a loss of tf.matmul and tf.losses",
    "ffmpeg": "tf.py_func with a decoder of Python",
    "framework.deprecated": "Python's warnings.warn",
    "framework.VariableDeviceChooser": "tf.train.replica_device_setter",
    "fused_conv": "tf.nn.conv2d, which the compiler fuses with the operations that follow",
    "gan": "tf.losses and two optimizers, each with its own var_list",
    "graph_editor": "headrace.import_graph_def with input_map",
    "hadoop": "tf.python_io",
    "integrate": "tf.while_loop, or scipy.integrate in tf.py_func",
    "kafka": "tf.py_func with a client of Python",
    "keras": "tf.layers",
    "layers.fully_connected_v2": "tf.contrib.layers.fully_connected",
    "layers.adaptive_clipping_fn": "tf.clip_by_global_norm",
    "layers.bucketized_column": "tf.searchsorted and tf.one_hot",
    "layers.create_feature_spec_for_parsing": "a dict of tf.FixedLenFeature and tf.VarLenFeature",
    "layers.embedding_column": "tf.nn.embedding_lookup_sparse",
    "layers.input_from_feature_columns": "tf.concat of the features",
    "layers.real_valued_column": "tf.FixedLenFeature",
    "layers.sparse_column_with_hash_bucket": "tf.string_to_hash_bucket_fast",
    "learn.DNNClassifier": "tf.estimator.DNNClassifier",
    "learn.DNNRegressor": "tf.estimator.DNNRegressor",
    "learn.Estimator": "tf.estimator.Estimator",
    "learn.datasets": "arrays that numpy loads from files",
    "learn.Experiment": "tf.estimator.train_and_evaluate",
    "learn.LinearClassifier": "tf.estimator.LinearClassifier",
    "learn.LinearRegressor": "tf.estimator.LinearRegressor",
    "learn.learn_runner": "tf.estimator.train_and_evaluate",
    "learn.preprocessing": "tf.contrib.lookup.index_table_from_tensor with tf.string_split",
    "libsvm": "tf.decode_csv, or tf.py_func with a parser",
    "linalg": "tf.linalg",
    "linear_optimizer": "tf.train.FtrlOptimizer",
    "lite": "tf.train.export_meta_graph, and tf.train.import_meta_graph in the process that serves",
    "memory_stats": "Session.statistics() (`headrace docs how-to/memory`)",
    "meta_graph_transform": "tf.Session: every step is optimized (`headrace docs reference/optimizing`)",
    "metrics.streaming_concat": "a tf.TensorArray, or the values of several runs",
    "mpi": "tf.train.Server (`headrace docs distributed`)",
    "mpi_collectives": "collectives over the devices of a graph (`headrace docs how-to/collectives`)",
    "nn": "tf.nn",
    "nccl": "collectives over the devices of a graph (`headrace docs how-to/collectives`)",
    "periodic_resample": "tf.gather",
    "predictor": "tf.Session with tf.train.import_meta_graph",
    "proto": "tf.parse_example",
    "quantization": "tf.quantization",
    "quantize": "tf.quantization.fake_quant_with_min_max_vars",
    "receptive_field": "the strides and sizes of the layers",
    "recurrent": "tf.nn.dynamic_rnn",
    "reduce_slice_ops": "tf.segment_sum and tf.segment_max",
    "resampler": "tf.gather_nd with weights of the four neighbours",
    "rnn.BidirectionalGridLSTMCell": "tf.contrib.rnn.LSTMCell with tf.nn.bidirectional_dynamic_rnn",
    "rnn.CompiledWrapper": "the cell itself: every step is compiled",
    "rnn.GLSTMCell": "tf.contrib.rnn.LSTMCell",
    "rnn.GridLSTMCell": "tf.contrib.rnn.LSTMCell",
    "rnn.HighwayWrapper": "tf.contrib.rnn.ResidualWrapper with a `residual_fn`",
    "rnn.LayerNormLSTMCell": "tf.contrib.rnn.LayerNormBasicLSTMCell",
    "rnn.PhasedLSTMCell": "tf.contrib.rnn.LSTMCell",
    "rnn.TimeFreqLSTMCell": "tf.contrib.rnn.LSTMCell",
    "rpc": "tf.py_func with a client of Python",
    "saved_model": "tf.saved_model",
    "signal": "tf.signal",
    "solvers": "tf.linalg.solve, or scipy.sparse.linalg in tf.py_func",
    "sparsemax": "tf.contrib.seq2seq with a `probability_fn`",
    "specs": "tf.contrib.layers",
    "staging": "headrace.StagingArea",
    "stat_summarizer": "tf.RunMetadata (`headrace docs how-to/inspecting`)",
    "stateless": "tf.random.stateless_uniform and the others of tf.random",
    "summary": "tf.summary",
    "tensor_forest": "a library for decision trees",
    "tensorboard": "tf.summary.FileWriter",
    "tensorrt": "tf.Session: every step is compiled (`headrace docs reference/compiling`)",
    "testing": "tf.test",
    "text": "tf.strings",
    "tfprof": "tf.RunMetadata (`headrace docs how-to/profiling`)",
    "timeseries": "tf.nn.dynamic_rnn",
    "tpu": "tf.device",
    "training.batch_sequences_with_states": "tf.train.batch with dynamic_pad=True",
    "training.evaluate_once": "tf.train.SingularMonitoredSession",
    "training.rejection_sample": "tf.train.maybe_batch",
    "training.stratified_sample": "tf.train.maybe_batch",
    "training.train": "tf.contrib.slim.learning.train",
    "util": "tf.get_static_value",
    "verbs": "tf.train.Server (`headrace docs distributed`)",
}


class MissingContribName(public_names.MissingName):
    """A module of `tf.contrib` has no such name; the text has its equivalent.

    Args:
      module: the `__name__` of the module.
      name: the name.
    """

    def __str__(self) -> str:
        module, name = self.args
        instead = INSTEAD.get(f"{module.removeprefix(_HOME)}.{name}".lstrip("."))
        if instead is None:
            import difflib  # a slow import, needed only here

            near = difflib.get_close_matches(name, getattr(sys.modules.get(module), "__all__", ()))
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "`headrace docs reference/contrib` lists the names it has"
            )
            return f"module {module!r} has no attribute {name!r}; {hint}"
        page = "`headrace docs reference/contrib` lists the names"
        return f"module {module!r} has no attribute {name!r}; use {instead} ({page})"


def of(
    module: str, names: Iterable[str], later: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a module of `tf.contrib`. See `headrace.public_names.of`."""
    found, dir_ = public_names.of(module, names, later)

    def getattr_(name: str) -> Any:
        try:
            return found(name)
        except public_names.MissingName:
            raise MissingContribName(module, name) from None

    return getattr_, dir_

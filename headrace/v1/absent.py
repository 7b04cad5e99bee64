"""Names of TensorFlow 1 that `headrace.v1` lacks, with the reasons.

The pages `reference/v1` and the errors for missing names show these texts. Only the text of an error imports the
module.
"""

from __future__ import annotations

import fnmatch
import functools
from typing import Final

from headrace.documentation import cite

_KERAS = "Keras is a package of its own; `tf.layers`, `tf.nn.rnn_cell` and `hr.layers` have its usual layers"
_EXTENSION = "classes as tensors belong to TensorFlow 2; `hr.tree` registers classes as structures of tensors"
_DATASET_OPS = "an op inside TensorFlow's data sets; those of headrace are made of other operations"
_BOOSTED = "TensorFlow's boosted trees; their estimators were removed in TensorFlow 2"
_INT8 = (
    "a kernel of TensorFlow's quantized networks for one kind of processor; `tf.quantization` simulates their rounding"
)
_OBJECTS = "for objects of TensorFlow 2; `tf.saved_model.Builder` and `tf.saved_model.load` save and load graphs"

# Pattern of dotted names below `tf` -> the reason. The first that fits decides.
REASONS: Final[dict[str, str]] = {
    # packages
    "keras*": _KERAS,
    "lite*": "a converter for phones; `tf.train.write_graph` writes graphs for converters",
    "tpu*": "no TPU device exists; the same graph runs on CPU devices without these names",
    "distribute*": "strategies belong to TensorFlow 2; `tf.train.replica_device_setter`, "
    "`tf.train.SyncReplicasOptimizer` and `hr.cluster` distribute a program",
    "mlir*": "a converter to another compiler's formats; `hr.explain` shows the stages of headrace's own",
    "debugging.experimental.*": "the debugger of TensorFlow 2; `hr.record` and `hr.watch` look into a running step",
    "data.experimental.service.*": "the data service of TensorFlow's clusters; each worker reads its own input",
    "data.experimental.distributed_save": "a job of TensorFlow's data service; `Dataset.save` writes a dataset",
    "data.experimental.get_model_proto": "the model of TensorFlow's tuning of pipelines; `hr.profile` measures steps",
    "quantization.experimental.*": "a converter of saved models for phones",
    "experimental.register_filesystem_plugin": "files are those of the operating system",
    "load_file_system_library": "files are those of the operating system",
    "load_op_library": f"ops are written in Python: {cite('how-to/extending')}",
    "load_library": f"ops are written in Python: {cite('how-to/extending')}",
    # raw operations
    "raw_ops.BoostedTrees*": _BOOSTED,
    "raw_ops.IsBoostedTrees*": _BOOSTED,
    "raw_ops.*TPU*": "an op of TPU devices",
    "raw_ops.Infeed*": "an op of TPU devices",
    "raw_ops.Outfeed*": "an op of TPU devices",
    "raw_ops.*Xla*": "an op of TPU devices",
    "raw_ops.*SparseCore*": "an op of TPU devices",
    "raw_ops.*PhysicalReplica": "an op of TPU devices",
    "raw_ops.Prelinearize*": "an op of TPU devices",
    "raw_ops.WorkerHeartbeat": "an op of TPU devices",
    "raw_ops.GlobalIterId": "an op of TPU devices",
    "raw_ops.StoreMinibatchStatisticsInFdo": "an op of TPU devices",
    "raw_ops.ConvertToCooTensor": "an op of TPU devices",
    "raw_ops.CrossReplicaSum": "an op of TPU devices",
    "raw_ops.AllToAll": "an op of TPU devices; `hr.all_gather` and its neighbours exchange values of a group",
    "raw_ops.CollectivePermute": "an op of TPU devices",
    "raw_ops.Collective*": "TensorFlow's collective ops; those of headrace are `hr.all_reduce` and its neighbours",
    "raw_ops.Nccl*": "an op of GPU devices; `hr.all_reduce` and its neighbours sum over devices",
    "raw_ops.CudnnRNN*": "an op of GPU devices; `tf.nn.dynamic_rnn` computes the same",
    "raw_ops.Quantized*": _INT8,
    "raw_ops.Requant*": _INT8,
    "raw_ops.Uniform*": _INT8,
    "raw_ops.*Dataset*": _DATASET_OPS,
    "raw_ops.*Iterator*": _DATASET_OPS,
    "raw_ops.*MemoryCache": _DATASET_OPS,
    "raw_ops.*SeedGenerator": _DATASET_OPS,
    "raw_ops.*IterationCounter": _DATASET_OPS,
    "raw_ops.*StatsAggregator*": _DATASET_OPS,
    "raw_ops.*ThreadPoolHandle": _DATASET_OPS,
    "raw_ops.*compressElement": _DATASET_OPS,
    "raw_ops.CompressElement": _DATASET_OPS,
    "raw_ops.ComputeBatchSize": _DATASET_OPS,
    "raw_ops.DistributedSave": _DATASET_OPS,
    "raw_ops.GetElementAtIndex": _DATASET_OPS,
    "raw_ops.GetOptions": _DATASET_OPS,
    "raw_ops.ListSnapshotChunksDataset": _DATASET_OPS,
    "raw_ops.MapDefun": _DATASET_OPS,
    "raw_ops.WindowOp": _DATASET_OPS,
    "raw_ops.*SummaryWriter": "an op of TensorFlow 2's summaries; `tf.summary.FileWriter` writes those of a step",
    "raw_ops.Create*Writer": "an op of TensorFlow 2's summaries; `tf.summary.FileWriter` writes those of a step",
    "raw_ops.Write*Summary": "an op of TensorFlow 2's summaries; `tf.summary.FileWriter` writes those of a step",
    "raw_ops.ImportEvent": "an op of TensorFlow 2's summaries; `tf.summary.FileWriter` writes those of a step",
    "raw_ops.Debug*": "an op of TensorFlow's debugger; `hr.record` and `hr.watch` look into a running step",
    "raw_ops.CompositeTensorVariant*": _EXTENSION,
    "raw_ops.Batch*": "an op of TensorFlow's servers",
    "raw_ops.Unbatch*": "an op of TensorFlow's servers",
    "raw_ops.Send": "the partition of a step makes such an op; a program places operations by `tf.device`",
    "raw_ops.Recv": "the partition of a step makes such an op; a program places operations by `tf.device`",
    "raw_ops.SyncDevice": "an op of GPU devices",
    "raw_ops.K*Initialization": "an op of TensorFlow's clustering estimator",
    "raw_ops.NearestNeighbors": "an op of TensorFlow's clustering estimator",
    "raw_ops.*Jxl": "an image format that no library of headrace reads",
    "raw_ops.LMDBReader": "`tf.TFRecordReader` reads records; LMDB databases need a library that headrace has not",
    "raw_ops.GenerateBoundingBoxProposals": "an op of GPU devices",
    "raw_ops.*RemapMatrix": "an op of TensorFlow's estimators; `tf.train.init_from_checkpoint` restores variables",
    "raw_ops.*VocabRemapping": "an op of TensorFlow's estimators; `tf.train.init_from_checkpoint` restores variables",
    "raw_ops.FileSystemSetConfiguration": "files are those of the operating system",
    "raw_ops.ImmutableConst": "a constant in a file of another format; `tf.constant` and checkpoints keep values",
    "raw_ops.RecordInput": "`tf.TFRecordReader` and `tf.train.shuffle_batch` read and mix records",
    "raw_ops.SparseMatrixOrderingAMD": "no sparse factorization exists",
    "raw_ops.SparseMatrixSparseCholesky": "no sparse factorization exists",
    "raw_ops.StatefulStandardNormal": "`raw_ops.StatefulStandardNormalV2`, which replaced it in TensorFlow",
    # images and input
    "*decode_jxl": "an image format that no library of headrace reads",
    "image.generate_bounding_box_proposals": "an op of GPU devices",
    "LMDBReader": "`tf.TFRecordReader` reads records; LMDB databases need a library that headrace has not",
    # training
    "train.do_quantize_training_on_graphdef": "`tf.quantization.fake_quant_with_min_max_vars` trains for quantization",
    "saved_model.save": _OBJECTS,
    "saved_model.load_v2": _OBJECTS,
    "saved_model.experimental.*": _OBJECTS,
    "nondifferentiable_batch_function": "a part of TensorFlow's servers",
    "config.experimental_connect_to_*": "`tf.train.Server` and `tf.Session(target)` connect to a cluster",
    "sysconfig.get_*": f"ops are written in Python: {cite('how-to/extending')}",
    "wrap_function": "`hr.jit` makes a function of a Python function",
}


@functools.cache
def reason(name: str) -> str:
    """Returns the reason for the absence of a name, or "".

    Args:
      name: a dotted name below `tf`.

    >>> reason("keras.layers.Dense")[:30], reason("reduce_summ")
    ('Keras is a package of its own;', '')
    """
    return next((text for pattern, text in REASONS.items() if fnmatch.fnmatchcase(name, pattern)), "")

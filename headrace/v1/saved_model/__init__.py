"""TensorFlow 1's `tf.saved_model`: graphs with the values of variables in folders that other programs load."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.saved_model import (
    builder,
    constants,
    loader,
    main_op,
    options,
    signature_constants,
    signature_def_utils,
    tag_constants,
)  # fmt: skip
from headrace.v1.saved_model import tensor_infos as utils
from headrace.v1.saved_model.asset import Asset
from headrace.v1.saved_model.builder import SavedModelBuilder as Builder
from headrace.v1.saved_model.builder import simple_save
from headrace.v1.saved_model.constants import (
    ASSETS_DIRECTORY,
    ASSETS_KEY,
    DEBUG_DIRECTORY,
    DEBUG_INFO_FILENAME_PB,
    LEGACY_INIT_OP_KEY,
    MAIN_OP_KEY,
    SAVED_MODEL_FILENAME_PB,
    SAVED_MODEL_FILENAME_PBTXT,
    SAVED_MODEL_SCHEMA_VERSION,
    VARIABLES_DIRECTORY,
    VARIABLES_FILENAME,
)
from headrace.v1.saved_model.loader import load, maybe_saved_model_directory
from headrace.v1.saved_model.main_op import main_op_with_restore
from headrace.v1.saved_model.signature_constants import (
    CLASSIFY_INPUTS,
    CLASSIFY_METHOD_NAME,
    CLASSIFY_OUTPUT_CLASSES,
    CLASSIFY_OUTPUT_SCORES,
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    PREDICT_INPUTS,
    PREDICT_METHOD_NAME,
    PREDICT_OUTPUTS,
    REGRESS_INPUTS,
    REGRESS_METHOD_NAME,
    REGRESS_OUTPUTS,
)
from headrace.v1.saved_model.signature_def_utils import (
    build_signature_def,
    classification_signature_def,
    is_valid_signature,
    predict_signature_def,
    regression_signature_def,
)
from headrace.v1.saved_model.tag_constants import GPU, SERVING, TPU, TRAINING
from headrace.v1.saved_model.tensor_infos import build_tensor_info, get_tensor_from_tensor_info

contains_saved_model = maybe_saved_model_directory
SaveOptions = options.SaveOptions


class experimental:
    """`tf.saved_model.experimental`."""

    VariablePolicy = options.VariablePolicy


# fmt: off
__all__ = [
    "ASSETS_DIRECTORY", "ASSETS_KEY", "CLASSIFY_INPUTS", "CLASSIFY_METHOD_NAME", "CLASSIFY_OUTPUT_CLASSES",
    "CLASSIFY_OUTPUT_SCORES", "DEBUG_DIRECTORY", "DEBUG_INFO_FILENAME_PB", "DEFAULT_SERVING_SIGNATURE_DEF_KEY", "GPU",
    "LEGACY_INIT_OP_KEY", "MAIN_OP_KEY", "PREDICT_INPUTS", "PREDICT_METHOD_NAME", "PREDICT_OUTPUTS", "REGRESS_INPUTS",
    "REGRESS_METHOD_NAME", "REGRESS_OUTPUTS", "SAVED_MODEL_FILENAME_PB", "SAVED_MODEL_FILENAME_PBTXT",
    "SAVED_MODEL_SCHEMA_VERSION", "SERVING", "TPU", "TRAINING", "VARIABLES_DIRECTORY", "VARIABLES_FILENAME", "Asset",
    "Builder", "SaveOptions", "build_signature_def", "build_tensor_info", "builder", "classification_signature_def",
    "constants", "contains_saved_model", "experimental", "get_tensor_from_tensor_info", "is_valid_signature", "load",
    "loader", "main_op", "main_op_with_restore", "maybe_saved_model_directory", "predict_signature_def",
    "regression_signature_def", "signature_constants", "signature_def_utils", "simple_save", "tag_constants", "utils",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)

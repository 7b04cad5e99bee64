"""TensorFlow 1's `tf.saved_model.constants`: names of files and collections."""

from typing import Final

from headrace.interchange import saved_model

SAVED_MODEL_SCHEMA_VERSION: Final = saved_model.SCHEMA_VERSION
SAVED_MODEL_FILENAME_PB: Final = saved_model.BINARY
SAVED_MODEL_FILENAME_PBTXT: Final = saved_model.TEXT
VARIABLES_DIRECTORY: Final = saved_model.VARIABLES_FOLDER
VARIABLES_FILENAME: Final = saved_model.VARIABLES_NAME
ASSETS_DIRECTORY: Final = saved_model.ASSETS_FOLDER
ASSETS_KEY: Final = saved_model.ASSETS
MAIN_OP_KEY: Final = saved_model.MAIN_OP
LEGACY_INIT_OP_KEY: Final = saved_model.LEGACY_INIT_OP
DEBUG_DIRECTORY: Final = "debug"
DEBUG_INFO_FILENAME_PB: Final = "saved_model_debug_info.pb"

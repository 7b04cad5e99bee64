"""Changes of the kinds of calls in a SavedModel."""

from __future__ import annotations

import os
from collections.abc import Iterable

from headrace.interchange import saved_model
from headrace.v1.saved_model.loader import parse_saved_model


class MethodNameUpdater:
    """Replaces the method names of signatures in a SavedModel.

    Args:
      export_dir: the folder of the SavedModel.

    Raises:
      OSError: the folder has no SavedModel, or a malformed one.

    Source: TensorFlow's `tf.saved_model.signature_def_utils.MethodNameUpdater`.
    """

    def __init__(self, export_dir: str) -> None:
        self._folder = export_dir
        self._model = parse_saved_model(export_dir)

    def replace_method_name(
        self, signature_key: str, method_name: str, tags: str | Iterable[str] | None = None
    ) -> None:
        """Replaces the method name of a signature.

        Args:
          signature_key: the name of the signature.
          method_name: the new method name.
          tags: the tags of the graph. None: all graphs.

        Raises:
          ValueError: there is no such graph, one has no such signature, or a name is empty.
        """
        if not signature_key or not method_name:
            raise ValueError("`signature_key` and `method_name` must be defined.")
        wanted = None if tags is None else {tags} if isinstance(tags, str) else set(tags)
        chosen = [m for m in self._model.meta_graphs if wanted is None or set(m.meta_info_def.tags) == wanted]
        if not chosen:
            raise ValueError(f"MetaGraphDef associated with tags {tags} could not be found in SavedModel.")
        for meta in chosen:
            if signature_key not in meta.signature_def:
                raise ValueError(
                    f"MetaGraphDef associated with tags {list(meta.meta_info_def.tags)} does not have a signature_def "
                    f"with key: '{signature_key}'; it has {sorted(meta.signature_def)}"
                )
        for meta in chosen:
            meta.signature_def[signature_key].method_name = method_name

    def save(self, new_export_dir: str | None = None) -> None:
        """Writes the file of the SavedModel, as text if it was text.

        Args:
          new_export_dir: the folder of the new file. None: the folder of the SavedModel, whose file is replaced.
            Variables and assets are not copied.

        Raises:
          FailedPreconditionError, PermissionDeniedError, ...: the file cannot be written.
        """
        is_text = os.path.exists(os.path.join(self._folder, saved_model.TEXT))
        saved_model.write(self._model, new_export_dir or self._folder, is_text)

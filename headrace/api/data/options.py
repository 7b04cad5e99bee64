"""Options of pipelines, which programs set for speed."""

from __future__ import annotations

from typing import Any


class Options:
    """Options of a pipeline. None of them changes its elements, and headrace needs none.

    Source: TensorFlow's `tf.data.Options`.

    Example:
      >>> import headrace as hr
      >>> options = hr.data.Options()
      >>> options.threading.private_threadpool_size = 4
      >>> _ = hr.data.Dataset.range(3).with_options(options)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Options()
        object.__setattr__(self, name, made)
        return made

    def merge(self, options: Any) -> Options:
        """Returns these options."""
        return self

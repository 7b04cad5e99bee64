"""Iterator of the elements in a record file that a dataset wrote."""

from __future__ import annotations

from headrace.files import records
from headrace.resources.datasets import state
from headrace.resources.datasets.base import Element, Iterator, Pass
from headrace.resources.datasets.state import Saved, State


class ElementFile(Iterator):
    """Iterator of the elements of the file of a cache or of a saved shard.

    The file is closed at its end, or with the iterator.

    Args:
      run: the pass.
      path: the path of the file.
      compression: "", "GZIP" or "ZLIB".
    """

    __slots__ = ("_at", "_file")

    def __init__(self, run: Pass, path: str, compression: str = "") -> None:
        super().__init__(run)
        self._file: records.File | None = records.File(path, compression)
        self._at = 0

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()

    def next(self) -> Element | None:
        if self._file is None:
            return None
        found = self._file.next()
        if found is None:
            self._file.close()
            self._file = None
            return None
        self._at += 1
        return state.decode(found).element()

    def save(self) -> State:
        return {"at": self._at}

    def restore(self, saved: Saved) -> None:
        for _ in range(saved.number("at")):
            if self.next() is None:
                break

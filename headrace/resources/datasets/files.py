"""Datasets of the pieces of files: lines, records, and pieces of one length."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from headrace.files.sources import Source
from headrace.resources.datasets.base import Dataset, Element, Iterator, Pass
from headrace.resources.datasets.state import Saved, State


class Pieces(Dataset):
    """Dataset of the pieces of files, one file after the other.

    Args:
      names: the names of the files.
      open: opens a file.
      element: the function from a piece to an element.
    """

    def __init__(
        self, names: Sequence[bytes], open: Callable[[str], Source], element: Callable[[bytes], Element] | None = None
    ) -> None:
        self._names = [os.fsdecode(n) for n in names]
        self._open, self._element = open, element or _text

    def iterator(self, run: Pass) -> Iterator:
        return _PiecesIterator(run, self._names, self._open, self._element)


def _text(piece: bytes) -> Element:
    return (np.array(piece, object),)


class _PiecesIterator(Iterator):
    __slots__ = ("_at", "_element", "_names", "_number", "_open", "_source")

    def __init__(
        self,
        run: Pass,
        names: Sequence[str],
        open: Callable[[str], Source],
        element: Callable[[bytes], Element],
    ) -> None:
        super().__init__(run)
        self._names, self._open, self._element = names, open, element
        self._number = 0  # of the file
        self._at = 0  # pieces of the file so far
        self._source: Source | None = None

    def __del__(self) -> None:
        source = getattr(self, "_source", None)
        if source is not None:
            source.close()

    def next(self) -> Element | None:
        piece = self._piece()
        return None if piece is None else self._element(piece)

    def _piece(self) -> bytes | None:
        while self._number < len(self._names):
            source = self._source
            if source is None:
                source = self._source = self._open(self._names[self._number])
            piece = source.next()
            if piece is not None:
                self._at += 1
                return piece[1]
            source.close()
            self._source = None
            self._number += 1
            self._at = 0
        return None

    def save(self) -> State:
        return {"number": self._number, "at": self._at}

    def restore(self, saved: Saved) -> None:
        self._number = saved.number("number", 0, len(self._names))
        for _ in range(saved.number("at")):
            if self._piece() is None:
                break

"""Examples as elements of queues, with sparse tensors as numbers of a map.

A queue holds tensors of one shape, and the three tensors of a sparse tensor have other shapes. So a map stores the
sparse tensors while they wait (`headrace.resources.sparse_map`). The operation that enqueues an example puts its sparse
tensors into their maps and enqueues their numbers. The operation that dequeues a batch takes them out, concatenated
along a new first dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import arrays, gathering, reductions, scopes, sparse
from headrace.api.math import cast
from headrace.api.sparse_tensor import SparseTensor, as_sparse, is_sparse
from headrace.api.tensors import convert_to_tensor, identity
from headrace.errors import ShapeError
from headrace.records import record
from headrace.shapes import Shape


@record(frozen=True)
class SparseComponent:
    """Sparse tensor as a component of examples.

    Attributes:
      dtype: dtype of its values.
      shape: static shape of one example.
      place: the attributes `container` and `shared_name` of its map.
    """

    dtype: Any
    shape: Shape
    place: dict[str, str]

    def stored(self, sp: SparseTensor, many: bool) -> Any:
        """Adds a sparse tensor to the map, and returns its key.

        Args:
          sp: the sparse tensor.
          many: whether each row of `sp` is an element of its own. Then the result is a vector of keys.
        """
        type = "AddManySparseToTensorsMap" if many else "AddSparseToTensorsMap"
        parts = [sp.indices, sp.values, sp.dense_shape]
        return scopes.builder(*parts).make(type, parts, self.place)

    def taken(self, numbers: Any) -> SparseTensor:
        """Removes sparse tensors from the map, stacked along a new first dimension.

        Args:
          numbers: an int64 vector of keys.
        """
        attrs = {"dtype": self.dtype, **self.place}
        made = scopes.builder(numbers).make("TakeManySparseFromTensorsMap", (numbers,), attrs)
        indices, values, whole = made
        if self.shape is not None:
            indices.refine((None, len(self.shape) + 1))
            whole.refine((len(self.shape) + 1,))
        out = SparseTensor(indices, values, whole)
        out.set_shape(shapes.concatenate(numbers.shape, self.shape))
        return out


class Elements:
    """Examples of one or more sources, as elements of a queue.

    Args:
      sources: for each source its tensors and `SparseTensor`s, of one or several examples.
      given: shapes of the tensors of an example. None: their static shapes. Entries of sparse tensors are ignored.
      many: whether the tensors contain several examples along the first dimension.
      name: prefix of the names of the maps. Elements with the same prefix share their maps.

    Attributes:
      types: dtypes of the queue's components.
      shapes: static shapes of the queue's components.

    Raises:
      TypeError: the sources differ in dtypes.
      ValueError: the sources differ in their sparse components; a rank is not known; or shapes are incompatible.
    """

    def __init__(self, sources: Sequence[Sequence[Any]], given: Any, many: bool, name: str) -> None:
        for i, some in enumerate(sources[1:], 1):
            if [is_sparse(t) for t in some] != [is_sparse(t) for t in sources[0]]:
                raise ValueError(
                    f"what is sparse must be so in all sources: the first has {list(sources[0])!r}, source {i} has "
                    f"{list(some)!r}"
                )
        self.types = _common_types(sources)
        self.shapes = _common_shapes(sources, given, many)
        self._many = many
        self._sparse: dict[int, SparseComponent] = {}
        container = getattr(scopes.builder(*sources[0]).graph, "current_container", "")
        for i, t in enumerate(sources[0]):
            if is_sparse(t):
                place = {"container": container, "shared_name": f"{name.rstrip('/')}/sparse_{i}"}
                self._sparse[i] = SparseComponent(self.types[i], self.shapes[i], place)
                self.types[i], self.shapes[i] = dtypes.int64, ()

    def stored(self, some: Sequence[Any], keep: Any = None) -> list[Any]:
        """Returns the components to enqueue for the tensors of a source.

        Args:
          some: tensors and `SparseTensor`s of the source.
          keep: bool vector that selects examples, or None for all.
        """
        if keep is not None:
            which = cast(keep, dtypes.int32)
            some = [
                _kept_rows(t, keep, which) if is_sparse(t) else gathering.dynamic_partition(t, which, 2)[1]
                for t in some
            ]
        return [self._sparse[i].stored(t, self._many) if is_sparse(t) else t for i, t in enumerate(some)]

    def taken(self, got: Any) -> list[Any]:
        """Returns the tensors of a batch from dequeued components.

        Every use of the batch first removes all of its sparse tensors from their maps.

        Args:
          got: the dequeued component, or the list of components.
        """
        parts = nest.as_list(got)
        out = [self._sparse[i].taken(t) if i in self._sparse else t for i, t in enumerate(parts)]
        if not self._sparse:
            return out
        with scopes.control_dependencies([t.op for t in out if is_sparse(t)]):
            return [_again(t) for t in out]


def _again(t: Any) -> Any:
    if not is_sparse(t):
        return identity(t)
    out = SparseTensor(identity(t.indices), identity(t.values), identity(t.dense_shape))
    out.set_shape(t.shape)
    return out


def _kept_rows(sp: SparseTensor, keep: Any, which: Any) -> SparseTensor:
    """Returns the rows of a sparse tensor that `keep` selects; `which` is `keep` as int32."""
    rows = gathering.dynamic_partition(reductions.range(sp.dense_shape[0]), which, 2)[1]
    new_row = reductions.cumsum(cast(keep, dtypes.int64), exclusive=True)
    left = sparse.retain(sp, gathering.gather(keep, sp.indices[:, 0]))
    first = gathering.gather(new_row, left.indices[:, :1])
    whole = arrays.concat([arrays.shape(rows, out_type=dtypes.int64), sp.dense_shape[1:]], 0)
    out = SparseTensor(arrays.concat([first, left.indices[:, 1:]], 1), left.values, whole)
    out.set_shape(shapes.concatenate((None,), None if sp.shape is None else sp.shape[1:]))
    return out


def as_lists(sources: Sequence[Any]) -> list[list[Any]]:
    """Returns the tensors of each source as a list.

    The tensors of a dict are in the order of its keys.

    Raises:
      ValueError: there are no sources, or their keys differ.
    """
    if not sources:
        raise ValueError("Expected at least one set of tensors")
    if not isinstance(sources[0], dict):
        return [[some] if is_sparse(some) else nest.as_list(some) for some in sources]
    if any(set(some) != set(sources[0]) for some in sources):
        raise ValueError("All dictionaries in tensors_list must have the same keys")
    return [[some[k] for k in sorted(some, key=str)] for some in sources]


def like(source: Any, parts: list[Any]) -> Any:
    """Returns the tensors of a batch in the structure of an example."""
    if isinstance(source, dict):
        return dict(zip(sorted(source, key=str), parts, strict=True))
    return parts[0] if len(parts) == 1 else parts


def as_tensors(some: Sequence[Any]) -> list[Any]:
    """Converts the values of a source to tensors and sparse tensors.

    Raises:
      ValueError: there are no values.
    """
    if not some:
        raise ValueError("Expected at least one tensor in batch().")
    return [as_sparse(t) if is_sparse(t) else convert_to_tensor(t) for t in some]


def _common_types(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Returns the dtypes of the tensors, which are equal in all sources.

    Raises:
      TypeError: the dtypes differ.
    """
    all_types = [[t.dtype.base for t in some] for some in lists]
    for types in all_types[1:]:
        if types != all_types[0]:
            first, other = (", ".join(t.name for t in x) for x in (all_types[0], types))
            raise TypeError(f"Expected types to be consistent: {first} vs. {other}.")
    return all_types[0]


def _common_shapes(lists: Sequence[Sequence[Any]], given: Any, many: bool) -> list[Shape]:
    """Returns the static shapes of the tensors of an example that fit all sources.

    Raises:
      ValueError: a rank is not known, or the shapes are incompatible.
    """
    if given is not None and len(given) != len(lists[0]):
        raise ValueError(f"shapes has {len(given)} entries, and an example has {len(lists[0])} tensors")
    columns = list(zip(*lists, strict=True))
    return [
        shapes.as_shape(given[i]) if given is not None and not is_sparse(column[0]) else _common_shape(column, many)
        for i, column in enumerate(columns)
    ]


def _common_shape(column: Sequence[Any], many: bool) -> Shape:
    known: list[Shape] = []
    for t in column:
        if t.shape is None and not is_sparse(t):
            raise ValueError(f"Cannot infer Tensor's rank: {t}; say the shapes")
        if many and t.shape is not None and len(t.shape) < 1 + is_sparse(t):
            raise ShapeError(
                f"with enqueue_many the first dimension is that of the examples; {t} has "
                + ("no other, and an example that is sparse has one at least" if is_sparse(t) else "none")
            )
        known.append(None if t.shape is None else tuple(t.shape)[1:] if many else tuple(t.shape))
    ranks = {len(s) for s in known if s is not None}
    if len(ranks) > 1 and is_sparse(column[0]):
        raise ShapeError(f"sparse tensors of one rank expected from all sources, got ranks {sorted(ranks)}")
    merged = known[0]
    for shape in known[1:]:
        merged = shapes.join(merged, shape)
    return merged


def stacked(leading: int | None, known: Sequence[Shape]) -> list[Shape]:
    """Returns the static shapes of batches of `leading` examples."""
    return [shapes.concatenate((leading,), s) for s in known]

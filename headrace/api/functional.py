"""Functions over the rows of tensors: `map_fn`, `scan`, `foldl`, `foldr`.

Each is a `while_loop` over a counter. Tensor arrays hold the rows that it reads and the results that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace import dtypes, nest, shapes, tracebacks
from headrace.api import scopes, tracing
from headrace.api.sparse_tensor import SparseTensor, SparseTensorSpec
from headrace.api.tensor_array import TensorArray
from headrace.api.while_loop import while_loop
from headrace.errors import SignatureError
from headrace.ir.graph import Tensor
from headrace.shapes import Shape

R = TypeVar("R")


@tracebacks.entry
def map_fn(
    fn: Callable[[Any], R],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> R:
    """Applies `fn` to each row of `elems` and stacks the results.

    Args:
      fn: a function from a row, in the structure of `elems`, to tensors.
      elems: a tensor or `SparseTensor` of rank 1 or more, or a nested structure of them with equal numbers of rows.
      dtype: the older name of `fn_output_signature`.
      parallel_iterations: the largest number of rows in parallel; 10 if None (1 in eager execution).
      back_prop, swap_memory: see `while_loop`.
      infer_shape: whether all results have the same static shape.
      name: the name of the scope; "map" if None.
      fn_output_signature: the description of the result of `fn`: a dtype, `TensorSpec` or `SparseTensorSpec`, or a
        nested structure of them. It can be omitted if `fn` returns the structure and dtypes of `elems`.

    Returns:
      A structure like the result of `fn`; each tensor or `SparseTensor` has an additional first dimension.

    Raises:
      ValueError: `elems` has no tensor, or one of rank 0; the numbers of rows differ.
      TypeError: a leaf of `elems` cannot be converted to a tensor.
      SignatureError: `fn` returned another structure or dtype than declared.

    Source: TensorFlow's `tf.map_fn`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.map_fn(lambda x: x * x, hr.constant([1, 2, 3]))
      >>> hr.Session(graph=g).run(y)
      array([1, 4, 9], dtype=int32)
    """
    tracing.check_callable(fn=fn)
    if fn_output_signature is None:
        fn_output_signature = dtype
    with _scope(name, "map", elems):
        b = scopes.builder(*nest.flatten(elems))
        sparse = [x if isinstance(x, SparseTensor) else None for x in nest.flatten(elems, expand=False)]
        flat = _rows(
            b, nest.map_leaves(lambda x: _packed(x) if isinstance(x, SparseTensor) else x, elems, expand=False)
        )
        n = _number_of_rows(b, flat)
        arrays = _unstacked(flat, n)
        structure = elems if fn_output_signature is None else fn_output_signature
        specs: list[Any] = nest.flatten(structure, expand=False)
        if fn_output_signature is None:
            specs = [t.dtype if sp is None else sp for t, sp in zip(flat, sparse, strict=True)]
        is_sparse = [isinstance(s, (SparseTensor, SparseTensorSpec)) for s in specs]
        i = b.const(0, dtypes.int32)
        made = [
            TensorArray(dtypes.string, n, element_shape=(3,))
            if packed
            else TensorArray(
                getattr(s, "dtype", s), n, infer_shape=infer_shape, element_shape=getattr(s, "shape", None)
            )
            for s, packed in zip(specs, is_sparse, strict=True)
        ]

        def step(i: Any, filled: Sequence[TensorArray]) -> Any:
            rows = [a.read(i) if sp is None else _row(a.read(i), sp) for a, sp in zip(arrays, sparse, strict=True)]
            value = fn(nest.pack(elems, rows, expand=False))
            found = nest.mismatch(structure, value, expand=False)
            if found is not None:
                of = "its elems have" if fn_output_signature is None else "fn_output_signature says"
                at = f" at {found.path}" if found.path else ""
                raise SignatureError(
                    f"The two structures don't have the same nested structure{at}: map_fn's function "
                    f"({tracing.source_of(fn)}) returned {found.second}, where {of} {found.first}; "
                    "give fn_output_signature= with the dtypes of what it returns"
                )
            leaves = [
                _of_spec(s, leaf, fn) if packed else _of_dtype(a, leaf, fn, "fn_output_signature=")
                for a, s, packed, leaf in zip(filled, specs, is_sparse, nest.flatten(value, expand=False), strict=True)
            ]
            return _next(i), [a.write(i, leaf) for a, leaf in zip(filled, leaves, strict=True)]

        _, filled = while_loop(
            lambda i, _: scopes.builder(i).Less(i, n),
            step,
            (i, made),
            parallel_iterations=parallel_iterations or 10,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=n,
        )
        out = [
            _unpacked(a.stack(), s, fn_output_signature is not None) if packed else _stacked(a, flat[0])
            for a, s, packed in zip(filled, specs, is_sparse, strict=True)
        ]
        return nest.pack(structure, out, expand=False)


# *** rows of sparse tensors: each is three strings ***


def _packed(sp: SparseTensor) -> Any:
    """Returns the rows of a sparse tensor as strings, [n, 3]."""
    parts = nest.flatten(sp)
    out = scopes.builder(*parts).make("SerializeManySparse", parts, {"out_type": dtypes.string})
    if isinstance(out, Tensor) and sp.shape is not None:
        out.refine((sp.shape[0], 3))
    return out


def _row(packed: Any, sp: SparseTensor) -> SparseTensor:
    """Returns a row of a sparse tensor, from its strings."""
    rank = shapes.with_rank(sp.dense_shape.shape, 1)[0]
    return _restored(
        "DeserializeSparse", packed, sp.dtype, None if rank is None else rank - 1, sp.shape and sp.shape[1:]
    )


def _unpacked(rows: Any, spec: SparseTensor | SparseTensorSpec, is_of_row: bool) -> SparseTensor:
    """Returns the sparse tensor with rows given as strings, [n, 3].

    Args:
      rows: the strings.
      spec: the description of a row or of the whole tensor.
      is_of_row: whether `spec` describes a row.
    """
    shape = spec.shape if not is_of_row or spec.shape is None else (None, *spec.shape)
    rank = None if shape is None else len(shape)
    return _restored("DeserializeManySparse", rows, spec.dtype, rank, shape)


def _restored(type: str, strings: Any, dtype: Any, rank: int | None, shape: Shape) -> SparseTensor:
    indices, values, whole = scopes.builder(strings).make(type, (strings,), {"dtype": dtype.base})
    if isinstance(indices, Tensor):
        for t, known in zip((indices, values, whole), ((None, rank), (None,), (rank,)), strict=True):
            t.refine(known)
    out = SparseTensor(indices, values, whole)
    if isinstance(indices, Tensor):
        out.set_shape(shape)
    return out


def _of_spec(spec: SparseTensor | SparseTensorSpec, leaf: Any, fn: Callable[..., Any]) -> Any:
    """Returns the strings of the function's result, a sparse tensor of the dtype of `spec`.

    Raises:
      SignatureError: the result is something else.
    """
    if not isinstance(leaf, SparseTensor) or leaf.dtype.base is not spec.dtype.base:
        got = f"of dtype {leaf.dtype.base.name}" if isinstance(leaf, SparseTensor) else nest.describe(leaf)
        raise SignatureError(
            f"map_fn's function ({tracing.source_of(fn)}) must return a SparseTensor of dtype {spec.dtype.base.name}, "
            f"got {got}; say what it returns: fn_output_signature=, or cast it"
        )
    parts = nest.flatten(leaf)
    return scopes.builder(*parts).make("SerializeSparse", parts, {"out_type": dtypes.string})


@tracebacks.entry
def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Returns all states of `a = fn(a, row)`, one for each row of `elems`, stacked.

    Args:
      fn: a function from the state and a row (in the structure of `elems`) to the next state.
      elems: as for `map_fn`.
      initializer: the state before the first row, whose structure is that of the results. If None, the first row is the
        first state, and `fn` is called for the others.
      parallel_iterations, back_prop, swap_memory, infer_shape, name: as for `map_fn`.
      reverse: whether the rows are processed from the last to the first; each result stays at the position of its row.

    Returns:
      A structure like the state; each tensor has an additional first dimension.

    Raises:
      ValueError: see `map_fn`.
      SignatureError: `fn` returned another structure or dtype than the state has.
      InvalidArgumentError: at run time, `elems` has no rows and there is no `initializer`.

    Source: TensorFlow's `tf.scan`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.scan(lambda a, x: a + x, hr.constant([1, 2, 3]))
      >>> hr.Session(graph=g).run(y)
      array([1, 3, 6], dtype=int32)
    """
    tracing.check_callable(fn=fn)
    with _scope(name, "scan", elems, initializer):
        b = scopes.builder(*nest.flatten(elems), *nest.flatten(initializer))
        for x in nest.flatten(initializer, expand=False):
            if nest.is_composite(x):
                raise TypeError(
                    f"scan stacks the states, which must be tensors: the initializer has {nest.describe(x)}"
                )
        fold = _Fold(b, fn, elems, initializer, reverse)
        made = [TensorArray(t.dtype, fold.n, infer_shape=infer_shape, element_shape=_element(t)) for t in fold.state]
        if initializer is None:
            made = [a.write(fold.first, t) for a, t in zip(made, fold.state, strict=True)]

        def step(i: Any, state: Any, filled: Sequence[TensorArray]) -> Any:
            state = fold.step(i, state)
            written = [a.write(i, t) for a, t in zip(filled, nest.flatten(state), strict=True)]
            return fold.next(i), state, written

        _, _, filled = fold.loop(step, [made], parallel_iterations, back_prop, swap_memory)
        return nest.pack(fold.structure, [_stacked(a, fold.flat[0]) for a in filled])


@tracebacks.entry
def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the last state of `a = fn(a, row)` over the rows of `elems`, in order.

    The arguments, results and errors are those of `scan`; only the last state is kept.

    Source: TensorFlow's `tf.foldl`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.foldl(lambda a, x: a - x, hr.constant([1, 2, 3]))
      >>> hr.Session(graph=g).run(y)
      np.int32(-4)
    """
    return _fold(fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name or "foldl", False)


@tracebacks.entry
def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the last state of `a = fn(a, row)` over the rows of `elems`, in reverse order.

    The arguments, results and errors are those of `scan`; only the last state is kept.

    Source: TensorFlow's `tf.foldr`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.foldr(lambda a, x: a - x, hr.constant([1, 2, 3]))
      >>> hr.Session(graph=g).run(y)
      np.int32(0)
    """
    return _fold(fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name or "foldr", True)


def _fold(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any,
    parallel_iterations: int,
    back_prop: bool,
    swap_memory: bool,
    name: str,
    reverse: bool,
) -> Any:
    tracing.check_callable(fn=fn)
    with _scope(name, name, elems, initializer):
        b = scopes.builder(*nest.flatten(elems), *nest.flatten(initializer))
        fold = _Fold(b, fn, elems, initializer, reverse)
        step = lambda i, state: (fold.next(i), fold.step(i, state))
        return fold.loop(step, [], parallel_iterations, back_prop, swap_memory)[1]


class _Fold:
    """Common part of `scan` and the folds: rows, first state, and loop."""

    def __init__(self, b: Any, fn: Callable[[Any, Any], Any], elems: Any, initializer: Any, reverse: bool) -> None:
        self.fn = fn
        self.reverse = reverse
        self.flat = _rows(b, elems)
        elems = self.elems = nest.pack(elems, self.flat, expand=False)
        self.n = _number_of_rows(b, self.flat)
        self.arrays = _unstacked(self.flat, self.n)
        self.structure = elems if initializer is None else initializer
        known = isinstance(self.n, int)
        less = self.n - 1 if known else b.Sub(self.n, 1, name="sub")
        self.first = b.tensor(less if reverse else 0, dtypes.int32)
        if initializer is None:
            self.state = [a.read(self.first) for a in self.arrays]
            self.start = b.Sub(self.first, 1, name="sub") if reverse else b.const(1, dtypes.int32)
            self.maximum_iterations = less
        else:
            self.state = [b.tensor(x) for x in nest.flatten(initializer)]
            self.start = self.first
            self.maximum_iterations = self.n

    def next(self, i: Any) -> Any:
        """Returns the counter after `i`."""
        return scopes.builder(i).Sub(i, 1, name="sub") if self.reverse else _next(i)

    def step(self, i: Any, state: Any) -> Any:
        """Returns the state after row `i`."""
        value = self.fn(state, nest.pack(self.elems, [a.read(i) for a in self.arrays]))
        found = nest.mismatch(self.structure, value)
        if found is not None:
            at = f" at {found.path}" if found.path else ""
            raise SignatureError(
                f"The two structures don't have the same nested structure{at}: the function "
                f"({tracing.source_of(self.fn)}) returned {found.second}, where the state is {found.first}; it must "
                "return a state like the one it is given"
            )
        return value

    def loop(self, step: Callable[..., Any], more: list[Any], parallel: int, back_prop: bool, swap_memory: bool) -> Any:
        """Creates the loop with the variables (i, state, *more)."""
        n = self.n

        def goes_on(i: Any, *_: Any) -> Any:
            b = scopes.builder(i)
            return b.GreaterEqual(i, 0) if self.reverse else b.Less(i, n)

        return while_loop(
            goes_on,
            step,
            (self.start, nest.pack(self.structure, self.state), *more),
            parallel_iterations=parallel,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=self.maximum_iterations,
        )


@contextmanager
def _scope(name: str | None, default: str, *values: Any) -> Iterator[None]:
    with scopes.name_scope(name, default, nest.flatten(values)):
        yield


def _rows(b: Any, elems: Any) -> list[Any]:
    """Returns the tensors of `elems`.

    Raises:
      ValueError: there are none, one is a scalar, or their static numbers of rows differ.
    """
    flat = [b.tensor(x, name="elem") for x in nest.flatten(elems, expand=False)]
    if not flat:
        raise ValueError(f"'elems' must have at least one tensor, got {nest.describe(elems)}")
    first: tuple[str, int] | None = None
    for (path, _), t in zip(nest.flatten_with_paths(nest.pack(elems, flat, expand=False), "elems"), flat, strict=True):
        if t.shape is None:
            continue
        if not len(t.shape):
            raise ValueError(
                f"the tensors of 'elems' must be at least 1-dimensional: {path} is the scalar {t!r}{_made(t)}"
            )
        rows = t.shape[0]
        if rows is not None and first is not None and rows != first[1]:
            raise ValueError(
                f"the tensors of 'elems' must have equally many rows: {first[0]} has {first[1]}, {path} "
                f"({t!r}{_made(t)}) has {rows}"
            )
        first = first or (None if rows is None else (path, rows))
    return flat


def _number_of_rows(b: Any, flat: list[Any]) -> Any:
    """Returns the number of rows: a Python int if it is known, else a tensor."""
    for t in flat:
        if t.shape is not None and t.shape[0] is not None:
            return int(t.shape[0])
    return b.StridedSlice(b.Shape(flat[0]), [0], [1], [1], shrink_axis_mask=1)


def _element(t: Any) -> Shape:
    return None if t.shape is None else tuple(t.shape)


def _unstacked(flat: list[Any], n: Any) -> list[TensorArray]:
    out = []
    for t in flat:
        shape = None if t.shape is None else tuple(t.shape[1:])
        out.append(TensorArray(t.dtype, n, element_shape=shape, infer_shape=True).unstack(t))
    return out


def _stacked(array: TensorArray, rows: Any) -> Any:
    out = array.stack()
    if isinstance(out, Tensor) and out.shape is not None:
        n = None if rows.shape is None else rows.shape[0]
        out.refine((n, *out.shape[1:]))
    return out


def _next(i: Any) -> Any:
    return scopes.builder(i).AddV2(i, 1, name="add")


def _of_dtype(array: TensorArray, leaf: Any, fn: Callable[..., Any], argument: str) -> Any:
    """Returns the function's result for an element of `array`, as a tensor of its dtype.

    Raises:
      SignatureError: the result has another dtype.
    """
    dtype = getattr(leaf, "dtype", None)
    if isinstance(leaf, Tensor) and dtype is not None and leaf.dtype.base is not array.dtype.base:
        raise SignatureError(
            f"map_fn's function ({tracing.source_of(fn)}) returned '{leaf.name}' of dtype {leaf.dtype.base.name}, "
            f"where {array.dtype.name} was expected; say what it returns: {argument}{leaf.dtype.base.name}, or cast it"
        )
    return leaf


def _made(t: Any) -> str:
    source = t.op.source if isinstance(t, Tensor) else None
    return f", made at {source}" if source is not None else ""

"""Fetch structures and feeds: resolution in a graph, and checks of fed values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes, nest, reference_counts, shapes, thresholds
from headrace.errors import FeedError, ResourceExhaustedError
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.records import record
from headrace.resources.manager import DEFAULT_CONTAINER, Handle
from headrace.resources.variable import FedVariable, Variable

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headrace.ir.source import Source
    from headrace.programs import Programs

Pack: TypeAlias = Callable[[Sequence[Any]], Any]


_ELEMENTS: Final = (Tensor, Operation, str)


def key_of(fetches: Any) -> Hashable:
    """Returns a hashable key of a fetch structure.

    Structures with the same meaning have equal keys.

    Raises:
      TypeError: the object is not a fetch structure.
      ValueError: the structure is nested too deeply.
    """
    try:
        if isinstance(fetches, _ELEMENTS):
            return fetches
        node = nest.nodes[type(fetches)]
        if node is not None and node.is_fetchable:
            parts = node.as_given(fetches)
            return (node.form(fetches), *[f if isinstance(f, _ELEMENTS) else key_of(f) for f in parts])
        if hasattr(type(fetches), "graph_element"):
            return fetches.graph_element  # type: ignore[no-any-return]
    except RecursionError:
        raise _too_deep() from None
    raise _no_fetch(fetches)


def _no_fetch(f: Any) -> TypeError:
    return TypeError(
        f"cannot fetch {f!r} ({type(f).__name__}): a fetch is a tensor, an operation, the name of one, or a list, "
        "tuple, dict or dataclass of fetches"
        + ("; an operation is None if it was called outside of `with graph:`, and ran at once" if f is None else "")
    )


def _too_deep() -> ValueError:
    return ValueError("the fetches are nested too deeply, or contain themselves; fetch a flat list")


class Fetches:
    """A fetch structure, resolved in a graph.

    Args:
      graph: the graph.
      fetches: the structure.

    Attributes:
      tensors: the distinct tensors to fetch.
      targets: the operations to run without fetching.
      pack: builds the user's structure from the values of the tensors; it has None in the place of an operation.
    """

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self.tensors: list[Tensor] = []
        self.targets: list[Operation] = []
        self._at: dict[Tensor, int] = {}
        try:
            self.pack = self._resolve(graph, fetches)
        except RecursionError:
            raise _too_deep() from None
        is_flat = type(fetches) is list and all(isinstance(f, _ELEMENTS) for f in fetches)
        if is_flat and len(fetches) == len(self.tensors):  # all are tensors, without duplicates
            self.pack = list  # the values in their order

    def _resolve(self, graph: Graph, f: Any) -> Pack:
        if isinstance(f, _ELEMENTS) or hasattr(type(f), "graph_element"):
            element = _element(graph, f)
            if isinstance(element, Operation):
                self.targets.append(element)
                return lambda values: None
            i = self._at.setdefault(element, len(self.tensors))
            if i == len(self.tensors):
                self.tensors.append(element)
            return lambda values: values[i]
        node = nest.nodes[type(f)]
        if node is None or not node.is_fetchable:
            raise _no_fetch(f)
        parts = [self._resolve(graph, x) for x in node.parts(f)]
        make = node.fetched_as
        if make is not None:
            return lambda values: make(*[p(values) for p in parts])
        rebuild = node.rebuilder(f)
        return lambda values: rebuild([p(values) for p in parts])


def _element(graph: Graph, f: str | Tensor | Operation) -> Tensor | Operation:
    try:
        return graph.as_fetched_element(f)
    except KeyError as e:
        raise ValueError(f"Fetch argument {f!r} cannot be interpreted as a Tensor: {e.args[0]}") from e
    except (ValueError, TypeError) as e:
        raise ValueError(f"Fetch argument {f!r} cannot be interpreted as a Tensor: {e}") from e


def feed_tensor(graph: Graph, key: Any) -> Tensor:
    """Returns the tensor for a key of a feed dict."""
    try:
        found = graph.as_fed_element(key)
        named = graph.as_graph_element(key, allow_operation=False)
        assert isinstance(named, Tensor)
    except (KeyError, ValueError, TypeError) as e:
        text = e.args[0] if e.args else e
        raise FeedError(f"Cannot interpret feed_dict key {key!r} as Tensor: {text}") from e
    if named.dtype.base in (dtypes.resource, dtypes.variant):
        raise FeedError(
            f"tensor '{found.name}' carries a {found.dtype.name}, which cannot be fed"
            + ("; to feed a variable, give the variable as the key" if found.handle is not None else "")
        )
    return found


#: The form of a feed key: its number of tensors, or the forms of the elements of a tuple.
FeedForm: TypeAlias = "int | tuple[FeedForm, ...]"


def feed_tensors(graph: Graph, key: Any) -> list[Tensor]:
    """Returns the tensors for a key of a feed dict.

    A composite (`SparseTensor`) and a tuple, which may be nested, have several.
    """
    if isinstance(key, tuple):
        return [t for part in key for t in feed_tensors(graph, part)]
    return [feed_tensor(graph, t) for t in _parts_fed(key)]


def feed_form(key: Any) -> FeedForm:
    """Returns the form of a key of a feed dict."""
    return tuple(feed_form(part) for part in key) if isinstance(key, tuple) else len(_parts_fed(key))


def _parts_fed(key: Any) -> Sequence[Any]:
    node = nest.nodes[type(key)]
    return (key,) if node is None or node.fetched_as is None else node.parts(key)


def spread(values: Sequence[Any], forms: Sequence[FeedForm]) -> list[Any]:
    """Flattens the values of feed keys to one value for each tensor.

    Args:
      values: a value for each key.
      forms: the form of each key. The value of an `IndexedSlices` without a `dense_shape`, two tensors, may have a
        `dense_shape`, which is dropped.

    Raises:
      FeedError: the value for a key has another structure than the key.
    """
    out: list[Any] = []
    for value, form in zip(values, forms, strict=True):
        if form == 1:
            out.append(value)
            continue
        n = form if isinstance(form, int) else len(form)
        if not isinstance(value, (tuple, list)) or (len(value) != n and (form, len(value)) != (2, 3)):
            found = f"{len(value)} elements" if isinstance(value, (tuple, list)) else "1 element"
            raise FeedError(
                f"Could not flatten dictionary. Key had {n} elements, but value had {found}: a key of {n} tensors is "
                f"fed a tuple of {n} values, got {_short(value)}"
            )
        out += value[:n] if isinstance(form, int) else spread(value, form)
    return out


@record(frozen=True, slots=True)
class FedTensor:
    """The tensor or variable to which a value is fed.

    Attributes:
      name: the name of the tensor.
      dtype: the base dtype of its values.
      shape: the static shape of its values.
      source: the line that created it, if known.
    """

    name: str
    dtype: dtypes.DType
    shape: shapes.Shape
    source: Source | None

    @classmethod
    def of(cls, t: Tensor) -> FedTensor:
        """Returns the description of `t`, or of the variable of a handle `t`."""
        dtype, shape = t.handle if t.dtype is dtypes.resource and t.handle is not None else (t.dtype.base, t.shape)
        return cls(t.name, dtype, shape, t.op.source)

    @property
    def named(self) -> str:
        """Name and line, for messages."""
        return f"'{self.name}'" + (f" (made at {self.source})" if self.source is not None else "")


Convert: TypeAlias = Callable[[FedTensor, Any, np.dtype], np.ndarray]


def feeder(t: Tensor, convert: Convert | None = None, lends: bool = False) -> Callable[[Any], Any]:
    """Returns a function that checks and converts values for `t`.

    Its result has the dtype of `t` and shares no memory with the value, unless it is lent. It raises `FeedError` if the
    value has a shape that `t` cannot have, or cannot be converted to its dtype.

    Args:
      t: the fed tensor; for the handle of a variable, the value of the variable is fed.
      convert: converts a value that is not an array to an array of a given numpy dtype; None: `strict`.
      lends: whether the result may be the value itself, a large array of floats (`PreparedCall.owned`).
    """
    fed = FedTensor.of(t)
    feed = _feeder(fed, convert or strict, lends and may_lend(t))
    if t.dtype is not dtypes.resource:
        return feed
    name, container = t.op.name, t.op.attrs.get("container") or DEFAULT_CONTAINER

    def feed_variable(value: Any) -> Handle:
        variable = FedVariable(name, fed.dtype, fed.shape, feed(value))
        return Handle("", container, Variable.__name__, name, False, fed.dtype.name, fed.shape, variable)

    return feed_variable


def _feeder(t: FedTensor, convert: Convert, lends: bool) -> Callable[[Any], Any]:
    want, shape, dtype = t.dtype.numpy, t.shape, t.dtype
    if dtype is dtypes.string:
        return lambda value: _checked_shape(t, _strings(t, value))
    rank = None if shape is None else len(shape)
    exact = shape if shapes.is_full(shape) else None
    scalar = want.type
    python = {"f": float, "i": int, "u": int, "b": bool}.get(want.kind)
    # 1 times a Python number takes a quarter of the time of scalar(number)
    make: Callable[[Any], Any] = scalar(1).__mul__ if want.kind in "fiu" else scalar

    def feed(value: Any) -> Any:
        kind = type(value)
        if rank == 0:
            if kind is scalar:
                return value
            if kind is python:
                try:
                    return make(value)
                except OverflowError as e:
                    raise FeedError(f"the value fed to {t.named} does not fit {dtype.name}: {e}") from None
        if kind is np.ndarray and value.dtype == want:
            array = value
        else:
            if isinstance(value, (Tensor, Operation)):
                raise FeedError(
                    f"the value fed to {t.named} is the symbolic {value!r}; feed numbers: run it first and feed the "
                    "result"
                )
            array = convert(t, value, want)
            if array.dtype == want and hasattr(value, "__array__"):
                array = array.copy()  # the owner of this array may write into it later
        if array.shape != exact and not shapes.fits(array.shape, shape):
            _checked_shape(t, array)
        if array.ndim == 0:
            return array[()]
        if lends and array is value and array.nbytes >= thresholds.LENT_FEED_BYTES:
            flags = array.flags
            if flags.c_contiguous and flags.aligned:
                return array
        # the user may write into the array during the step or after it; the fed value must not change
        return array.copy() if array is value or array.base is not None else array

    return feed


def may_lend(t: Tensor) -> bool:
    """Whether steps may read the user's array for `t` in place of a copy.

    Integers and bools are always copied: kernels check indices before they use them, and another thread could write in
    between.
    """
    size = shapes.size(t.shape)
    is_large = size is None or size * t.dtype.numpy.itemsize >= thresholds.LENT_FEED_BYTES
    return t.dtype in dtypes.INEXACT and is_large


# ranks of numpy kinds; a conversion to a lower rank (floats for an int tensor) would lose information
_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}


def strict(t: FedTensor, value: Any, want: np.dtype) -> np.ndarray:
    """Converts `value` to an array of dtype `want` if this loses at most precision.

    Args:
      t: the fed tensor, for messages.
      value: the value.
      want: the numpy dtype.

    Raises:
      FeedError: the value is not an array, or the conversion would lose more.
    """
    try:
        array = np.asarray(value)
        if array.size == 0 and not hasattr(value, "dtype"):
            array = array.astype(want)
    except (ValueError, TypeError) as e:
        raise FeedError(f"the value fed to {t.named} is no array: {e}") from e
    if array.dtype == want:
        return array
    if _KINDS.get(array.dtype.kind, 9) > _KINDS.get(want.kind, -1):
        raise FeedError(
            f"Type of the value fed to {t.named} is {_kind(array)}, which does not fit its dtype "
            f"{t.dtype.name}: convert it first (value {_short(value)})"
        )
    try:
        cast = array.astype(want)
    except (ValueError, TypeError) as e:
        raise FeedError(f"the value fed to {t.named} cannot be made {t.dtype.name} from {array.dtype}: {e}") from e
    if want.kind in "iu" and array.dtype.kind in "iu" and not np.array_equal(cast, array):
        raise FeedError(f"the value fed to {t.named} does not fit {t.dtype.name}: {_short(value)}")
    return cast


def converting(t: FedTensor, value: Any, want: np.dtype) -> np.ndarray:
    """Converts `value` to an array of dtype `want` by `np.asarray(value).astype(want)`.

    Fractions are truncated, text is parsed, None becomes NaN, large integers wrap. A Python int that does not fit is an
    error.

    Source: TensorFlow 1's `Session.run`.

    Args:
      t: the fed tensor, for messages.
      value: the value.
      want: the numpy dtype.

    Raises:
      FeedError: numpy refuses the conversion, or an int does not fit.
    """
    try:
        array = np.asarray(value).astype(want, copy=False)
    except (ValueError, TypeError, OverflowError) as e:
        raise FeedError(f"the value fed to {t.named} cannot be made {t.dtype.name} (value {_short(value)}): {e}") from e
    if isinstance(value, int) and array != value:
        raise FeedError(
            f"Type of feed value {_short(value)} with type {type(value)} is not compatible with Tensor type "
            f"{want.type}, the dtype of {t.named}. Try explicitly setting the type of the feed tensor to a larger type "
            "(e.g. int64)."
        )
    return array


def _checked_shape(t: FedTensor, array: np.ndarray) -> np.ndarray:
    if not shapes.fits(array.shape, t.shape):
        raise FeedError(
            f"Cannot feed value of shape {array.shape} for Tensor '{t.name}', which has shape "
            f"{shapes.show(t.shape)}" + (f" (made at {t.source})" if t.source else "")
        )
    return array


def _strings(t: FedTensor, value: Any) -> np.ndarray:
    source = np.asarray(value, dtype=object)
    out = np.empty(source.shape, dtype=object)
    flat = out.reshape(-1)
    for i, x in enumerate(source.ravel().tolist()):
        if isinstance(x, str):
            x = x.encode()
        if not isinstance(x, bytes):
            raise FeedError(f"the value fed to {t.named} must hold text, got {_short(x)} of type {type(x).__name__}")
        flat[i] = x if type(x) is bytes else bytes(x)
    return out


def _kind(array: np.ndarray) -> str:
    what = {"U": " (text)", "S": " (text)", "O": " (no numbers)"}.get(array.dtype.kind, "")
    return f"{array.dtype}{what}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def result(values: list[Any]) -> Any:
    """Returns the fetched value, the only entry of `values`, for the user to change.

    A value of rank 0 becomes a numpy scalar (`bytes` for a string). An array with other references (from a variable, a
    constant, the base of a view) is copied; any other array is returned itself.
    """
    value = values[0]
    if type(value) is np.ndarray:
        if value.ndim == 0:
            return value[()]
        mine = reference_counts.LOCAL + 1  # with the reference of the list
        if not value.flags.owndata or not value.flags.writeable or reference_counts.count(value) > mine:
            try:
                return value.copy()
            except MemoryError as e:
                size = f"{value.nbytes:,} bytes"
                raise ResourceExhaustedError(f"out of memory: a fetched array takes {size} more to copy") from e
    return value


def as_own(values: list[Any]) -> list[Any]:
    """Makes fetched values writable by the user; changes and returns the list.

    The caller must hold no other references to its arrays: arrays with other references are copied.
    """
    if len(values) == 1 and isinstance(values[0], np.generic):
        return values
    for i in range(len(values)):
        if not isinstance(values[i], np.generic):
            one = [values[i]]
            values[i] = None  # without this reference the array is recognized as the caller's own
            values[i] = result(one)
    return values


@record(slots=True)
class PreparedCall:
    """The programs for one set of fetches and feed keys.

    Attributes:
      programs: the programs that compute the fetches.
      feeders: for each fed tensor the function that checks and converts its value.
      pack: builds the structure of the fetches from the values of the step.
      fetch_names: names of the fetched tensors.
      forms: the form of each feed key; none if each key is one tensor.
      lends: whether `feed` may return arrays of the user instead of copies.
      at_once: the function of a step that is one call of machine code (`schedule.program.Program.at_once`), once a run
        has found it; else None.
    """

    programs: Programs
    feeders: list[Callable[[Any], Any]]
    pack: Callable[[Sequence[Any]], Any]
    fetch_names: list[str]
    forms: list[FeedForm]
    lends: bool = False
    at_once: Callable[..., Any] | None = None

    def feed(self, values: Sequence[Any]) -> list[Any]:
        """Checks and converts the values of the feeds."""
        if self.forms:
            values = spread(values, self.forms)
        feeders = self.feeders
        if len(feeders) == 1:  # this saves time in steps of a microsecond
            return [feeders[0](values[0])]
        return [f(v) for f, v in zip(feeders, values, strict=True)]

    def owned(self, fed: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Returns the result of `feed(values)` with copies in place of arrays of the user."""
        if self.forms:
            values = spread(values, self.forms)
        return [f.copy() if f is v and type(f) is np.ndarray else f for f, v in zip(fed, values, strict=True)]

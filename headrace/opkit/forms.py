"""Forms of operations: data movement, reductions and products with static parameters.

A kernel checks its inputs and computes indices in each call. If shapes, axes and bounds are static, this can be done
once, and one step is left: `x.reshape(4, 8)`, `x[:, 0:8]`. The rule of an op's record (`opdef.OpDef.form`) returns this
step as a `Form`, from which a code generator writes code without knowledge of the op. The rule returns None if the
parameters are not static or the kernel would fail.

Elementwise operations have no rule: their scalar expression is found by running the kernel on symbols
(`schedule.scalar_expressions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.ir.infer import constant_value
from headrace.ir.notes import ContiguousResult
from headrace.opkit.elementwise import HALF
from headrace.opkit.windows import Axis
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.shapes import Shape

Index: TypeAlias = "tuple[int | slice | None, ...]"


@record(frozen=True, slots=True)
class Reshape:
    """Elements of an input, in order, in another shape.

    Attributes:
      source: the position of the input.
      shape: the shape of output 0.
    """

    source: int
    shape: tuple[int, ...]


@record(frozen=True, slots=True)
class Pieces:
    """Regular pieces of an input.

    Attributes:
      source: the position of the input.
      indices: for each output its index: an int, or a slice with a step, for each of the first axes; None: a new axis.
    """

    source: int
    indices: tuple[Index, ...]


@record(frozen=True, slots=True)
class Permute:
    """An input with its axes in another order.

    Attributes:
      source: the position of the input.
      axes: the axes of the input, in the order of the output.
      is_contiguous: whether the output must be an array of its own in row-major order.
    """

    source: int
    axes: tuple[int, ...]
    is_contiguous: bool


@record(frozen=True, slots=True)
class Broadcast:
    """An input that is broadcast to a shape.

    Attributes:
      source: the position of the input, which may be of rank 0.
      shape: the shape of output 0.
    """

    source: int
    shape: tuple[int, ...]


@record(frozen=True, slots=True)
class Concat:
    """Concatenation of inputs along an axis.

    Attributes:
      sources: the positions of the inputs.
      axis: the axis, at least 0.
      is_new: whether the output has the axis in addition to those of the inputs, which may be of rank 0.
    """

    sources: tuple[int, ...]
    axis: int
    is_new: bool = False


@record(frozen=True, slots=True)
class Embed:
    """Zeros, with an input in a regular piece of them.

    Attributes:
      source: the position of the input, which may be of rank 0.
      shape: the shape of output 0.
      index: the index of the piece, as in `Pieces`.
    """

    source: int
    shape: tuple[int, ...]
    index: Index


@record(frozen=True, slots=True)
class Tile:
    """An input repeated along its axes.

    Attributes:
      source: the position of the input.
      times: the number of repetitions along each axis.
    """

    source: int
    times: tuple[int, ...]


@record(frozen=True, slots=True)
class OneHot:
    """Input 2 at the indices of input 0, and input 3 elsewhere.

    Attributes:
      axis: the new axis, at least 0.
      depth: its size.
    """

    axis: int
    depth: int


@record(frozen=True, slots=True)
class Reduce:
    """Reduction of an input over axes by a ufunc of two arguments.

    Attributes:
      source: the position of the input.
      ufunc: the ufunc, such as `np.add`.
      axes: the axes in ascending order, each at least 0.
      keep_dims: whether the axes stay, with size 1.
      divisor: a number by which the result is divided, for means.
      dtype: the dtype in which the elements are combined, if it is not the one that numpy chooses.
    """

    source: int
    ufunc: np.ufunc
    axes: tuple[int, ...]
    keep_dims: bool
    divisor: int = 1
    dtype: np.dtype | None = None


@record(frozen=True, slots=True)
class Product:
    """Product of two matrices, inputs 0 and 1.

    Attributes:
      turned: whether each of them is transposed first.
      is_batch: whether the matrices are the last two axes of the inputs, whose other axes broadcast.
      conjugated: whether the conjugate of each of them is multiplied.
    """

    turned: tuple[bool, bool]
    is_batch: bool = False
    conjugated: tuple[bool, bool] = (False, False)


@record(frozen=True, slots=True)
class Positions:
    """Positions in an array, which an input contains.

    The input has a group of numbers for each position, some of which are its coordinates.

    Attributes:
      source: the position of the input.
      axes: the axes of the array that the coordinates are of.
      shape: the shape of the array of positions.
      offsets: the offset of each coordinate in a group.
      group: the numbers of a group.
      negative: the meaning of a negative coordinate: an error, one that counts from the last element, or a position
        that is skipped.
      skips_bad: whether all positions out of range are skipped.
      totals: the sum of each coordinate and the number after it in the group; empty if those numbers have no meaning.
    """

    source: int
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    group: int
    negative: Literal["error", "from last", "skipped"] = "error"
    skips_bad: bool = False
    totals: tuple[int, ...] = ()


@record(frozen=True, slots=True)
class Take:
    """Pieces of an input at positions that are not static.

    Attributes:
      source: the position of the input.
      at: the positions of the pieces. Pieces at positions that are skipped are zeros.
      index: the index of the piece whose coordinates are 0.
      first: the axis of the output that is the first one of the positions.
      batch: the number of first axes that input, positions and output have in common.
    """

    source: int
    at: Positions
    index: Index
    first: int = 0
    batch: int = 0


@record(frozen=True, slots=True)
class Put:
    """An array, or zeros, with pieces put to positions that are not static.

    They are put one after the other.

    Attributes:
      source: the position of the input with the pieces; its first axes are those of the positions.
      at: the positions of the pieces in the output.
      index: the index of the piece whose coordinates are 0.
      shape: the shape of output 0.
      base: the position of the array; None for zeros.
      ufunc: the ufunc that combines an element with that of a piece; None if the latter replaces it.
    """

    source: int
    at: Positions
    index: Index
    shape: tuple[int, ...]
    base: int | None = None
    ufunc: np.ufunc | None = None


@record(frozen=True, slots=True)
class Extreme:
    """The first position of the greatest or least elements along an axis.

    NaN is the last one in order.

    Attributes:
      source: the position of the input.
      axis: the axis, at least 0.
      is_greatest: whether it is the greatest element.
    """

    source: int
    axis: int
    is_greatest: bool


@record(frozen=True, slots=True)
class Accumulate:
    """Running results of a ufunc along an axis.

    Attributes:
      source: the position of the input.
      ufunc: the ufunc of two arguments.
      axis: the axis, at least 0.
      is_exclusive: whether the element of the place itself is not among them.
      is_reverse: whether the last element is the first one.
      start: the result for no elements.
    """

    source: int
    ufunc: np.ufunc
    axis: int
    is_exclusive: bool
    is_reverse: bool
    start: float


@record(frozen=True, slots=True)
class Lattice:
    """Places in an array at regular distances.

    Attributes:
      first: the coordinates of the first place.
      steps: for each axis of the lattice, the distance of neighbors along each axis of the array.
    """

    first: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]


@record(frozen=True, slots=True)
class Part:
    """Elements of an input, and their places in the output.

    Attributes:
      source: the position of the input.
      shape: the shape of both lattices.
      taken: the elements.
      put: the places.
    """

    source: int
    shape: tuple[int, ...]
    taken: Lattice
    put: Lattice


@record(frozen=True, slots=True)
class Assemble:
    """Elements of inputs that are moved to static places.

    Attributes:
      shape: the shape of output 0.
      parts: the elements.
      base: the position of the array that has all other elements; None for zeros.
      fill: the position of the number that all other elements are; None for zeros.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    base: int | None = None
    fill: int | None = None


@record(frozen=True, slots=True)
class Top:
    """The greatest elements of each row in descending order, and their indices.

    Attributes:
      source: the position of the input.
      count: the number of elements.
      indices: the dtype of the indices.
    """

    source: int
    count: int
    indices: np.dtype


@record(frozen=True, slots=True)
class Window:
    """Convolution or pooling of images, or a gradient of one.

    Attributes:
      kind: the result: "forward", "by_input" and "by_filter" are those of convolutions, and the others `PoolingKind`.
      sources: the positions of the arrays: images, or their gradient, and the filter or the gradient by the result.
      axes: the windows over the spatial axes.
      images: the number of images.
      channels: the channels of the input.
      outputs: the channels of the result.
      groups: the number of groups into which both are divided.
      is_channels_first: whether the channels of images are the axis before the spatial ones, and not the last one.
    """

    kind: str
    sources: tuple[int, ...]
    axes: tuple[Axis, ...]
    images: int
    channels: int
    outputs: int
    groups: int
    is_channels_first: bool = False

    @property
    def work(self) -> int:
        """The number of multiplications or comparisons."""
        return (
            self.images * math.prod(a.count * a.size for a in self.axes) * self.channels * self.outputs // self.groups
        )


Form: TypeAlias = (
    Reshape
    | Pieces
    | Permute
    | Broadcast
    | Concat
    | Embed
    | Tile
    | OneHot
    | Reduce
    | Product
    | Take
    | Put
    | Extreme
    | Accumulate
    | Assemble
    | Top
    | Window
)
FormRule: TypeAlias = "Callable[[Operation], Form | None]"

#: Elements of the largest array made of a smaller one that is certain to be possible.
LARGEST_ARRAY: Final = 1 << 28

#: Forms whose outputs are new arrays and never share memory with an input.
COPIES: Final = (Concat, Embed, Tile, OneHot, Reduce, Product, Accumulate, Assemble, Top, Window)

#: Forms of native code alone. The kernels of numpy have the checks of the positions, and the result in one call.
NATIVE: Final = (Take, Put, Extreme, Accumulate, Assemble, Top, Window)


def form_of(op: Operation) -> Form | None:
    """Returns the form of an operation; None if its record gives none."""
    rule = op.opdef.form
    found: Form | None = None if rule is None else rule(op)
    return found


def reads(form: Form) -> tuple[int, ...]:
    """Returns the positions of the inputs whose elements a form reads."""
    match form:
        case Product():
            return (0, 1)
        case OneHot():
            return (0, 2, 3)
        case Concat(sources) | Window(_, sources):
            return sources
        case Take(source, at) | Put(source, at, base=None):
            return (source, at.source) if at.axes else (source,)
        case Put(source, at, base=int() as base):
            return (source, at.source, base) if at.axes else (source, base)
        case Assemble(_, parts, base, fill):
            return tuple(dict.fromkeys(k for k in (*(p.source for p in parts), base, fill) if k is not None))
    return (form.source,)


def index_text(index: Index) -> str:
    """Returns an index as Python writes it, such as `[0, :, 2:8]`."""
    parts = []
    for part in index:
        if not isinstance(part, slice):
            parts.append(str(part))
            continue
        ends = [part.start, part.stop] if part.step is None else [part.start, part.stop, part.step]
        parts.append(":".join("" if e is None else str(e) for e in ends))
    return f"[{', '.join(parts)}]"


def is_static(op: Operation) -> bool:
    """Whether all shapes are static, and the moved inputs are arrays of numbers."""
    data = [t for t in op.inputs if t.dtype.base not in dtypes.INDEX] or op.inputs[:1]
    return all(shapes.is_full(t.shape) for t in (*op.inputs, *op.outputs)) and not any(
        t.dtype.base in dtypes.OBJECT or t.dtype.is_ref or t.shape == () for t in data
    )


def is_numbers(t: Tensor) -> bool:
    """Whether `t` is a value of numbers, and no reference."""
    return t.dtype.base not in dtypes.OBJECT and not t.dtype.is_ref


def _axis(t: Tensor, rank: int) -> int | None:
    """Returns a static axis, at least 0; None without a valid one."""
    axis = constant_value(t)
    if axis is None or axis.ndim or not -rank <= axis < rank:
        return None
    return int(axis) % rank


# *** rules ***


def reshape(op: Operation) -> Form | None:
    """Form of `Reshape`, `ExpandDims` and `Squeeze`."""
    x, shape = op.inputs[0], op.outputs[0].static_shape
    if shape is None or not all(shapes.is_full(t.shape) for t in (*op.inputs, *op.outputs)) or not is_numbers(x):
        return None
    return Reshape(0, tuple(d for d in shape if d is not None)) if shapes.size(shape) == shapes.size(x.shape) else None


def concat(op: Operation) -> Form | None:
    """Form of `ConcatV2`."""
    if not is_static(op):
        return None
    *parts, at = op.inputs
    shape = parts[0].shape
    assert shape is not None
    k = _axis(at, len(shape))
    if k is None:
        return None
    for p in parts:
        mine = p.shape
        if mine is None or len(mine) != len(shape) or mine[:k] != shape[:k] or mine[k + 1 :] != shape[k + 1 :]:
            return None
    return Concat(tuple(range(len(parts))), k)


def pack(op: Operation) -> Form | None:
    """Form of `Pack`."""
    first, rank = op.inputs[0].shape, len(op.outputs[0].shape or ())
    at = op.attrs["axis"]
    if not shapes.is_full(first) or any(t.shape != first or not is_numbers(t) for t in op.inputs):
        return None
    return Concat(tuple(range(len(op.inputs))), at % rank, True) if -rank <= at < rank else None


def unpack(op: Operation) -> Form | None:
    """Form of `Unpack`."""
    x, at, n = op.inputs[0].shape, op.attrs["axis"], op.attrs["num"]
    if not is_static(op) or x is None or not -len(x) <= at < len(x) or x[at] != n:
        return None
    before = (slice(None),) * (at % len(x))
    return Pieces(0, tuple((*before, i) for i in range(n)))


def split(op: Operation) -> Form | None:
    """Form of `Split`."""
    if not is_static(op):
        return None
    at, x = op.inputs
    shape, n = x.shape, op.attrs["num_split"]
    assert shape is not None
    k = _axis(at, len(shape))
    if k is None:
        return None
    size = shape[k]
    assert size is not None
    if size % n:
        return None
    before, each = (slice(None),) * k, size // n
    return Pieces(1, tuple((*before, slice(i * each, (i + 1) * each)) for i in range(n)))


def split_v(op: Operation) -> Form | None:
    """Form of `SplitV`."""
    x, sizes, at = op.inputs
    shape, given = x.shape, constant_value(sizes)
    k = None if shape is None else _axis(at, len(shape))
    if not is_static(op) or shape is None or given is None or given.ndim != 1 or k is None:
        return None
    size, known = shape[k], [n for n in given.tolist() if n != -1]
    assert size is not None
    rest = size - sum(known)
    if min(known, default=0) < 0 or len(given) - len(known) > 1 or rest < 0 or (rest and len(known) == len(given)):
        return None
    ends = np.cumsum([rest if n == -1 else n for n in given.tolist()]).tolist()
    before = (slice(None),) * k
    return Pieces(0, tuple((*before, slice(a, b)) for a, b in zip([0, *ends], ends, strict=False)))


def slices(op: Operation) -> Form | None:
    """Form of `Slice`."""
    x, begin, size = op.inputs[0].shape, constant_value(op.inputs[1]), constant_value(op.inputs[2])
    if not is_static(op) or x is None or begin is None or size is None:
        return None
    if begin.shape != (len(x),) or size.shape != (len(x),):
        return None
    parts = []
    for d, first, n in zip(x, begin.tolist(), size.tolist(), strict=True):
        assert d is not None
        stop = d if n == -1 else first + n
        if not 0 <= first <= stop <= d:
            return None
        parts.append(slice(first or None, None if stop == d else stop))
    return Pieces(0, (tuple(parts),))


def is_whole(t: Tensor) -> bool:
    """Whether `t` is numbers of static shape, not too many to be made."""
    n = shapes.size(t.shape)
    return n is not None and n <= LARGEST_ARRAY and is_numbers(t)


def static_dims(t: Tensor) -> tuple[int, ...] | None:
    """The shape of an array of numbers; None if not static or without elements."""
    shape = t.shape
    if shape is None or not shapes.is_full(shape) or 0 in shape or not is_numbers(t):
        return None
    return tuple([d for d in shape if d is not None])


def part_shape(shape: Shape, index: Index) -> tuple[int, ...]:
    """Shape of the piece of an array of a static shape."""
    assert shape is not None
    left = iter(shape)
    out: list[int] = []
    for part in index:
        d = 1 if part is None else next(left)
        if not isinstance(part, int):
            out.append(1 if part is None else len(range(d or 0)[part]))
    return (*out, *(d or 0 for d in left))


def pad(op: Operation) -> Form | None:
    """Form of `Pad`."""
    x, shape, pads = op.inputs[0].shape, op.outputs[0].static_shape, constant_value(op.inputs[1])
    if (
        not shape
        or not is_static(op)
        or not is_whole(op.outputs[0])
        or x is None
        or pads is None
        or pads.shape != (len(x), 2)
    ):
        return None
    full = tuple(d for d in shape if d is not None)
    ends = zip(pads.tolist(), full, strict=True)
    parts = tuple(slice(before or None, size - after if after else None) for (before, after), size in ends)
    return Embed(0, full, parts) if (pads >= 0).all() and part_shape(full, parts) == x else None


def reverse(op: Operation) -> Form | None:
    """Form of `ReverseV2`."""
    axes, x = constant_value(op.inputs[1]), op.inputs[0].shape
    if not is_static(op) or axes is None or axes.ndim != 1 or not axes.size or x is None or 0 in x:
        return None
    turned = [a % len(x) for a in axes.tolist() if -len(x) <= a < len(x)]
    if len(turned) != axes.size or len(set(turned)) != len(turned):
        return None
    return Pieces(0, (tuple(slice(None, None, -1 if k in turned else None) for k in range(max(turned) + 1)),))


def transpose(op: Operation) -> Form | None:
    """Form of `Transpose`."""
    perm, x = constant_value(op.inputs[1]), op.inputs[0].shape
    if not is_static(op) or perm is None or x is None or sorted(perm.tolist()) != list(range(len(x))):
        return None
    return Permute(0, tuple(perm.tolist()), ContiguousResult in op.notes)


def broadcast(op: Operation) -> Form | None:
    """Form of `BroadcastTo`."""
    x, shape, wanted = op.inputs[0].shape, op.outputs[0].static_shape, constant_value(op.inputs[1])
    if wanted is None or not shape or not shapes.is_full(x) or tuple(wanted.tolist()) != shape:
        return None
    if (shapes.size(shape) or 0) > LARGEST_ARRAY:  # the kernel checks the size
        return None
    if op.inputs[0].dtype.base in dtypes.OBJECT or op.inputs[0].dtype.is_ref:
        return None
    full = tuple(d for d in shape if d is not None)
    return Reshape(0, full) if x == full else Broadcast(0, full)


def tile(op: Operation) -> Form | None:
    """Form of `Tile`."""
    x, times = op.inputs[0].shape, constant_value(op.inputs[1])
    if not is_static(op) or not is_whole(op.outputs[0]) or x is None or times is None or times.shape != (len(x),):
        return None
    return Tile(0, tuple(times.tolist())) if (times > 0).all() else None


def one_hot(op: Operation) -> Form | None:
    """Form of `OneHot`."""
    indices, depth, out = op.inputs[0].shape, constant_value(op.inputs[1]), op.outputs[0]
    if not shapes.is_full(indices) or not is_whole(out) or depth is None or depth.ndim or indices is None:
        return None
    at, rank = op.attrs["axis"], len(indices) + 1
    if any(t.shape != () for t in op.inputs[2:]) or not -rank <= at < rank or not shapes.size(out.shape):
        return None
    return OneHot(at % rank, int(depth))


def reduction(ufunc: np.ufunc, is_mean: bool = False) -> FormRule:
    """Returns the rule for reductions over the axes of input 1.

    The kernels for float16 and bfloat16 compute in float32, and means of integers in a wider dtype.
    """
    kinds = "b" if ufunc in (np.logical_and, np.logical_or) else "f" if is_mean else "fiu"
    kinds += "c" if ufunc is np.add else ""

    def rule(op: Operation) -> Form | None:
        axes, x = constant_value(op.inputs[1]), op.inputs[0].shape
        dtype = op.inputs[0].dtype.base
        if not is_static(op) or axes is None or x is None or dtype in HALF or dtype.numpy.kind not in kinds:
            return None
        found = [a % len(x) for a in np.ravel(axes).tolist() if -len(x) <= a < len(x)]
        if len(found) != axes.size or len(set(found)) != len(found) or not found:
            return None
        count = math.prod(x[a] or 0 for a in found)
        if not count and (is_mean or ufunc is not np.add):  # other results than those of the ufunc
            return None
        own = dtype.numpy if dtype.is_integer and ufunc in (np.add, np.multiply) else None
        return Reduce(0, ufunc, tuple(sorted(found)), op.attrs["keep_dims"], count if is_mean else 1, own)

    return rule


def channel_sum(axis_of: Callable[[Mapping[str, Any]], int]) -> FormRule:
    """Returns the rule for sums of floats over all axes of input 0 but one.

    Args:
      axis_of: a function of the attributes; it returns the axis that stays.
    """

    def rule(op: Operation) -> Form | None:
        x, dtype = op.inputs[0].shape, op.attrs["T"]
        if not is_static(op) or x is None or dtype in HALF or not dtype.is_floating:
            return None
        axis = axis_of(op.attrs) % len(x)
        return Reduce(0, np.add, tuple(i for i in range(len(x)) if i != axis), False)

    return rule


def matrix_product(op: Operation) -> Form | None:
    """Form of `MatMul`; the outer dimensions need not be static."""
    if op.attrs["T"] in HALF:
        return None
    a, b = (t.shape for t in op.inputs)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    turned = op.attrs["transpose_a"], op.attrs["transpose_b"]
    inner = a[0] if turned[0] else a[1]
    if inner is None or inner != (b[1] if turned[1] else b[0]):
        return None
    return Product(turned)


def batch_product(op: Operation) -> Form | None:
    """Form of `BatchMatMul` and `BatchMatMulV2`. Products of columns and rows are elementwise, by the kernel."""
    (a, _), out, dtype = [t.shape for t in op.inputs], op.outputs[0].shape, op.attrs["T"]
    if not all(shapes.is_full(t.shape) for t in (*op.inputs, *op.outputs)) or dtype in HALF:
        return None
    turned = op.attrs["adj_x"], op.attrs["adj_y"]
    if a is None or out is None or len(out) < 3 or a[-2 if turned[0] else -1] == 1:
        return None
    return Product(turned, True, turned if dtype.is_complex else (False, False))

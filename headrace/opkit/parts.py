"""Parts of arrays by numpy's index, in the terms of the array API standard.

The standard has integers, ranges and new axes, and leaves open what ranges beyond the end select; PyTorch has no steps
backwards. A `Part` has forward ranges within the array only, and reverses and reshapes what they select.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace import shapes
from headrace.errors import InvalidArgumentError


class Part(NamedTuple):
    """Part of an array.

    Attributes:
      places: integers and forward ranges within the array, one for each of its axes.
      flipped: the axes of the selected elements to be reversed.
      sizes: the shape of the selected elements.
      shape: the shape of the part, with its new axes.
    """

    places: tuple[int | slice, ...]
    flipped: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]

    def read(self, xp: Any, x: Any) -> Any:
        """Returns the part of `x`."""
        out = x[self.places]
        if self.flipped:
            out = xp.flip(out, axis=self.flipped)
        return out if self.sizes == self.shape else xp.reshape(out, self.shape)

    def write(self, xp: Any, x: Any, value: Any) -> Any:
        """Writes `value`, of the shape of the part, and returns `x`."""
        value = value if self.sizes == self.shape else xp.reshape(value, self.sizes)
        x[self.places] = xp.flip(value, axis=self.flipped) if self.flipped else value
        return x


def part_of(x: Any, index: tuple[Any, ...]) -> Part:
    """Returns the part of `x` that numpy's index selects.

    Raises:
      InvalidArgumentError: numpy would reject the index.
    """
    used = sum(i is not None and i is not ... for i in index)
    if used > x.ndim:
        raise out_of_range(x, index)
    rest = (slice(None),) * (x.ndim - used)
    at = index.index(...) if ... in index else len(index)
    left, shape = [*x.shape], []
    found: list[int | slice] = []
    flipped: list[int] = []
    sizes: list[int] = []
    for i in (*index[:at], *rest, *index[at + 1 :]):
        if i is None:
            shape.append(1)
            continue
        dim = left.pop(0)
        if isinstance(i, slice):
            first, stop, step = i.indices(dim)
            selected = range(first, stop, step)
            if step < 0:
                flipped.append(len(sizes))
                selected = selected[::-1]
            found.append(slice(selected[0], selected[-1] + 1, abs(step)) if selected else slice(0, 0))
            sizes.append(len(selected))
            shape.append(len(selected))
        elif -dim <= i < dim:
            found.append(i % dim)
        else:
            raise out_of_range(x, index)
    return Part(tuple(found), tuple(flipped), tuple(sizes), tuple(shape))


def out_of_range(x: Any, index: tuple[Any, ...]) -> InvalidArgumentError:
    """Returns the error for an index that numpy rejects."""
    used = [i for i in index if i is not None and i is not ...]
    if len(used) > x.ndim:
        if x.ndim == 0:
            return InvalidArgumentError("Attempting to slice scalar input.")
        return InvalidArgumentError(f"Index out of range using input dim {x.ndim}; input has only {x.ndim} dims")
    before = [i for i in index[: index.index(...)] if i is not None] if ... in index else used
    at = [*range(len(before)), *range(x.ndim - len(used) + len(before), x.ndim)]
    for d, i in zip(at, used):
        if isinstance(i, int) and not -x.shape[d] <= i < x.shape[d]:
            return InvalidArgumentError(f"slice index {i} of dimension {d} out of bounds: it has {x.shape[d]} elements")
    return InvalidArgumentError(f"the slice {index} does not fit an input of shape {shapes.show(x.shape)}")


def written_to(xp: Any, x: Any, index: tuple[Any, ...], value: Any) -> Any:
    """Writes `value`, broadcast, into the part `index` of `x` and returns `x`.

    Raises:
      InvalidArgumentError: numpy would reject the index or the value.
    """
    part = part_of(x, index)
    if 0 in part.shape:
        return x
    extra = max(value.ndim - len(part.shape), 0)  # numpy's assignment ignores leading dimensions of 1
    sizes = value.shape[extra:]
    try:
        if any(d != 1 for d in value.shape[:extra]) or shapes.broadcast(sizes, part.shape) != part.shape:
            raise unassignable(value, part.shape)
    except ValueError:
        raise unassignable(value, part.shape) from None
    return part.write(xp, x, xp.broadcast_to(xp.reshape(value, sizes), part.shape))


def unassignable(value: Any, shape: tuple[int, ...]) -> InvalidArgumentError:
    """Returns the error for a value that cannot be broadcast to `shape`."""
    return InvalidArgumentError(
        f"the value of shape {shapes.show(value.shape)} cannot be assigned to a slice of shape {shapes.show(shape)}"
    )

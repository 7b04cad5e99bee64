"""Helpers of this folder: the stream of an op and the shape of its result.

The session owns the stream of an op with seeds as attributes. Otherwise an input determines the stream: two seeds, or a
key and a counter as StatelessRandomGetKeyCounter computes them from two seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import Facts
from headrace.opkit import arrays
from headrace.resources.philox import Philox, Stream
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.infer import Inference
    from headrace.ir.kernel import KernelContext
    from headrace.resources.manager import ResourceManager
    from headrace.shapes import Shape

SEEDS: Final = {"seed": 0, "seed2": 0}
SEEDED: Final = Facts(effect="random", writes=True, dynamic_shape=True)

PHILOX: Final = 1
AUTO_SELECT: Final = 3

_CONTAINER: Final = "_random"  # of its own: clearing a container of variables does not rewind random streams


def rewind(resources: ResourceManager) -> None:
    """Clears the random states in `resources`.

    The next draw of each op with seeds is its first one again.
    """
    resources.clear_container(_CONTAINER)


def state_of(ctx: KernelContext, attrs: Mapping[str, Any]) -> Philox:
    """The random state that an op with seeds has in its session."""
    state: Philox = ctx.step.session.lookup_or_create(
        _CONTAINER, Philox, ctx.node, lambda: Philox(attrs["seed"], attrs["seed2"])
    )
    return state


def dims_of(shape: Any, dtype: DType) -> tuple[int, ...]:
    """Shape to draw, from a tensor, after a check that the size is possible."""
    if len(shape_of(shape)) != 1:
        raise InvalidArgumentError(
            f"shape must be a vector of {{int32,int64}}, got shape {shapes.show(shape_of(shape))}"
        )
    dims = tuple(shape.tolist())
    arrays.check_size(dims, dtype)
    return dims


def drawn_shape(c: Inference) -> Sequence[Shape]:
    """The shape rule of an op whose input 0 is the shape it fills."""
    return [arrays.shape_from(c, 0)]


def require_scalar(value: Any, name: str) -> int:
    """The integer that `value`, an input called `name`, is."""
    if shape_of(value):
        raise InvalidArgumentError(f"{name} must be 0-D, got shape {shapes.show(shape_of(value))}")
    return int(value)


def range_of(minval: Any, maxval: Any) -> tuple[int, int]:
    """The bounds of integers to draw, of which there must be one."""
    low, high = require_scalar(minval, "minval"), require_scalar(maxval, "maxval")
    if low >= high:
        raise InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")
    return low, high


def stream_of_seeds(seed: Any) -> Stream:
    """The stream of a stateless op, from its input of two seeds."""
    if shape_of(seed) != (2,):
        raise InvalidArgumentError(f"seed must have shape [2], not {shapes.show(shape_of(seed))}")
    return Stream.scrambled(*seed.tolist())


def stream_of_key(key: Any, counter: Any, alg: Any) -> Stream:
    """The stream of a stateless op, from its key, counter and algorithm."""
    require_philox(alg, "alg")
    if shape_of(key) != (1,):
        raise InvalidArgumentError(f"key must have shape [1], not {shapes.show(shape_of(key))}")
    if len(shape_of(counter)) != 1 or len(counter) < 2:
        raise InvalidArgumentError(
            f"counter must be a vector with at least 2 elements, got shape {shapes.show(shape_of(counter))}"
        )
    return Stream(int(key[0]), int(counter[0]) | int(counter[1]) << 64)


def require_philox(alg: Any, name: str) -> None:
    """Raises unless the input `name` selects Philox, TensorFlow's only algorithm on the CPU."""
    if shape_of(alg):
        raise InvalidArgumentError(f"{name} must be of shape [], not {shapes.show(shape_of(alg))}")
    if int(alg) not in (PHILOX, AUTO_SELECT):
        raise InvalidArgumentError(f"Unsupported algorithm id: {int(alg)} (on the CPU there is Philox, {PHILOX})")


def seed_shape(c: Inference, i: int) -> None:
    """Checks input `i`, two seeds, as far as its shape is known."""
    shapes.merge(c.shapes[i], (2,))


def key_shape(c: Inference, i: int) -> None:
    """Checks the inputs `i`, `i + 1` and `i + 2`, a key, a counter and an algorithm."""
    shapes.merge(c.shapes[i], (1,))
    shapes.with_rank(c.shapes[i + 1], 1)
    shapes.with_rank(c.shapes[i + 2], 0)

"""The states of a session's random ops as tensors, for checkpoints.

The next numbers of a random op depend on the position in its stream, which the session stores (`resources.philox`). A
run that continues exactly where another one ended must begin with the same states: `_RandomStates` returns all of them,
and `_SetRandomStates` sets them. A stream is identified by its container, which begins with an underscore, and the name
of its op: "_random/dropout/RandomUniform".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op
from headrace.resources.philox import Philox
from headrace.resources.values import shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_WORD: Final = 1 << 64
_ALL: Final = Facts(effect="python", writes=True, dynamic_shape=True)  # keeps its place among others of its kind


def _get(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Any]:
    session = ctx.step.session

    def kernel() -> Any:
        found = sorted(session.of_kind(Philox).items())
        names = np.empty(len(found), object)
        names[:] = [f"{container}/{name}".encode() for (container, name), _ in found]
        rows = [(key, counter % _WORD, counter // _WORD) for key, counter in (s.state for _, s in found)]
        return names, np.array(rows, np.uint64).reshape(-1, 3)

    return kernel


def _set(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], None]:
    session = ctx.step.session

    def kernel(names: Any, states: Any) -> None:
        if len(shape_of(names)) != 1 or shape_of(states) != (len(names), 3):
            raise InvalidArgumentError(
                f"names must be a vector of n names and states of shape [n,3], got {shapes.show(shape_of(names))} and "
                f"{shapes.show(shape_of(states))}"
            )
        given = {_parsed(name): row for name, row in zip(names.tolist(), states.tolist(), strict=True)}
        for name, stream in session.of_kind(Philox).items():
            if name not in given:
                stream.rewind()  # it had drawn nothing then
        for (container, op_name), (key, low, high) in given.items():
            made = session.lookup_or_create(container, Philox, op_name, lambda: Philox(1, 1))
            made.state = key, low + high * _WORD

    return kernel


def _parsed(name: bytes) -> tuple[str, str]:
    container, _, op_name = name.decode(errors="replace").partition("/")
    if not container.startswith("_") or not op_name:
        raise InvalidArgumentError(f"{name!r} is no name of a random op's state: it should be b'_random/NAME'")
    return container, op_name


def _set_shape(c: Inference) -> list[Shape]:
    shapes.with_rank(c.shapes[0], 1)
    shapes.merge(c.shapes[1], (None, 3))
    return []


op(
    "_RandomStates",
    "",
    "names: string, states: uint64",
    shape=lambda c: [(None,), (None, 3)],
    stateful=_get,
    grad=NOT_DIFFERENTIABLE,
    facts=_ALL,
    doc="The states of all random ops of the session that have drawn: their names; of each a key and a counter.",
)
op(
    "_SetRandomStates",
    "names: string, states: uint64",
    shape=_set_shape,
    stateful=_set,
    grad=NOT_DIFFERENTIABLE,
    facts=_ALL,
    doc="Sets the states of random ops to what `_RandomStates` gave; those that it does not name begin anew.",
)

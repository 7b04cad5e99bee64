"""Staging areas, in which a step stores values for another.

Ops that may wait are asynchronous.

Source: TensorFlow's Stage, Unstage, StagePeek, ...; MapStage, MapUnstage, ..., and OrderedMapStage, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, int_attr, list_attr, op
from headrace.opkit.shape_rules import nothing, scalars
from headrace.resources.account import Account
from headrace.resources.staging import MapStagingArea, StagingArea
from headrace.resources.values import shape_of
from headrace.resources.waiting import Done
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_EFFECT = Facts(effect="resource", writes=True, waits=True)
_READS = Facts(effect="resource", waits=True)

Attrs = Mapping[str, Any]
A = TypeVar("A", StagingArea, MapStagingArea)


def _handed(done: Done, n: int, pack: Callable[[Any], tuple[Any, ...]] = tuple) -> Done:
    """`done` for an op with `n` outputs, which are `pack(result)`; errors pass."""

    def finish(result: Any) -> None:
        if isinstance(result, Exception):
            done(result)
            return
        outputs = pack(result)
        done(outputs[0] if n == 1 else outputs)

    return finish


# *** in turn ***


def _counted(ctx: KernelContext, area: A) -> A:
    """`area`, which counts what it holds where memory is limited."""
    if ctx.step.memory is not None:
        area.account = Account(ctx.step.memory.memory, area.describe())
    return area


def _area(ctx: KernelContext, attrs: Attrs) -> StagingArea:
    name = attrs["shared_name"] or ctx.node
    area: StagingArea = ctx.step.session.lookup_or_create(
        attrs["container"],
        StagingArea,
        name,
        lambda: _counted(ctx, StagingArea(name, attrs["capacity"], attrs["memory_limit"])),
    )
    return area


def _stage(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
    return lambda *args: _area(ctx, attrs).put(args[:-1], args[-1])


def _unstage(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
    types = attrs["dtypes"]
    return lambda done: _area(ctx, attrs).get(types, _handed(done, len(types)))


def _stage_peek(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
    types = attrs["dtypes"]

    def kernel(index: Any, done: Done) -> Any:
        if shape_of(index):
            raise InvalidArgumentError(f"index must be scalar, got shape {shapes.show(shape_of(index))}")
        return _area(ctx, attrs).peek(int(index), types, _handed(done, len(types)))

    return kernel


# *** by key ***


def _map_area(ctx: KernelContext, attrs: Attrs, ordered: bool) -> MapStagingArea:
    # one name may be used for both kinds
    name, kind = attrs["shared_name"] or ctx.node, _OrderedArea if ordered else MapStagingArea
    area: MapStagingArea = ctx.step.session.lookup_or_create(
        attrs["container"],
        kind,
        name,
        lambda: _counted(ctx, kind(name, len(attrs["dtypes"]), ordered, attrs["capacity"], attrs["memory_limit"])),
    )
    return area


class _OrderedArea(MapStagingArea):
    pass


def _key_of(key: Any) -> int:
    if shape_of(key):
        raise InvalidArgumentError(f"key must be an int64 scalar: got shape {shapes.show(shape_of(key))}")
    return int(key)


def _indices_of(indices: Any) -> list[int]:
    return [int(i) for i in np.ravel(indices)]


def _map_stage(ordered: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        def kernel(key: Any, indices: Any, *args: Any) -> Any:
            *tensors, done = args
            return _map_area(ctx, attrs, ordered).put(_key_of(key), _indices_of(indices), tensors, done)

        return kernel

    return factory


def _map_unstage(ordered: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        types = attrs["dtypes"]

        def kernel(key: Any, indices: Any, done: Done) -> Any:
            finish = _handed(done, len(types), lambda result: tuple(result[1]))
            return _map_area(ctx, attrs, ordered).get(_key_of(key), _indices_of(indices), types, finish)

        return kernel

    return factory


def _map_unstage_no_key(ordered: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        types = attrs["dtypes"]

        def kernel(indices: Any, done: Done) -> Any:
            finish = _handed(done, len(types) + 1, lambda result: (np.int64(result[0]), *result[1]))
            return _map_area(ctx, attrs, ordered).get(None, _indices_of(indices), types, finish)

        return kernel

    return factory


def _map_peek(ordered: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        types = attrs["dtypes"]

        def kernel(key: Any, indices: Any, done: Done) -> Any:
            finish = _handed(done, len(types))
            return _map_area(ctx, attrs, ordered).peek(_key_of(key), _indices_of(indices), types, finish)

        return kernel

    return factory


# *** records ***

_PLACE = {
    "capacity": int_attr(0, minimum=0),
    "memory_limit": int_attr(0, minimum=0),
    "container": "",
    "shared_name": "",
}
_SOME = {**_PLACE, "dtypes": list_attr("type", minimum=1)}
_ANY = {**_PLACE, "dtypes": list_attr("type")}


def _unknown(c: Inference) -> Sequence[Shape]:
    return [None] * len(c.op.outputs)


def _key_then_unknown(c: Inference) -> Sequence[Shape]:
    return [(), *[None] * (len(c.op.outputs) - 1)]


_DIFFERS = (
    "The wait ends when the run is cancelled or exceeds its deadline. Mismatched dtypes and indices out of range are "
    "refused, and the stored values are kept."
)


def _waits(type: str, ins: str, outs: str, attrs: Attrs, shape: Any, kernel: Any, facts: Facts, doc: str) -> None:
    op(
        type,
        ins,
        outs,
        attrs,
        shape=shape,
        async_=kernel,
        grad=NOT_DIFFERENTIABLE,
        facts=facts,
        doc=doc,
        differs=_DIFFERS,
        depth=2,
    )


def _at_once(type: str, area: Callable[..., Any], doc: str, size: Callable[[Any], int] | None = None) -> None:
    """An op without inputs: `size` gives its output; None: it clears the area."""

    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[[], Any]:
        if size is None:
            return lambda: area(ctx, attrs).clear()
        return lambda: np.int32(size(area(ctx, attrs)))

    op(
        type,
        "",
        "" if size is None else "size: int32",
        _ANY,
        shape=nothing if size is None else scalars,
        stateful=factory,
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT if size is None else _READS,
        doc=doc,
        depth=2,
    )


_waits(
    "Stage", "values: dtypes", "", _SOME, nothing, _stage, _EFFECT, "Puts an entry in; waits while the area is full."
)
_waits("Unstage", "", "values: dtypes", _SOME, _unknown, _unstage, _EFFECT, "Takes the oldest entry; waits for one.")
_waits(
    "StagePeek",
    "index: int32",
    "values: dtypes",
    _SOME,
    _unknown,
    _stage_peek,
    _READS,
    "Reads the entry at `index`, counted from the oldest; waits until there are so many.",
)
_at_once("StageSize", _area, "How many entries there are.", StagingArea.size)
_at_once("StageClear", _area, "Drops all entries.")
for _prefix, _ordered in (("Map", False), ("OrderedMap", True)):
    _waits(
        f"{_prefix}Stage",
        "key: int64, indices: int32, values: fake_dtypes",
        "",
        {**_ANY, "fake_dtypes": list_attr("type", minimum=1)},
        nothing,
        _map_stage(_ordered),
        _EFFECT,
        "Puts the tensors `indices` of the entry of `key` in; waits while the area is full.",
    )
    _waits(
        f"{_prefix}Unstage",
        "key: int64, indices: int32",
        "values: dtypes",
        _SOME,
        _unknown,
        _map_unstage(_ordered),
        _EFFECT,
        "Takes the tensors `indices` of the entry of `key`; waits until it is whole.",
    )
    _waits(
        f"{_prefix}UnstageNoKey",
        "indices: int32",
        "key: int64, values: dtypes",
        _SOME,
        _key_then_unknown,
        _map_unstage_no_key(_ordered),
        _EFFECT,
        f"Takes the tensors `indices` of {'the entry of the least key' if _ordered else 'an entry'}; waits for one.",
    )
    _waits(
        f"{_prefix}Peek",
        "key: int64, indices: int32",
        "values: dtypes",
        _SOME,
        _unknown,
        _map_peek(_ordered),
        _READS,
        "Reads the tensors `indices` of the entry of `key`; waits until it is whole.",
    )

    def _of_kind(ctx: KernelContext, attrs: Attrs, ordered: bool = _ordered) -> MapStagingArea:
        return _map_area(ctx, attrs, ordered)

    _at_once(f"{_prefix}Size", _of_kind, "How many whole entries there are.", MapStagingArea.size)
    _at_once(f"{_prefix}IncompleteSize", _of_kind, "How many entries miss tensors.", MapStagingArea.incomplete_size)
    _at_once(f"{_prefix}Clear", _of_kind, "Drops all entries.")

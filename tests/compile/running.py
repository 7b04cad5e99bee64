"""Runs steps in both engines, compares the results, and returns parts of compiled steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.grad.differentiate import differentiate
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.text import from_text
from headrace.prune import prune
from headrace.schedule import schedule
from headrace.schedule.build import build
from headrace.schedule.lists import Lists
from headrace.schedule.program import Program
from headrace.schedule.regions import Item, Region, Regions


def b() -> Any:
    """The builder of the graph that has been entered."""
    return scopes.builder()


def same(got: Any, want: Any, what: object = "") -> None:
    """Raises unless two results have the same type, shape and bits.

    One NaN is as good as another.

    With the flag NATIVE on, numbers with a fraction may differ by rounding (`near`): machine code has approximations of
    its own, and sums products in another order.
    """
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for i, (x, y) in enumerate(zip(got, want, strict=True)):
            same(x, y, f"{what} result {i}")
        return
    assert type(got) is type(want), f"{what}: {type(got)} is not {type(want)}"
    if not isinstance(want, (np.ndarray, np.generic)) or want.dtype == object:
        assert np.array_equal(got, want), f"{what}: {got!r} is not {want!r}"
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{what}: {got!r} is not {want!r}"
    x, y = np.atleast_1d(got), np.atleast_1d(want)
    nan = x != x
    assert np.array_equal(nan, y != y), f"{what}: {got!r} is not {want!r}"
    if flags.NATIVE.value == "on" and x.dtype.kind in "fc":
        assert near(x[~nan], y[~nan]), f"{what}: {got!r} is not {want!r}"
        return
    assert x[~nan].tobytes() == y[~nan].tobytes(), f"{what}: {got!r} is not {want!r}"


def near(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether numbers differ by rounding at most, relative to their scale.

    The scale is the greatest finite number, because a sum of numbers of that size may cancel.
    """
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite]):
        return False
    if not finite.any():
        return True
    x, y = (v[finite].astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (got, want))
    epsilon = float(np.finfo(got.dtype).eps)
    tolerance = 1e-12 if epsilon < 1e-15 else 1e-5 if epsilon < 1e-6 else 8 * epsilon
    return bool(np.all(np.abs(x - y) <= tolerance * np.max(np.abs(y))))


def run(
    fetches: Any, feeds: Mapping[Any, Any] | None = None, engine: str = "compiled", optimize: str = "off", **kwargs: Any
) -> Any:
    """The values of `fetches` in a new session."""
    graph = scopes.current_graph() or _graph_of(fetches)
    with flags.override(OPTIMIZE=optimize), hr.Session(graph=graph, engine=engine) as session:
        return session.run(fetches, feeds, **kwargs)


def both(fetches: Any, feeds: Mapping[Any, Any] | None = None, optimize: str = "off") -> Any:
    """The values of `fetches`, on which both engines agree."""
    got = run(fetches, feeds, "compiled", optimize)
    same(got, run(fetches, feeds, "interpret"))
    return got


def failure(fetches: Any, feeds: Mapping[Any, Any] | None = None, engine: str = "compiled", **kwargs: Any) -> Exception:
    """The error that running `fetches` raises."""
    try:
        out = run(fetches, feeds, engine, **kwargs)
    except Exception as e:
        return e
    raise AssertionError(f"it gives {out!r}")


def source(fetches: Any, feeds: Sequence[Any] = (), optimize: str = "off") -> str:
    """The Python function that a step becomes.

    It lacks the checks that the tests have on elsewhere.
    """
    with flags.override(OPTIMIZE=optimize, VERIFY=0):
        session = hr.Session(graph=scopes.current_graph() or _graph_of(fetches), engine="compiled")
        return session.explain(fetches, feeds).source


def regions(fetches: Sequence[Tensor], feeds: Sequence[Tensor] = (), targets: Sequence[Operation] = ()) -> Regions:
    """The regions of a step."""
    pruned = prune(feeds, fetches, targets)
    kept = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
    return Regions(pruned.graph, kept, differentiate)


def program(fetches: Sequence[Tensor], feeds: Sequence[Tensor] = ()) -> Program:
    """The program of a step, before any pass."""
    pruned = prune(feeds, fetches, ())
    return build(Regions(pruned.graph, (), differentiate), pruned.args, pruned.retvals)


def scheduled(fetches: Sequence[Tensor], feeds: Sequence[Tensor] = ()) -> Program:
    """The program of a step after all passes."""
    pruned = prune(feeds, fetches, ())
    return schedule(Regions(pruned.graph, (), differentiate), pruned.args, pruned.retvals)


def blocks_of_text(text: str, targets: Sequence[str] = ()) -> Regions:
    """The regions of a step that is written as text."""
    graph: Graph = from_text(text)
    return Regions(graph, [graph.get_operation_by_name(n) for n in targets], differentiate)


def names(region: Region) -> list[str]:
    """The operations of a region, in order, its ends not counted."""
    return [i.op.name for i in region.items if i.op.type not in ("_Arg", "_Retval")]


def item(region: Region, kind: str) -> Item:
    """The one item of a kind in a region."""
    (found,) = [i for i in region.items if i.kind == kind]
    return found


def kinds(made: Regions) -> dict[str, str]:
    """Kinds of tensor lists, by the name of the operation that gives them.

    The operations are in regions at any depth. The kind is the representation of the operation's first list.
    """
    lists = Lists(made)
    out: dict[str, str] = {}
    todo = [made.root, *made.functions.values()]
    while todo:
        for i in todo.pop().items:
            for t in (i.op.outputs[k] for k in i.live):
                if t.dtype is hr.variant:
                    out.setdefault(i.op.name, lists.kind(t))
            todo += i.regions
    return out


def _graph_of(fetches: Any) -> Any:
    while isinstance(fetches, (list, tuple)):
        fetches = fetches[0]
    return fetches.graph

"""Ops made for one test: their kernel is a Python function of the test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import headrace as hr
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, list_attr, op, op_registry, string_attr

functions: dict[str, Callable[..., Any]] = {}
_names = itertools.count()

_IN, _OUT = "args: Tin", "results: Tout"
_ATTRS = {"Tin": list_attr("type"), "Tout": list_attr("type"), "key": string_attr(), "shapes": string_attr("")}


def _shape(c: Any) -> list[Any]:
    known = {"": None, "scalar": ()}.get(c.attrs["shapes"])
    return [known] * len(c.attrs["Tout"])


@contextlib.contextmanager
def custom_ops() -> Iterator[None]:
    """Registers `TestPure`, `TestHeavy`, `TestStateful` and `TestAsync` for the length of a `with` block."""
    forms: dict[str, dict[str, Any]] = {
        "TestPure": {"kernel": lambda attrs: functions[attrs["key"]]},
        "TestHeavy": {
            "kernel": lambda attrs: functions[attrs["key"]],
            "facts": Facts(cost=lambda ins, outs: 1e12),
        },
        "TestStateful": {"stateful": lambda ctx, attrs: lambda *args: functions[attrs["key"]](ctx, *args)},
        "TestAsync": {"async_": lambda ctx, attrs: lambda *args: functions[attrs["key"]](ctx, *args)},
    }
    for name, form in forms.items():
        op(name, _IN, _OUT, _ATTRS, shape=_shape, grad=NOT_DIFFERENTIABLE, doc="Made for a test.", **form)
    try:
        yield
    finally:
        functions.clear()
        for name in forms:
            del op_registry._items[name], op_registry._where[name]


def call(
    b: Builder,
    form: str,
    fn: Callable[..., Any],
    args: Sequence[Tensor] = (),
    out: Sequence[str] = ("int32",),
    name: str | None = None,
    scalar: bool = False,
) -> Any:
    """An op that calls `fn`: the tensor it makes (several: a tuple; none: the operation).

    Args:
      b: the builder of the op.
      form: "Pure", "Heavy": `fn(*arrays)`. "Stateful": `fn(ctx, *arrays)`. "Async": `fn(ctx, *arrays, done)`.
      fn: the kernel.
      args: the inputs of the op.
      out: the dtypes of its outputs.
      name: the name of the op; None: one that the builder chooses.
      scalar: whether its outputs are known to be scalars.
    """
    key = f"fn{next(_names)}"
    functions[key] = fn
    attrs = {"Tout": tuple(out), "key": key, "shapes": "scalar" if scalar else ""}
    return b.make("Test" + form, [list(args)], attrs, name)


def builder() -> Builder:
    """Builder of a graph in which only edges order operations.

    In a `hr.Graph` the order of creation orders them too.
    """
    return Builder(Graph())


def session(b: Builder, **kwargs: Any) -> hr.Session:
    return hr.Session(graph=b.graph, **kwargs)


def names(ops: Sequence[Operation]) -> list[str]:
    return [o.name for o in ops]

"""Error texts of the stages that a step goes through before it runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, recursion
from headrace.errors import GraphError, InvalidArgumentError, ResourceExhaustedError, SignatureError
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph
from headrace.ir.kernel import override
from headrace.ir.text import from_text
from headrace.lower import lower
from headrace.optimize.pipeline import options_from
from headrace.prune import prune
from headrace.recover import recover
from tests.errors.table import check
from tests.errors.test_files import deep
from tests.recover.test_recover import CHOOSE

ops = hr.raw_ops
TASK = "/job:localhost/replica:0/task:0/device:"

# Two types of devices, each of which can do one thing.
for _op, _device in (("Neg", "ONLY_NEG"), ("Sin", "ONLY_SIN")):

    @override(_op, _device)
    def _kernel(xp: Any, attrs: Any) -> Callable[..., Any]:
        return lambda *x: x[0]


def shape(value: Any) -> Any:
    with hr.Graph():
        return hr.placeholder(hr.float32, value)


NO_SHAPE = r"give a tuple of sizes, None for one that is not known, as in \(None, 3\)"


@pytest.mark.parametrize("value", ["ab", (1, "x"), 2.5, [[1]]])
def test_what_is_no_shape(value: Any) -> None:
    check(lambda: shape(value), SignatureError, rf"^.*{str(value)[1:-1]}.* is no shape: {NO_SHAPE}")


# *** compile ***


def loop_of_two_predicates(g: hr.Graph) -> Any:
    for name in ("c", "b"):
        f = g.functions[name] = FuncGraph(name, g, captures_from_outer=False)
        i = f.add_param(hr.int32, (), "i")
        less = Builder(f).Less(i, 3)
        f.results = [less, less] if name == "c" else [Builder(f).AddV2(i, 1)]
    return ops.StatelessWhile(input=[hr.constant(1)], cond=Func("c"), body=Func("b"), T=(hr.int32,))


def test_a_loop_of_two_predicates() -> None:
    with hr.Graph() as g:
        y = loop_of_two_predicates(g)
    says = "single scalar return value from WhileOp cond, got 2 tensors: 'c', the condition of 'StatelessWhile'"
    with flags.override(VERIFY=0, OPTIMIZE="off"), hr.Session(graph=g, engine="compiled") as session:
        check(lambda: session.run(y), InvalidArgumentError, says)


def test_lists_of_lists_that_keep_too_much() -> None:
    """The values that the inner loop keeps are within the limit, each time.

    The values that the outer loop keeps of them are not.
    """
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (1000,), name="x")

        def thrice(step: Callable[[Any], Any], first: Any) -> Any:
            return hr.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, step(y)), (0, first))[1]

        (dx,) = hr.gradients(thrice(lambda y: thrice(lambda z: hr.sin(z) * x, y), x), [x])
    says = (
        r"the gradient of a loop keeps more than 30,000 bytes of .*hr\.recompute\('sqrt'\).*HEADRACE_ACCUMULATOR_LIMIT"
    )
    for engine in ("interpret", "compiled"):
        with flags.override(ACCUMULATOR_LIMIT=30_000, OPTIMIZE="off"), hr.Session(graph=g, engine=engine) as session:
            check(lambda: session.run(dx, {x: np.zeros(1000)}), ResourceExhaustedError, says)


# *** structures that are nested too deeply ***


def within(frames: int, how: Callable[[], Any]) -> Any:
    """`how()` with no more than so many frames of Python to go."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + frames)
    try:
        return how()
    finally:
        sys.setrecursionlimit(before)


def conditionals(n: int) -> str:
    """Conditionals inside conditionals, as primitives."""
    lines = ["x0 = Placeholder[dtype=float32, shape=[]]"]
    for i in range(n):
        lines += [
            f"p{i} = Placeholder[dtype=bool, shape=[]]",
            f"s{i} = Switch(x{i}, p{i})",
            f"x{i + 1} = Identity(s{i}:1)",
        ]
    lines += [f"m{i} = Merge(s{i}, {f'x{n}' if i == n - 1 else f'm{i + 1}'})" for i in reversed(range(n))]
    return "\n".join(lines)


def test_what_is_nested_too_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion, "FRAMES", 0)  # no room is made
    g, text = deep(60), from_text(conditionals(60))
    step = prune([], [g.get_tensor_by_name("c:0")], []).graph
    lowered = "^conditionals, loops and gradients are nested too deeply to be lowered$"
    check(lambda: within(120, lambda: g.as_graph_def("primitive")), GraphError, lowered)
    check(lambda: within(120, lambda: lower(step)), GraphError, lowered)
    recovered = "^conditionals and loops are nested too deeply to be recovered$"
    check(lambda: within(60, lambda: recover(text)), GraphError, recovered)


# *** place ***


def test_no_device_for_all_that_stands_together() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, (), name="x")
        a = hr.negative(x, name="a")
        with hr.colocate_with(a):
            b = hr.sin(a, name="b")
    cluster = hr.Cluster(tuple(hr.DeviceModel(TASK + f"{type}:0") for type in ("ONLY_NEG", "ONLY_SIN")))
    says = (
        "Cannot assign a device for operation [ab]: 2 operations must be on one device, "
        "and no device meets all requirements: "
        r"no device has a kernel for each of them\.\n"
        r".*'b' \(Sin, made at .*test_stages\.py:\d+ .*requests no device; it can run on \S*ONLY_SIN:0(\n|$)"
    )
    check(lambda: hr.simulate(b, cluster, [x]), InvalidArgumentError, says)


# *** optimize ***


def test_a_pass_that_there_is_not_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the flag finds it when headrace is imported."""
    monkeypatch.setattr(flags.OPTIMIZE, "value", "-fols")
    says = (
        "^the environment variable HEADRACE_OPTIMIZE is not valid: OPTIMIZE='-fols' .*no pass 'fols'; the passes are "
    )
    check(lambda: flags.OPTIMIZE.also_check(options_from), ValueError, says)


# *** recover ***


def test_a_reference_that_is_no_variable() -> None:
    text = f'{CHOOSE} v = TemporaryVariable[shape=[], dtype=float32, var_name="t"]\n a = RefSwitch(v, p)\n'
    text += "i = Identity(a:1)\n m = Merge(i, c/Neg/Switch)"
    says = (
        r"'v' \(TemporaryVariable\) .*expected every reference in a loop or branch to be that of a variable.*use a res"
    )
    check(lambda: recover(from_text(text)), InvalidArgumentError, says)

"""Error texts of common mistakes in the construction of graphs.

An error has TensorFlow's class, the user's name and line, and the fix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import GraphError, SignatureError
from headrace.ir.graph import Tensor

HERE = re.escape(__file__) + r":\d+ in "


def x() -> Tensor:
    out: Tensor = hr.placeholder(hr.float32, (3,), name="x")
    return out


def set_element() -> None:
    x()[0] = 1.0  # type: ignore[index]


def a_loop(body: Callable[..., Any], *first: Any) -> Any:
    return hr.while_loop(lambda i, *rest: i < 3, body, [0, *first])


@pytest.mark.parametrize(
    ("do", "error", "says"),
    [
        (lambda: int(x()), TypeError, rf"int\(\) of the symbolic tensor 'x:0' \(made at {HERE}x\).*hr\.cast"),
        (lambda: float(x()), TypeError, rf"float\(\) of the symbolic tensor 'x:0' \(made at {HERE}x\).*hr\.cast"),
        (lambda: range(x()), TypeError, rf"in range\(\)\) of .* 'x:0' \(made at {HERE}x\).*hr\.while_loop"),
        (lambda: [1, 2][x()], TypeError, rf"an index .* 'x:0' \(made at {HERE}x\).*hr\.gather"),
        (set_element, TypeError, rf"elements of .* 'x:0' \(made at {HERE}x\).*tensors do not change.*TensorArray"),
        (lambda: x().numpy(), AttributeError, rf"no attribute 'numpy': .*'x:0' \(made at {HERE}x\).*session\.run"),
        (lambda: x().unsqueeze(0), AttributeError, r"no attribute 'unsqueeze'.*use hr\.expand_dims"),
        (lambda: x().foo, AttributeError, r"^'Tensor' object has no attribute 'foo'$"),
        (lambda: hr.constant([[1, 2], [3]]), ValueError, r"\[\[1, 2\], \[3\]\] cannot be a tensor: its rows differ"),
        (lambda: hr.constant([[1, 2], [3]]), ValueError, "rows of equal length"),
        (lambda: x() + None, TypeError, r"^None \(NoneType\) cannot be a tensor"),
        (lambda: hr.constant({1}), TypeError, r"\{1\} \(set\) cannot be a tensor: give a number"),
        (lambda: hr.constant(300, dtype=hr.uint8), ValueError, "300 does not fit uint8, which goes from 0 to 255"),
        (lambda: hr.constant([-1], dtype=hr.uint8), ValueError, r"\[-1\] does not fit uint8"),
        (lambda: hr.constant("a", dtype=hr.float32), TypeError, "expected float32, got 'a', which is text"),
        (lambda: hr.placeholder(hr.float32, "abc"), TypeError, r"'abc' is no shape: give a tuple of sizes"),
        (lambda: hr.stack([]), ValueError, "'values' of stack must not be empty"),
        (
            lambda: hr.sin(hr.constant("a")),
            TypeError,
            rf"parameter 'x' of 'Sin' Op has DataType string not in list of allowed.*'Const:0' \(made at {HERE}",
        ),
        (lambda: hr.reshape(x(), [1.5]), TypeError, "parameter 'shape' of 'Reshape' Op has DataType float32"),
        (lambda: hr.raw_ops.AddN(inputs=[]), ValueError, "needs at least 1 tensor as argument 'inputs', got 0"),
        (lambda: hr.device(3).__enter__(), TypeError, "device takes a name .*, got 3"),
        (lambda: hr.control_dependencies(3).__enter__(), TypeError, "takes a list of .*, got 3; put it in a list"),
        (lambda: hr.control_dependencies(x()).__enter__(), TypeError, "takes a list of .*'x:0'.*put it in a list"),
        (
            lambda: hr.map_fn(lambda v: v, hr.reduce_sum(x())),
            ValueError,
            rf"the scalar <Tensor 'Sum:0'.*made at {HERE}",
        ),
        (
            lambda: hr.cond(x(), lambda: 1, lambda: 2),
            SignatureError,
            r"hr\.not_equal\(x, 0\)\) or cast it to bool|hr.red",
        ),
        (
            lambda: a_loop(lambda i, v: (i + 1, [0.0, 0.0]), hr.constant([1.0, 2.0])),
            ValueError,
            "loop variable 1 is the tensor 'Const:0' when it enters .* returned a list of 2",
        ),
        (
            lambda: a_loop(lambda i, v: (i + 1, hr.stack(v)), [1.0, 2.0]),
            ValueError,
            r"loop variable 1 is a list of 2 .*\(a list of numbers is as many variables; .*hr\.constant",
        ),
        (
            lambda: a_loop(lambda i, total: (i + 1, total + 0.5), 1),
            TypeError,
            r"argument 'x' \(loop variable 'total'\): expected int32, got 0\.5.*let the loop variable start with",
        ),
        (
            lambda: hr.gradients(hr.prevent_gradient(v := x(), "no"), v),
            LookupError,
            rf"explicitly disabled\. Reason: 'no' \(at 'PreventGradient' .*made at {HERE}",
        ),
    ],
)
def test_what_is_said(do: Callable[[], Any], error: type[Exception], says: str) -> None:
    with hr.Graph(), pytest.raises(error) as caught:
        do()
    assert re.search(says, str(caught.value), flags=re.S), caught.value


def test_a_comparison_with_a_number_is_no_question_of_identity() -> None:
    with hr.Graph():
        for compare in (lambda: x() == 0, lambda: x() != np.float32(1), lambda: x() == np.zeros(3)):
            with pytest.raises(TypeError, match=r"== or != with a number of the symbolic tensor .* use hr\.equal"):
                compare()
        a, b = x(), x()
        assert (a == b) is False
        assert {a: 1, b: 2}[a] == 1
        assert a in [b, a]
        assert (a == "a") is False


@pytest.mark.parametrize(
    ("do", "note"),
    [
        (lambda fn: hr.cond(hr.placeholder(hr.bool, ()), fn, lambda: 1.0), "in the true branch of 'cond' ({})"),
        (lambda fn: hr.while_loop(lambda i: i < 3, lambda i: fn(), [0]), "in the body of loop 'while' ("),
        (lambda fn: hr.while_loop(lambda i: fn(), lambda i: i + 1, [0]), "in the condition of loop 'while' ("),
    ],
)
def test_what_a_users_function_raises_says_what_called_it(do: Callable[[Any], Any], note: str) -> None:
    class Mine(Exception):
        pass

    def fails() -> Any:
        raise Mine("x")

    with hr.Graph(), pytest.raises(Mine) as caught:
        do(fails)
    (found,) = caught.value.__notes__
    assert found.startswith(note.format(f"{__file__}:{fails.__code__.co_firstlineno} in fails"))


def test_a_function_that_cannot_be_called_so_is_told_the_arguments() -> None:
    with hr.Graph():
        with pytest.raises(TypeError, match="missing 1 required positional argument") as caught:
            hr.while_loop(lambda i, total: i < 3, lambda i, total, more: (i, total), [0, 0])
        assert caught.value.__notes__[-1].endswith("which is called with 2 arguments: i, total")
        with pytest.raises(TypeError) as caught:
            hr.cond(hr.constant(True), lambda v: v, lambda: 1.0)
        assert caught.value.__notes__[-1].endswith("which is called with 0 arguments")
        body = lambda i: int("a" + None)  # a TypeError of its own has nothing to do with how it was called
        with pytest.raises(TypeError) as caught:
            hr.while_loop(lambda i: i < 3, body, [0])
        assert "which is called with" not in caught.value.__notes__[-1]


def test_a_tensor_of_the_inside_is_not_fetched() -> None:
    kept = []

    def body(i: Any) -> Any:
        kept.append(i * 2)
        return i + 1

    with hr.Graph() as g:
        hr.while_loop(lambda i: i < 3, body, [0])
        with hr.Session(graph=g) as s, pytest.raises(ValueError, match="belongs to the body of loop 'while'") as caught:
            s.run(kept[0])
        assert "return it from there" in str(caught.value)
    with hr.Graph(), pytest.raises(GraphError, match="than the one that is to use it"):
        hr.square(kept[0])

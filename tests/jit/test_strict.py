"""`hr.jit(f, strict=True)` and the flag `STRICT_TYPES` check annotations at every call."""

from typing import Annotated, Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import ShapeError, SignatureError


def pooled(x: Annotated[hr.Tensor, "n d", hr.float32], steps: int = 1) -> Annotated[hr.Tensor, "d"]:
    total = x.sum(0)
    while steps > 1:
        total, steps = total * 2.0, steps - 1
    return total if x.shape[1] != 5 else x


def test_each_call_is_checked() -> None:
    f = hr.jit(pooled, strict=True)
    assert np.allclose(f(hr.ones((3, 2)), 3), [12.0, 12.0])
    assert np.allclose(f(np.ones((4, 2), np.float32)), [4.0, 4.0])
    with pytest.raises(ShapeError, match=r"^pooled\(\): argument 'x' has shape \[3\], expected \[n,d\]$"):
        f(hr.ones((3,)))
    with pytest.raises(SignatureError, match=r"argument 'x' is of dtype int32, expected float32"):
        f(hr.ones((3, 2), hr.int32))
    with pytest.raises(SignatureError, match=r"argument 'steps' is 1.5 \(float\), expected int"):
        f(hr.ones((3, 2)), 1.5)
    with pytest.raises(ShapeError, match=r"the result has shape \[3,5\], expected \[d\]"):
        f(hr.ones((3, 5)))


def test_calls_in_a_graph_are_checked() -> None:
    f = hr.jit(pooled, strict=True)
    with hr.Graph():
        assert f(hr.placeholder(hr.float32, (None, 2))).shape == (2,)
        with pytest.raises(ShapeError, match="argument 'x' has shape"):
            f(hr.placeholder(hr.float32, (2,)))


def test_the_flag_is_the_default() -> None:
    free, wrong = hr.jit(pooled), hr.ones((3,), hr.int32)
    with flags.override(STRICT_TYPES=1):
        strict, lax = hr.jit(pooled), hr.jit(pooled, strict=False)
        with pytest.raises(SignatureError, match="expected float32"):
            strict(wrong)
        with pytest.raises(Exception, match=r"^(?!.*expected float32)"):
            lax(wrong)
    with pytest.raises(SignatureError, match="expected float32"):
        strict(wrong)  # decided at the first call
    with pytest.raises(Exception, match=r"^(?!.*expected float32)"):
        free(wrong)


def test_methods_are_checked() -> None:
    class Model:
        @hr.jit(strict=True)
        def call(self, x: Annotated[hr.Tensor, "2"]) -> Any:
            return x + 1.0

    assert np.allclose(Model().call(hr.zeros((2,))), 1.0)
    with pytest.raises(ShapeError, match=r"call\(\): argument 'x' has shape \[3\], expected \[2\]"):
        Model().call(hr.zeros((3,)))

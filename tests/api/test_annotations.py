"""Annotated types and shapes of functions are checked at each call."""

import dataclasses
from typing import Annotated, Any, NamedTuple, Optional

import numpy as np
import pytest

import headrace as hr
from headrace.errors import ShapeError, SignatureError

pytestmark = pytest.mark.one_engine


def ones(*shape: int, dtype: Any = None) -> Any:
    return hr.ones(shape, dtype or hr.float32)


@hr.check_types
def distances(points: hr.Tensor["n 3", hr.float32], centre: hr.Tensor["3"]) -> hr.Tensor["n"]:
    return (points - centre).sum(1)


def test_calls_that_fit() -> None:
    assert distances(ones(4, 3), ones(3)).shape == (4,)
    assert distances(points=ones(0, 3), centre=hr.Variable(np.zeros(3, np.float32))).shape == (0,)
    assert distances(np.zeros((2, 3), np.float32), ones(3)).shape == (2,)
    assert distances.__name__ == "distances"


def test_symbolic_tensors() -> None:
    with hr.Graph():
        assert distances(hr.placeholder(hr.float32, (5, 3)), ones(3)).shape == (5,)
        distances(hr.placeholder(hr.float32, (None, 3)), ones(3))
        distances(hr.placeholder(hr.float32), ones(3))
        with pytest.raises(ShapeError, match=r"argument 'points' has shape \[\?,4\], expected \[n,3\]"):
            distances(hr.placeholder(hr.float32, (None, 4)), ones(3))


@pytest.mark.parametrize(
    ("points", "error", "says"),
    [
        (ones(4, 2), ShapeError, r"^distances\(\): argument 'points' has shape \[4,2\], expected \[n,3\]$"),
        (ones(3), ShapeError, r"^distances\(\): argument 'points' has shape \[3\], expected \[n,3\]$"),
        (ones(2, 3, dtype=hr.int32), SignatureError, r"argument 'points' is of dtype int32, expected float32$"),
        (
            [[1.0, 2.0, 3.0]],
            SignatureError,
            r"'points' is \[\[1.0, 2.0, 3.0\]\] \(list\), expected a tensor of float32",
        ),
        (None, SignatureError, r"argument 'points' is None \(NoneType\), expected a tensor of float32 \[n,3\]$"),
    ],
)
def test_calls_that_do_not_fit(points: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        distances(points, ones(3))


def test_names_agree_across_arguments_and_results() -> None:
    @hr.check_types
    def f(a: hr.Tensor["n m"], b: hr.Tensor["m n"]) -> hr.Tensor["n n"]:
        return b if a.shape[0] == 7 else a @ b

    assert f(ones(2, 3), ones(3, 2)).shape == (2, 2)
    with pytest.raises(ShapeError, match=r"'b' has shape \[4,2\], expected \[m,n\]: m = 3 from argument 'a'"):
        f(ones(2, 3), ones(4, 2))
    with pytest.raises(ShapeError, match=r"f\(\): the result has shape \[3,7\], expected \[n,n\]: n = 7 from argument"):
        f(ones(7, 3), ones(3, 7))


@pytest.mark.parametrize(
    ("text", "shape", "fits"),
    [
        ("", (), True),
        ("", (1,), False),
        ("_ 2", (5, 2), True),
        ("_ 2", (5, 3), False),
        ("n n", (3, 3), True),
        ("n n", (3, 4), False),
        ("...", (), True),
        ("...", (1, 2, 3), True),
        ("... 3", (4, 5, 3), True),
        ("... 3", (3,), True),
        ("... 3", (), False),
        ("2 ... 3", (2, 3), True),
        ("2 ... 3", (2,), False),
        ("2 ... 3", (2, 9, 9, 3), True),
        ("n ... n", (2, 9, 2), True),
        ("n ... n", (2, 9, 3), False),
        ("*batch 3", (4, 5, 3), True),
        ("n *rest 2", (1, 3, 2), True),
    ],
)
def test_words(text: str, shape: tuple[int, ...], fits: bool) -> None:
    @hr.check_types
    def f(x: hr.Tensor[text]) -> None: ...

    if fits:
        f(ones(*shape))
    else:
        with pytest.raises(ShapeError, match=r"argument 'x' has shape"):
            f(ones(*shape))


def test_names_of_several_dimensions() -> None:
    @hr.check_types
    def f(a: hr.Tensor["*batch n"], b: hr.Tensor["*batch"]) -> None: ...

    f(ones(2, 3, 4), ones(2, 3))
    f(ones(4), hr.constant(1.0))
    with pytest.raises(ShapeError, match=r"'b' has shape \[3,2\], expected \[\*batch\]: batch = \[2,3\]|\*batch = "):
        f(ones(2, 3, 4), ones(3, 2))


def test_dtypes_alone_and_several() -> None:
    @hr.check_types
    def f(x: hr.Tensor[hr.int32], y: hr.Tensor["n", hr.float32, hr.float64]) -> None: ...

    f(ones(2, 2, dtype=hr.int32), ones(3, dtype=hr.float64))
    with pytest.raises(SignatureError, match=r"'y' is of dtype int32, expected float32 or float64"):
        f(ones(1, dtype=hr.int32), ones(1, dtype=hr.int32))


@dataclasses.dataclass
class Layer:
    """A layer with weights of annotated shapes."""

    w: hr.Tensor["n m"]
    b: hr.Tensor["m"]
    inner: "Layer | None" = None


class State(NamedTuple):
    """A state with annotated shapes."""

    c: hr.Tensor["n"]
    h: hr.Tensor["n"]


@hr.check_types
def nested(
    xs: list[hr.Tensor["n"]],
    by: dict[str, hr.Tensor["n 2"]],
    pair: tuple[hr.Tensor["n"], int],
    *more: hr.Tensor["n"],
    state: State | None = None,
    layer: Optional[Layer] = None,  # noqa: UP045 - both forms are understood
    **named: hr.Tensor["n"],
) -> list[hr.Tensor["n"]]:
    return [*xs, *more]


GOOD: dict[str, Any] = {"xs": [ones(3), ones(3)], "by": {"a": ones(3, 2)}, "pair": (ones(3), 1)}


def test_structures() -> None:
    layer = Layer(ones(3, 2), ones(2), Layer(ones(3, 2), ones(2)))
    nested(**GOOD, state=State(ones(3), ones(3)), layer=layer, other=ones(3))
    nested(*GOOD.values(), ones(3), ones(3))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"xs": [ones(3), ones(4)]},
            r"argument 'xs'\[1\] has shape \[4\], expected \[n\]: n = 3 from argument 'xs'\[0\]",
        ),
        ({"xs": ones(3)}, r"argument 'xs' is a tensor of float32, expected a list"),
        ({"by": {"a": ones(3, 3)}}, r"argument 'by'\['a'\] has shape \[3,3\], expected \[n,2\]"),
        ({"pair": (ones(3),)}, r"argument 'pair' is of 1 elements, expected a tuple of 2 elements"),
        ({"pair": (ones(3), "a")}, r"argument 'pair'\[1\] is 'a' \(str\), expected int"),
        ({"state": State(ones(3), ones(2))}, r"argument 'state'\.h has shape \[2\], expected \[n\]: n = 3"),
        ({"state": 3}, r"argument 'state' is 3 \(int\), expected State"),
        (
            {"layer": Layer(ones(3, 2), ones(2), Layer(ones(3, 2), ones(3)))},
            r"'layer'\.inner\.b .*: m = 2",
        ),
        ({"other": ones(9)}, r"argument 'other' has shape \[9\], expected \[n\]: n = 3 from argument 'xs'\[0\]"),
    ],
)
def test_structures_that_do_not_fit(change: dict[str, Any], says: str) -> None:
    with pytest.raises((ShapeError, SignatureError), match=says):
        nested(**{**GOOD, **change})


def test_unions_try_each_alternative() -> None:
    @hr.check_types
    def f(x: hr.Tensor["n"] | hr.Tensor["n m"], y: hr.Tensor["n"], rate: float = 0.1) -> None: ...

    f(ones(2), ones(2))
    f(ones(2, 5), ones(2), rate=1)
    with pytest.raises(ShapeError, match=r"'y' has shape \[5\], expected \[n\]: n = 2"):
        f(ones(2, 5), ones(5))
    with pytest.raises(SignatureError, match=r"argument 'x' has shape \[1,1,1\], expected \[n\]; or argument 'x' has"):
        f(ones(1, 1, 1), ones(1))
    with pytest.raises(SignatureError, match=r"argument 'rate' is a tensor of float32, expected float"):
        f(ones(2), ones(2), hr.constant(0.1))


def test_the_form_of_type_checkers() -> None:
    @hr.check_types
    def f(x: Annotated[hr.Tensor, "n 3", hr.float32], y: hr.Tensor, z: Annotated[int, "a note"] = 1) -> Any:
        return x

    f(ones(1, 3), ones())
    with pytest.raises(ShapeError, match=r"expected \[n,3\]"):
        f(ones(1, 4), ones())
    with pytest.raises(SignatureError, match=r"argument 'y' is 1.0 \(float\), expected a tensor"):
        f(ones(1, 3), 1.0)


def test_other_annotations_are_not_checked() -> None:
    @hr.check_types
    def f(x: Any, y: type[int], z: object, *args: str, w: int | list[Any] = 3) -> Any:
        return x

    assert f(1, int, None, "a") == 1


@pytest.mark.parametrize(
    ("parts", "error", "says"),
    [
        ("n-1", ValueError, "'n-1' in the shape 'n-1' of a tensor is no dimension: write a number, a name"),
        ("... *n", ValueError, "can have one of"),
        (("n", hr.float32, "no dtype"), TypeError, "no dtype"),
        (hr.constant, TypeError, "constant"),
    ],
)
def test_annotations_that_mean_nothing(parts: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        hr.Tensor[parts]


def test_annotations_are_values() -> None:
    a = hr.Tensor["n 3", hr.float32]
    assert a == hr.Tensor["n  3", hr.float32]
    assert {a: 1}[hr.Tensor["n 3", hr.float32]] == 1
    assert (repr(a), str(a)) == ("Tensor['n 3', float32]", "a tensor of float32 [n,3]")
    with pytest.raises(TypeError, match=r"is an annotation and makes no tensor: use hr\.constant"):
        a(1)


def test_an_annotation_that_cannot_be_evaluated() -> None:
    @hr.check_types
    def f(x: "NoSuchType") -> None: ...

    with pytest.raises(TypeError, match="an annotation of 'f' cannot be evaluated: name 'NoSuchType'"):
        f(1)


def test_annotations_that_are_evaluated_later() -> None:
    names: dict[str, Any] = {"hr": hr}
    exec(
        "from __future__ import annotations\n@hr.check_types\ndef f(x: hr.Tensor['n 3'], y: hr.Tensor[3]) -> None: ...",
        names,
    )
    names["f"](ones(2, 3), ones(3))
    with pytest.raises(ShapeError, match=r"'y' has shape \[2\], expected \[3\]"):
        names["f"](ones(2, 3), ones(2))


def test_wrong_calls_are_those_of_python() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'centre'"):
        distances(ones(1, 3))

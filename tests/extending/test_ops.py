"""Op types and kernels of a third party.

They hold on every route, and mistakes in them are reported.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import extend
from headrace.dtypes import FLOATING, REAL
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.extend import NOT_DIFFERENTIABLE, DuplicateError, Facts, ListRole, flops_per_element, missing, same_as
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.opdef import op_registry
from headrace.ir.text import from_text, to_text

pytestmark = pytest.mark.one_engine

ENGINES = pytest.mark.parametrize("engine", ["interpret", "auto", "compiled"])


def softclip(**changes: Any) -> Any:
    """y = x / (1 + |x| / limit), registered."""

    def kernel(attrs: Any) -> Any:
        limit = attrs["limit"]
        return lambda x: x / (1 + np.abs(x) / x.dtype.type(limit))

    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        slope = b.Square(b.RealDiv(n.y, n.x))  # 1 / (1 + |x| / limit) ** 2
        return [b.Mul(dy, slope)]

    fields: dict[str, Any] = {
        "shape": same_as(0),
        "kernel": kernel,
        "grad": grad,
        "facts": Facts(cost=flops_per_element(4), total=()),
        "oracle": lambda x, limit=1.0: x / (1 + np.abs(x) / limit),
        "sample": lambda rng, dtype: [extend.case(rng.normal(size=3).astype(dtype.numpy), limit=2.0)],
        "doc": "Clips softly.",
    }
    return hr.register_op("SoftClip", "x: T", "y: T", {"T": FLOATING, "limit": 1.0}, **(fields | changes))


# *** ops ***


@ENGINES
def test_an_op_on_every_engine(engine: str) -> None:
    clip = softclip()
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None])
        y = clip(x, limit=2.0, name="mine")
        _, z = hr.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, clip(z)), [0, x])
        (dx,) = hr.gradients([y, z], [x])
    assert y.name == "mine:0"
    assert y.shape == (None,)
    assert y.op.attrs["limit"] == 2.0
    v = np.array([1.0, -2.0], np.float32)
    with hr.Session(graph=g, engine=engine) as session:
        got = session.run([y, z, dx], {x: v})
    np.testing.assert_allclose(got[0], v / (1 + np.abs(v) / 2), 1e-6)
    np.testing.assert_allclose(got[1], v / (1 + 3 * np.abs(v)), 1e-6)
    np.testing.assert_allclose(got[2], (1 + np.abs(v) / 2) ** -2.0 + (1 + 3 * np.abs(v)) ** -2.0, 1e-5)


def test_an_op_at_once() -> None:
    clip = softclip()
    assert float(clip(3.0)) == 0.75
    assert float(clip(x=3.0, limit=3.0)) == 1.5
    assert clip(np.float64(3.0)).dtype == hr.float64
    hr.check_gradients(clip, [np.array([0.5, -2.0, 1.5])])
    assert float(hr.jvp(clip, (1.0,), (1.0,))[1]) == 0.25, "its tangents follow from its gradient"


def test_an_op_is_like_any_other() -> None:
    softclip()
    assert "SoftClip" in dir(hr.raw_ops)
    assert hr.raw_ops.SoftClip.__doc__.startswith("Clips softly.")
    assert "Source" not in hr.raw_ops.SoftClip.__doc__, "TensorFlow has no such op"
    assert "tf.raw_ops.Sin" in hr.raw_ops.Sin.__doc__
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2], "x")
        hr.raw_ops.SoftClip(x=x, limit=3.0, name="y")
    again = from_text(to_text(g))
    with hr.Graph() as wired:
        hr.import_graph_def(g.as_graph_def(), name="")
    for graph in (again, wired):
        assert hr.Session(graph=graph).run("y:0", {"x:0": [3.0, 0.0]}).tolist() == [1.5, 0.0]


def test_it_takes_part_in_what_passes_do() -> None:
    clip = softclip()
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
        y = clip(hr.constant(1.0)) + clip(x) + clip(x)
    with hr.Session(graph=g) as session:
        assert session.run(y, {x: 1.0}) == 1.5
        source = session.explain(y, [x]).source
        assert source.count("abs") <= 1, "one is a constant, and two are the same"


def test_a_comparison_of_a_package_bounds_a_loop() -> None:
    below = hr.register_op(
        "IsBelow",
        "x: T, y: T",
        "z: bool",
        {"T": REAL},
        shape=extend.broadcast,
        kernel=lambda xp, attrs: xp.less,
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(cost=flops_per_element(1), total=(), compares="<"),
    )
    with hr.Graph() as g:
        hr.while_loop(lambda i: below(i, 5), lambda i: i + 1, [0])
        hr.while_loop(lambda i: below(i, -i), lambda i: i + 1, [0])
    counts = [trip_count(op) for op in g.operations if op.opdef.structured == "While"]
    assert [c and c.count for c in counts] == [5, None]


def test_a_list_op_of_a_package_is_compiled_as_a_list() -> None:
    hr.register_op(
        "Append",
        "input_handle: variant, tensor: element_dtype",
        "output_handle: variant",
        {"element_dtype": extend.type_attr()},
        shape=op_registry.get("TensorListPushBack").shape,
        kernel=op_registry.get("TensorListPushBack").kernel,
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(list_role=ListRole("push", element_input=1)),
    )
    g = from_text(
        "x = Placeholder[dtype=float32, shape=[]]\nshape = Const[dtype=int32, value=int32[0] {}]\n"
        "most = Const[dtype=int32, value=int32[] {-1}]\n"
        "new = EmptyTensorList[element_dtype=float32](shape, most)\nys = Append(new, x)\nzs = Append(ys, x)\n"
        "y = TensorListStack[element_dtype=float32](zs, shape)"
    )
    with hr.Session(graph=g) as session:
        assert session.run("y:0", {"x:0": 3.0}).tolist() == [3.0, 3.0]
        assert session.explain("y:0", ["x:0"]).source.count(".append(") == 2


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"compares": "<"}, "two inputs and one bool output"),
        ({"compares": "near"}, "two inputs and one bool output"),
        ({"split": extend.SplitRole(0, 1)}, "names two inputs"),
        ({"list_role": ListRole("push", element_input=1)}, "has 2 inputs and 1 outputs"),
        ({"list_role": ListRole("shift")}, "'shift' is no kind"),
        ({"sum_sign": 1}, "two inputs and one output"),
        ({"stateless": True}, "ops that call functions"),
    ],
)
def test_a_role_that_contradicts_the_arguments_is_an_error(facts: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"SoftClip: .*{message}"):
        softclip(facts=Facts(**facts))


def test_inputs_on_the_host_are_arguments() -> None:
    with pytest.raises(TypeError, match="SoftClip: host= names 'axis', which is no argument; there are"):
        softclip(host=("axis",))


@pytest.mark.parametrize(
    ("outs", "role", "message"),
    [
        ("z: variant", ListRole("push"), "element_input= is for"),
        ("z: variant", ListRole("push", element_input=0), "element_input=0 is no input"),
        ("z: variant", ListRole("push", 1, shape_input=1), "shape_input= is for"),
        ("z: float", ListRole("push", element_input=1), "of dtype variant"),
        ("z: variant", ListRole("stack", shape_input=1), "has the attribute 'num_elements'"),
    ],
)
def test_a_list_role_names_the_inputs_of_its_kind(outs: str, role: ListRole, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hr.register_op(
            "Append",
            "x: variant, y: element_dtype",
            outs,
            {"element_dtype": extend.type_attr()},
            shape=extend.unknown,
            kernel=lambda attrs: lambda x, y: x,
            grad=NOT_DIFFERENTIABLE,
            facts=Facts(list_role=role),
        )


def test_forms() -> None:
    log: list[Any] = []

    def noted(ctx: Any, attrs: Any) -> Any:
        return lambda x: log.append((ctx.node, float(x)))

    note = hr.register_op(
        "Note",
        "x: float",
        "",
        stateful=noted,
        shape=extend.nothing,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(effect="note"),
    )
    two = hr.register_op(
        "MinMax",
        "xs: N * T",
        "least: T, most: T",
        {"T": FLOATING, "N": extend.int_attr(minimum=1)},
        async_=lambda ctx, attrs: lambda *xs: xs[-1]((min(xs[:-1]), max(xs[:-1]))),
        shape=lambda c: [(), ()],
        grad=missing("nobody needed it"),
    )
    assert note(2.0) is None
    assert [float(v) for v in two([3.0, 1.0, 2.0])] == [1.0, 3.0]
    with hr.Graph() as g:
        a, b = two([hr.constant(3.0), hr.constant(1.0)])
        op = note(a, name="n")
    assert isinstance(op, hr.Operation)
    assert hr.Session(graph=g).run([a, b, op]) == [1.0, 3.0, None]
    assert log == [("Note", 2.0), ("n", 1.0)]
    with g, pytest.raises(LookupError, match="nobody needed it"):
        hr.gradients(a, [g.operations[0].outputs[0]])


@pytest.mark.parametrize(
    ("args", "kwargs", "wrong"),
    [
        ((), {}, "'x' is missing"),
        ((1.0, 2.0), {}, "2 inputs are given"),
        ((1.0,), {"x": 1.0}, "'x' is given twice"),
        ((1.0,), {"lim": 2.0}, "there is no 'lim'"),
    ],
)
def test_a_wrong_call(args: Any, kwargs: Any, wrong: str) -> None:
    clip = softclip()
    text = r"^SoftClip takes the inputs \['x'\] and the attributes \['T', 'limit'\]; " + wrong + "$"
    with pytest.raises(TypeError, match=text):
        clip(*args, **kwargs)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"grad": None}, TypeError, r"^SoftClip: say what its gradient is: .*NOT_DIFFERENTIABLE.*missing\('why"),
        ({"shape": None}, TypeError, r"^SoftClip: say which shapes its outputs have: shape=rule"),
        ({"kernel": None}, TypeError, r"^SoftClip: give exactly one of kernel=, stateful= and async_=, got none"),
        ({"stateful": abs}, TypeError, r"^SoftClip: give exactly one of .*, got kernel= and stateful="),
        ({"kernel": 3}, TypeError, r"^SoftClip: kernel= must be a function, got 3$"),
        ({"sample": "x"}, TypeError, r"^SoftClip: sample= must be a function, got 'x'$"),
        ({"grad": 3}, TypeError, r"^SoftClip: grad= must be a function, NOT_DIFFERENTIABLE or .*, got 3$"),
        ({"jvp": 3}, TypeError, r"^SoftClip: jvp= must be a function, SYMMETRIC or missing\('why'\), got 3$"),
    ],
)
def test_a_wrong_record(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        softclip(**changes)
    softclip()  # nothing was left behind


def test_what_is_left_out() -> None:
    with pytest.raises(TypeError, match=r"^Lacking: say what its gradient is"):
        hr.register_op("Lacking", kernel=abs, shape=same_as(0))
    with pytest.raises(TypeError, match=r"^Lacking: say which shapes"):
        hr.register_op("Lacking", kernel=abs, grad=NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("name", ["soft_clip", "", "Soft-Clip", "_Own", "9Lives", "Soft Clip", 3])
def test_no_name(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^{re.escape(repr(name))} is no name of an op type: .*'AddV2'"):
        hr.register_op(name, kernel=abs, shape=same_as(0), grad=NOT_DIFFERENTIABLE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("x: U", r"the argument 'x: U' names 'U', which is no dtype and not among the attributes \(T\)$"),
        ("xs: N * T", r"the argument 'xs: N \* T' names 'N', which"),
        ("x", r"'x' describes no argument: expected 'name: T', "),
        ("2x: T", r"'2x: T' describes no argument"),
        ("x: T, x: T", r"two arguments have the name 'x'$"),
    ],
)
def test_arguments_that_are_none(arguments: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^Odd: {text}"):
        hr.register_op("Odd", arguments, "", {"T": FLOATING}, kernel=abs, shape=same_as(0), grad=NOT_DIFFERENTIABLE)


def test_a_name_that_is_taken() -> None:
    softclip()
    with pytest.raises(DuplicateError, match=r"op type 'SoftClip' is registered already, at .*test_ops\.py:\d+$"):
        softclip()
    with pytest.raises(DuplicateError, match=r"op type 'Sin' is registered already, at .*unary\.py:\d+$"):
        hr.register_op("Sin", kernel=abs, shape=same_as(0), grad=NOT_DIFFERENTIABLE)


# *** kernels ***


def program() -> tuple[hr.Graph, Any, Any]:
    """Square of a constant, a fed value and an element, and within elementwise work."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2])
        y = hr.square(x + 1.0) * 2.0
        c = hr.square(hr.constant([3.0, 3.0]))
        z = hr.while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, hr.square(z)), [0, x[0]])[1]
    return g, x, [y, c, z]


@ENGINES
@pytest.mark.parametrize("form", ["pure", "stateful"])
def test_a_kernel_replaces_one(engine: str, form: str) -> None:
    made: list[str] = []

    @hr.register_kernel("Square", constraints={"T": "float32"}, form=form)
    def cube(*context: Any) -> Any:  # (attrs), or (ctx, attrs)
        made.append(context[-1]["T"].name)
        return lambda x: x * x * x

    assert float(hr.square(np.float32(2.0))) == 8.0
    assert float(hr.square(np.float64(2.0))) == 4.0, "another dtype"
    g, x, fetches = program()
    with hr.Session(graph=g, engine=engine) as session:
        y, c, z = session.run(fetches, {x: [1.0, 2.0]})
    assert y.tolist() == [16.0, 54.0]
    assert c.tolist() == [27.0, 27.0]
    assert z == 1.0
    assert set(made) == {"float32"}


def test_a_kernel_that_comes_late_is_seen_eagerly() -> None:
    assert float(hr.square(2.0)) == 4.0
    hr.register_kernel("Square")(lambda attrs: lambda x: x + x + x)
    assert float(hr.square(2.0)) == 6.0


@pytest.mark.parametrize("form", ["pure", "stateful"])
def test_static_values_are_those_of_the_kernel(form: str) -> None:
    hr.register_kernel("Add", form=form)(lambda attrs: lambda x, y: x - y)
    hr.register_kernel("AddV2", form=form)(lambda attrs: lambda x, y: x - y)
    with hr.Graph():
        y = hr.constant(5) + hr.constant(3)
        known = hr.constant_value(y)
    assert (known is None) if form == "stateful" else (known == 2)


def test_a_kernel_that_waits_is_not_compiled() -> None:
    hr.register_kernel("Square", form="async")(lambda ctx, attrs: lambda x, done: done(x * x * x))
    g, x, fetches = program()
    with hr.Session(graph=g) as session:
        assert session.run(fetches, {x: [1.0, 2.0]})[0].tolist() == [16.0, 54.0]
        assert "may block" in str(session.explain(fetches, [x]))


def test_constraints_of_other_kinds() -> None:
    size = [1, 2, 2, 1]
    hr.register_kernel("MaxPool", "CPU", {"ksize": size, "T": np.float32})(lambda attrs: lambda x: x)
    hr.register_kernel("MaxPool", "CPU", {"ksize": [[1, 3, 3, 1], (1, 4, 4, 1)]})(lambda attrs: lambda x: -x)
    x = np.ones([1, 4, 4, 1], np.float32)
    assert hr.nn.max_pool2d(x, 2, 2, "VALID").shape == (1, 4, 4, 1), "the kernel is none of pooling"
    assert float(hr.nn.max_pool2d(x, 3, 1, "SAME")[0, 0, 0, 0]) == -1.0
    assert hr.nn.max_pool2d(x.astype(np.float64), 2, 2, "VALID").shape == (1, 2, 2, 1)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("Const", "DLP", {"value": 3}), r"^kernel of Const: 'value' is a tensor, which cannot be a constraint$"),
        (("Square", "CPU", {"U": hr.float32}), r"^kernel of Square: there is no attribute 'U' .*; Square has T$"),
        (("Square", "CPU", {"T": hr.string}), r"^kernel of Square: it would never run: attribute 'T' of Square must "),
        (("Square", "CPU", {"T": "floot"}), r"^kernel of Square: it would never run: attribute 'T' of Square must "),
        (("Square", "CPU", {"T": ()}), r"^kernel of Square: the constraint on 'T' leaves no value$"),
        (("Square", "D P"), r"^'D P' is not a device type: expected letters.*'/device:DLP:0'$"),
        (("Square", ""), r"^'' is not a device type"),
        (("Square", 3), r"^3 is not a device type"),
        (("Square", "gpu"), r"^'gpu' is not a device type.*; write 'GPU'$"),
        (("Square", "A:1/task:0/device:B"), r"is not a device type"),
        (("Square", "CPU", {}, "quick"), r"^kernel of Square: form must be one of 'pure', .*, got 'quick'$"),
        (("Switch", "DLP"), r"^Switch has no kernels: the token machine itself does what it means$"),
        (("While", "DLP"), r"^While has no kernels"),
        (("_Arg", "DLP"), r"^_Arg has no kernels"),
        (("TensorListGetItem", "CPU"), r"^TensorListGetItem works on variants"),
    ],
)
def test_a_wrong_kernel(args: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        hr.register_kernel(*args)


def test_a_kernel_of_no_op() -> None:
    with pytest.raises(NotFoundError, match=r"^a kernel cannot be registered for 'Squar': no op type .*near: 'Square'"):
        hr.register_kernel("Squar")


def test_a_factory_that_is_none() -> None:
    for form, takes in (("pure", "attrs"), ("stateful", "ctx, attrs")):
        with pytest.raises(TypeError, match=rf"Square on DLP: expected a factory, a function of \({takes}\), got 3$"):
            hr.register_kernel("Square", "DLP", form=form)(3)  # type: ignore[arg-type]


def test_kernels_that_clash() -> None:
    hr.register_kernel("Square", "DLP", {"T": (hr.float32, hr.float16)})(abs)
    hr.register_kernel("Square", "DLP", {"T": hr.float64})(abs)
    hr.register_kernel("Square", "XLP")(abs)
    told = r"^a kernel of 'Square' on DLP with T in \{float16, float32\} is registered already, at .*test_ops\.py:\d+$"
    with pytest.raises(DuplicateError, match=told):
        hr.register_kernel("Square", "DLP", {"T": ("float16", "int32")})(abs)
    with pytest.raises(DuplicateError, match=told):
        hr.register_kernel("Square", "DLP")(abs)
    with pytest.raises(DuplicateError, match=r"^a kernel of 'Square' on XLP is registered already"):
        hr.register_kernel("Square", "XLP", {"T": "int32"})(abs)


# *** devices ***


def test_a_device_type_that_is_taken_or_wrong() -> None:
    hr.register_device("DLP", extend.LocalDevice)
    with pytest.raises(DuplicateError, match=r"device type 'DLP' is registered already, at .*test_ops\.py:\d+$"):
        hr.register_device("DLP", extend.LocalDevice)
    with pytest.raises(DuplicateError, match=r"device type 'CPU' is registered already, at .*devices\.py:\d+$"):
        hr.register_device("CPU", extend.LocalDevice)
    with pytest.raises(InvalidArgumentError, match=r"^'DLP:0' is not a device type"):
        hr.register_device("DLP:0", extend.LocalDevice)
    with pytest.raises(TypeError, match=r"^the factory of device type 'XLP' must be a function or class, got 3$"):
        hr.register_device("XLP", 3)  # type: ignore[arg-type]


def test_a_factory_that_makes_no_device() -> None:
    hr.register_device("Odd", lambda spec, limit: None)  # type: ignore[arg-type, return-value]
    told = r"^the factory of device type 'Odd', registered at .*test_ops\.py:\d+, must make a LocalDevice, got None$"
    with hr.Graph() as g, pytest.raises(InvalidArgumentError, match=told):
        hr.Session(graph=g, devices={"Odd": 1})

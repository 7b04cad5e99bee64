"""Calls with extension types for TensorFlow or `headrace.v1`, by name: their results and errors.

python tests/v1/extension_type_cases.py              # with TensorFlow: writes extension_type_values.json
"""

from __future__ import annotations

import contextlib
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

VALUES = Path(__file__).parent / "extension_type_values.json"


def types(tf: Any) -> Any:
    """Derives extension types: an object with the classes as its attributes."""
    x = tf.experimental
    base = type(x.ExtensionType)

    def derive(title: str, annotations: dict[str, Any], of: Any = x.ExtensionType, /, **attributes: Any) -> Any:
        return base(title, (of,), {"__annotations__": annotations, "__module__": __name__, **attributes})

    class Types:
        new = staticmethod(derive)
        Masked = derive("Masked", {"values": tf.Tensor, "mask": tf.Tensor, "name": str}, name="x")
        Nested = derive(
            "Nested",
            {
                "m": tuple[Masked, ...],
                "r": tf.RaggedTensor,
                "d": typing.Mapping[str, tf.Tensor],
                "s": typing.Optional[tf.SparseTensor],  # noqa: UP045 - TensorFlow refuses the other form
                "shape": tf.TensorShape,
            },
            s=None,
            shape=tf.TensorShape([2]),
        )
        Rows = derive(
            "Rows",
            {"values": tf.Tensor, "r": tf.RaggedTensor, "shape": tf.TensorShape, "n": int},
            x.BatchableExtensionType,
            n=3,
        )

    def assign(self: Any, values: Any, twice: bool = False) -> None:
        self.values = values
        if twice:
            self.n = 2

    Types.Own = derive("Own", {"values": tf.Tensor, "n": int}, __init__=assign)
    Types.Derived = derive("Derived", {"k": str}, Types.Own, k="q")
    Types.Valid = derive("Valid", {"v": tf.Tensor}, __validate__=lambda self: self.v.shape.assert_has_rank(1))
    return Types


def calls(tf: Any) -> dict[str, Callable[[], Any]]:
    """Functions without arguments, by name, for the default graph."""
    t = types(tf)
    new, masked, rows, spec = t.new, t.Masked, t.Rows, tf.TensorSpec
    m, other = masked([1.0, 2.0], [True, False]), masked([3.0, 4.0], [True, True])
    named = masked([3.0, 4.0], [True, True], "y")
    n = t.Nested(
        [m, masked([3.0], [True], "y")],
        tf.ragged.constant([[1], [2, 3]]),
        {"b": 1, "a": 2},
        tf.SparseTensor([[0, 1]], [7], [2, 3]),
    )

    def swapped(i: Any, n: Any) -> Any:
        parts = [masked(x.values + 1, x.mask, x.name) for x in n.m]
        return i + 1, t.Nested(parts, n.r, {"a": n.d["b"], "b": n.d["a"]}, n.s)

    wide, narrow = masked.Spec(spec([None]), spec([2], tf.bool), "x"), masked.Spec(spec([2]), spec([2], tf.bool), "x")
    batched = rows([[1, 2], [3, 4], [5, 6]], tf.ragged.constant([[1], [], [2, 3]]), [3, 2])
    one = rows.Spec(spec([2]), tf.RaggedTensorSpec([None, None]), tf.TensorShape([3]), 3)
    encoder = rows.Spec.__batch_encoder__
    return {
        # fields
        "too few": lambda: masked(1.0),
        "too many": lambda: masked(1.0, 2.0, "a", "b"),
        "another name": lambda: masked(1.0, 2.0, z=1),
        "no text": lambda: masked(1.0, 2.0, 3),
        "no tensor": lambda: masked(object(), 2.0),
        "the base": lambda: tf.experimental.ExtensionType(),
        "assignment": lambda: setattr(m, "values", 1),
        "deletion": lambda: delattr(m, "values"),
        "missing attribute": lambda: m.foo,
        "hash": lambda: hash(m),
        "tuple": lambda: new("B", {"x": tuple[int, ...]})([1, 2]).x,
        "tuple of another kind": lambda: new("B", {"x": tuple[int, ...]})([1, "a"]),
        "tuple of another length": lambda: new("B", {"x": tuple[int, str]})([1]),
        "union": lambda: new("B", {"x": typing.Union[int, str]})("a").x,  # noqa: UP007
        "union of others": lambda: new("B", {"x": typing.Union[int, str]})(1.5),  # noqa: UP007
        "optional": lambda: new("B", {"x": typing.Optional[tf.Tensor]})(None).x,  # noqa: UP045
        "optional tensor": lambda: new("B", {"x": typing.Optional[tf.Tensor]})(1).x,  # noqa: UP045
        "mapping": lambda: dict(new("B", {"x": typing.Mapping[str, tf.Tensor]})({"a": 1}).x),
        "mapping with other keys": lambda: new("B", {"x": typing.Mapping[str, tf.Tensor]})({1: 1}),
        "mapping of tensors": lambda: new("B", {"x": typing.Mapping[tf.Tensor, int]}),
        "list": lambda: new("B", {"x": list}),
        "list of int": lambda: new("B", {"x": typing.List[int]}),  # noqa: UP006
        "variable": lambda: new("B", {"x": tf.Variable}),
        "reserved": lambda: new("B", {"self": int}),
        "reserved Spec": lambda: new("B", {"Spec": int}),
        "no annotation": lambda: new("B", {"x": int}, y=3),
        "wrong default": lambda: new("B", {"x": int}, x="a"),
        "shape": lambda: new("B", {"x": tf.TensorShape})([1, None]).x.as_list(),
        "no shape": lambda: new("B", {"x": tf.TensorShape})("a"),
        "dtype": lambda: new("B", {"x": tf.DType})("float32").x.name,
        "no dtype": lambda: new("B", {"x": tf.DType})(3.5),
        "int for float": lambda: new("B", {"x": float})(1),
        "int for bool": lambda: new("B", {"x": bool})(1),
        "bool for int": lambda: new("B", {"x": int})(True).x,
        "no ragged tensor": lambda: new("B", {"x": tf.RaggedTensor})(3.5),
        "other class": lambda: new("B", {"x": masked})(3),
        "keywords behind a default": lambda: new("B", {"x": int, "y": int}, x=1)(y=3).y,
        "position behind a default": lambda: new("B", {"x": int, "y": int}, x=1)(1, 3),
        "own constructor": lambda: t.Own([1], True).n,
        "own constructor without a field": lambda: t.Own([1]),
        "derived": lambda: t.Derived([1], 2, "p").k,
        "own check": lambda: t.Valid(1),
        "as_dict": lambda: sorted(tf.experimental.extension_type.as_dict(m)),
        # comparison
        "equal": lambda: m == m,
        "unequal": lambda: m != other,
        "equal of another name": lambda: other == named,
        "unequal of another name": lambda: other != named,
        "equal of another shape": lambda: m == masked([1.0], [True]),
        # control flow
        "cond": lambda: tf.cond(tf.constant(False), lambda: m, lambda: other),
        "cond of other names": lambda: tf.cond(tf.constant(False), lambda: m, lambda: named),
        "case": lambda: tf.case([(tf.constant(True), lambda: m)], default=lambda: other),
        "while_loop": lambda: tf.while_loop(lambda i, n: i < 3, swapped, [0, n]),
        "while_loop of other names": lambda: tf.while_loop(
            lambda m: m.values[0] < 9.0, lambda m: masked(m.values, m.mask, "z"), [m]
        ),
        "identity": lambda: tf.identity(n),
        "gradients": lambda: tf.gradients(m.values * 2, m),
        "is_tensor": lambda: tf.is_tensor(m),
        "convert_to_tensor": lambda: tf.convert_to_tensor(m),
        "add": lambda: tf.add(m, m),
        "operator": lambda: tf.constant(1.0) + m,
        # structures
        "flatten": lambda: tf.nest.flatten(n, expand_composites=True),
        "number of leaves": lambda: len(tf.nest.flatten(n)),
        "is_nested": lambda: tf.nest.is_nested(m),
        "map_structure": lambda: tf.nest.map_structure(lambda x: x, m, expand_composites=True),
        "same structure": lambda: tf.nest.assert_same_structure(m, other, expand_composites=True),
        "same structure of other names": lambda: tf.nest.assert_same_structure(m, named, expand_composites=True),
        "same leaves of other names": lambda: tf.nest.assert_same_structure(m, named),
        "same structure of other dtypes": lambda: tf.nest.assert_same_structure(
            m, masked([1, 2], [True, True]), expand_composites=True
        ),
        # specs
        "spec without a field": lambda: masked.Spec(spec([2]), spec([2])),
        "spec of a number": lambda: masked.Spec(1, spec([2]), "x"),
        "spec of a value": lambda: masked.Spec.from_value(m) == narrow,
        "spec of type_spec_from_value": lambda: tf.type_spec_from_value(m) == narrow,
        "compatible": lambda: wide.is_compatible_with(m),
        "compatible spec": lambda: narrow.is_compatible_with(wide),
        "incompatible": lambda: wide.is_compatible_with(named),
        "subtype": lambda: [narrow.is_subtype_of(wide), wide.is_subtype_of(narrow)],
        "supertype": lambda: narrow.most_specific_common_supertype([wide]) == wide,
        "no supertype": lambda: narrow.most_specific_common_supertype([masked.Spec.from_value(named)]),
        "no compatible type": lambda: narrow.most_specific_compatible_type(masked.Spec.from_value(named)),
        "to_tensors": lambda: wide.to_tensors(m),
        "from_tensors": lambda: wide.from_tensors(iter([m.mask, m.values])).mask,
        "flattened spec": lambda: [s.dtype.name for s in tf.type_spec_from_value(n).flatten()],
        # batches
        "batch": lambda: [encoder.batch(one, 4).shape.as_list(), list(encoder.batch(one, 4).values.shape)],
        "unbatch": lambda: [encoder.unbatch(encoder.batch(one, 4)) == one, encoder.batch(one, 4).r.ragged_rank],
        "encode": lambda: encoder.encode(tf.type_spec_from_value(batched), batched)[0],
        "not batchable": lambda: tf.data.Dataset.from_tensors(m).batch(2),
        "no rows": lambda: tf.data.Dataset.from_tensor_slices(m),
        "encoder of another": lambda: new("B", {"x": int}, __batch_encoder__=encoder),
    }


def dispatches(tf: Any) -> dict[str, Callable[[], Any]]:
    """Calls of overridden functions, by name, for the default graph."""
    x, t = tf.experimental, types(tf)
    masked, m, n = t.Masked, t.Masked([1.0, -2.0], [True, False]), t.Masked([10.0, 20.0], [True, True], "y")
    union: Any = typing.Union

    def overridden(decorator: Any, target: Any, call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            registered = decorator()(target)
            try:
                return call()
            finally:
                with contextlib.suppress(KeyError):  # of TensorFlow, for assertions
                    x.unregister_dispatch_for(registered)

        return run

    def api(function: Any, *signatures: Any) -> Callable[[], Any]:
        return lambda: x.dispatch_for_api(function, *signatures)

    def both(x: Any, y: Any, name: Any = None) -> Any:
        parts = [v.values if isinstance(v, masked) else v for v in (x, y)]
        return masked(parts[0] + parts[1], m.mask, name or "none")

    def nameless(x: Any, y: Any) -> Any:
        return both(x, y)

    def annotated(x: masked, y: masked, name: Any = None) -> Any:
        return both(x, y, "annotated")

    annotated.__annotations__ = {"x": masked, "y": masked}

    def joined(values: Any, axis: Any, name: Any = "concat") -> Any:
        return masked(tf.concat([v.values for v in values], axis), m.mask, "joined")

    def unary(f: Any, x: Any) -> Any:
        return masked(f(x.values), x.mask, "u")

    def binary(f: Any, x: Any, y: Any) -> Any:
        return masked(f(*[v.values if isinstance(v, masked) else v for v in (x, y)]), m.mask, "b")

    def asserted(f: Any, x: Any, y: Any) -> Any:
        return f(x.values, y.values)

    one, two = {"x": masked}, {"x": masked, "y": masked}
    either = union[masked, tf.Tensor]

    def unaries() -> Any:
        return x.dispatch_for_unary_elementwise_apis(masked)

    def binaries() -> Any:
        return x.dispatch_for_binary_elementwise_apis(either, either)

    def assertions() -> Any:
        return x.dispatch_for_binary_elementwise_assert_apis(masked, masked)

    def twice(decorator: Any, target: Any) -> Callable[[], Any]:
        return overridden(decorator, target, lambda: decorator()(target))

    def text(value: Any) -> Any:
        return [value.name, value]

    listed = {"values": typing.List[masked]}  # noqa: UP006
    return {
        "two": overridden(api(tf.add, two), both, lambda: text(tf.add(m, n))),
        "two, of math": overridden(api(tf.add, two), both, lambda: text(tf.math.add(m, n))),
        "two by keyword": overridden(api(tf.add, two), both, lambda: text(tf.add(y=m, x=n, name="s"))),
        "first only": overridden(api(tf.add, two), both, lambda: tf.add(m, 1.0)),
        "first or second": overridden(api(tf.add, one, {"y": masked}), both, lambda: text(tf.add(1.0, m))),
        "by position": overridden(api(tf.add, {0: masked}), both, lambda: text(tf.add(m, 1.0))),
        "annotations": overridden(api(tf.add), annotated, lambda: text(tf.add(m, n))),
        "without name": overridden(api(tf.add, two), nameless, lambda: text(tf.add(m, n, "s"))),
        "scope of a name": overridden(api(tf.add, two), nameless, lambda: tf.add(m, n, "scope").values.op.name[:6]),
        "list": overridden(api(tf.concat, listed), joined, lambda: text(tf.concat([m, n], 0))),
        "empty list": overridden(api(tf.concat, listed), joined, lambda: tf.concat([], 0)),
        "tensors": overridden(api(tf.add, {"x": either, "y": either}), both, lambda: tf.add(tf.constant(1), 2)),
        "tensor and type": overridden(
            api(tf.add, {"x": either, "y": either}), both, lambda: text(tf.add(tf.constant(1.0), m))
        ),
        "no operator": overridden(api(tf.add, {"x": either, "y": either}), both, lambda: m + tf.constant(1.0)),
        "unary": overridden(unaries, unary, lambda: text(tf.abs(m))),
        "unary of nn": overridden(unaries, unary, lambda: text(tf.nn.relu(m))),
        "unary with arguments": overridden(unaries, unary, lambda: text(tf.clip_by_value(m, -1.0, 0.5))),
        "unary by keyword": overridden(unaries, unary, lambda: text(tf.cast(dtype=tf.int32, x=m))),
        "unary of more": overridden(unaries, unary, lambda: tf.reduce_sum(m)),
        "unary with a name": overridden(unaries, unary, lambda: tf.abs(m, name="scope").values.op.name[:6]),
        "binary": overridden(binaries, binary, lambda: text(tf.multiply(m, n))),
        "binary comparison": overridden(binaries, binary, lambda: text(tf.less(m, n))),
        "binary with a tensor": overridden(binaries, binary, lambda: text(tf.maximum(tf.constant(0.0), m))),
        "operator of tensors": overridden(binaries, binary, lambda: text(tf.constant([2.0, 1.0]) - m)),
        "binary operator": overridden(binaries, binary, lambda: text(tf.constant(2.0) * m)),
        "binary of more": overridden(binaries, binary, lambda: tf.matmul(m, n)),
        "assertion": overridden(assertions, asserted, lambda: tf.assert_equal(m, m).name[:12]),
        "unary twice": twice(unaries, unary),
        "binary twice": twice(binaries, binary),
        "api twice": overridden(api(tf.add, two), both, overridden(api(tf.add, one), nameless, lambda: tf.add(m, n))),
        "other parameters": lambda: x.dispatch_for_api(tf.add, two)(lambda a, b: a),
        "any parameters": overridden(api(tf.add, two), lambda *args, **kwargs: 7, lambda: tf.add(m, n)),
        "no annotations": lambda: x.dispatch_for_api(tf.add)(both),
        "unknown parameter": lambda: x.dispatch_for_api(tf.add, {"z": masked}),
        "unknown position": lambda: x.dispatch_for_api(tf.add, {7: masked}),
        "no dict": lambda: x.dispatch_for_api(tf.add, [masked]),
        "wrong annotation": lambda: x.dispatch_for_api(tf.add, {"x": typing.Tuple[int, int]}),  # noqa: UP006
        "no function": lambda: x.dispatch_for_api(tf.add, two)(3),
        "no api": lambda: x.dispatch_for_api(len),
        "not registered": lambda: x.unregister_dispatch_for(text),
        "unregistered": lambda: [
            overridden(api(tf.add, two), both, lambda: 0)(),
            tf.add(m, n),
        ],
    }


def plain(tf: Any, x: Any, run: Callable[[Any], Any]) -> Any:
    """Returns a result as lists, numbers and texts."""
    if isinstance(x, (str, bool, int, float, type(None))):
        return x
    if isinstance(x, dict):
        return {k: plain(tf, v, run) for k, v in x.items()}
    if isinstance(x, (list, tuple)) and not any(map(tf.is_tensor, x)):
        return [plain(tf, v, run) for v in x]
    found = tf.nest.flatten(x, expand_composites=True)
    return [v.tolist() for v in run(found)]


def results(tf: Any) -> dict[str, Any]:
    """Calls all functions: plain results, and lists of the classes of errors."""
    out: dict[str, Any] = {}
    with tf.Graph().as_default(), tf.Session() as session:
        for name, call in [*calls(tf).items(), *((f"dispatch: {k}", f) for k, f in dispatches(tf).items())]:
            try:
                out[name] = plain(tf, call(), session.run)
            except Exception as e:
                out[name] = {"error": [c.__name__ for c in type(e).__mro__[:-2]]}
    return out


def main() -> None:
    """Writes the values of TensorFlow."""
    import tensorflow.compat.v1 as tf

    found = results(tf)
    rows = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    VALUES.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

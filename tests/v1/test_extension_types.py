"""`tf.experimental.ExtensionType`, compared with results of TensorFlow 2.21."""

from __future__ import annotations

import copy
import json
import typing
from typing import Any

import pytest

import headrace as hr
import headrace.v1 as tf
from tests.v1.extension_type_cases import VALUES, results


def differences() -> dict[str, Any]:
    wanted, out = json.loads(VALUES.read_text(encoding="utf-8")), {}
    for name, found in results(tf).items():
        want = wanted.pop(name)
        is_error = isinstance(want, dict) and "error" in want
        same = isinstance(found, dict) and want["error"][0] in found.get("error", ()) if is_error else found == want
        if not same:
            out[name] = (want, found)
    return out | {name: (want, None) for name, want in wanted.items()}


@pytest.mark.system
def test_extension_types_behave_as_tensorflows() -> None:
    assert differences() == {}


class Rows(tf.experimental.BatchableExtensionType):
    values: tf.Tensor
    r: tf.RaggedTensor
    shape: tf.TensorShape
    n: int = 3


class Same(tf.experimental.BatchableExtensionType):
    """A number of all elements, and a value of each."""

    number: tf.Tensor
    value: tf.Tensor

    class Encoder(tf.experimental.ExtensionTypeBatchEncoder):
        def batch(self, spec: Any, batch_size: Any) -> Any:
            return Same.Spec(spec.number, tf.TensorSpec([batch_size, *spec.value.shape], spec.value.dtype))

        def unbatch(self, spec: Any) -> Any:
            return Same.Spec(spec.number, tf.TensorSpec(spec.value.shape[1:], spec.value.dtype))

        def encode(self, spec: Any, value: Any, minimum_rank: int = 0) -> Any:
            return (value.value,)

        def decode(self, spec: Any, encoded_value: Any) -> Any:
            return Same(0, encoded_value[0])

        def encoding_specs(self, spec: Any) -> Any:
            return (spec.value,)

    __batch_encoder__ = Encoder()


class Masked(tf.experimental.ExtensionType):
    values: tf.Tensor
    mask: tf.Tensor
    name: str = "x"


def first(dataset: Any) -> Any:
    """The first element, as lists."""
    element = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        return [x.tolist() for x in session.run(tf.nest.flatten(element, expand_composites=True))]


@pytest.mark.system
def test_datasets_have_extension_types_as_elements() -> None:
    with tf.Graph().as_default():
        whole = Rows([[1, 2], [3, 4], [5, 6]], tf.ragged.constant([[1], [], [2, 3]]), [3, 2])
        d = tf.data.Dataset.from_tensor_slices(whole)
        batches = d.batch(2)
        assert (d.element_spec.shape.as_list(), d.element_spec.n) == ([2], 3)
        assert (batches.element_spec.shape.as_list(), batches.element_spec.r.ragged_rank) == ([None, 2], 1)
        assert batches.unbatch().element_spec == d.element_spec
        assert first(batches) == [[[1, 2], [3, 4]], [1], [0, 1, 1]]
        assert first(batches.unbatch()) == first(d.concatenate(d)) == [[1, 2], [1]]
        assert first(d.filter(lambda x: x.values[0] > 2)) == [[3, 4], []]
        assert first(tf.data.Dataset.zip((d, d))) == [[1, 2], [1], [1, 2], [1]]
        assert first(d.map(lambda x: (x.values * 2, Masked(x.values, x.r)))) == [[2, 4], [1, 2], [1]]
        assert (d.output_types, d.output_classes, d.output_shapes.as_list()) == (d.element_spec, Rows, [2])


def test_an_encoder_decides_the_batches_of_an_extension_type() -> None:
    with tf.Graph().as_default():
        d = tf.data.Dataset.from_tensor_slices(Same(1, [5, 6, 7]))
        assert d.element_spec == Same.Spec(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32))
        assert d.batch(2, drop_remainder=True).element_spec.value.shape == (2,)
        assert first(d.batch(2)) == [0, [5, 6]]


class Vehicle(tf.experimental.BatchableExtensionType):
    top_speed: tf.Tensor
    mpg: tf.Tensor


def test_map_fn_takes_and_returns_batchable_extension_types() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        fleet = Vehicle([120, 150, 80], [30, 40, 12])
        products = tf.map_fn(lambda v: v.top_speed * v.mpg, fleet, fn_output_signature=tf.int32)
        swapped = tf.map_fn(lambda v: Vehicle(v.mpg, v.top_speed), fleet)
        one = tf.TensorSpec([], tf.int32)
        made = tf.map_fn(lambda x: Vehicle(x, x + 1), tf.constant([1, 2]), fn_output_signature=Vehicle.Spec(one, one))
        assert session.run(products).tolist() == [3600, 6000, 960]
        assert (session.run(swapped).top_speed.tolist(), swapped.mpg.shape.as_list()) == ([30, 40, 12], [3])
        assert (session.run(made).mpg.tolist(), made.mpg.shape.as_list()) == ([2, 3], [2])
        with pytest.raises(ValueError, match="nested structure"):
            tf.map_fn(lambda v: v.mpg, fleet)
        with pytest.raises(AttributeError, match="cannot be batched"):
            tf.map_fn(lambda m: m.values, Masked([1.0], [True]))
        with pytest.raises(TypeError, match="can not consume"):
            tf.map_fn(lambda m: m.values, Masked([1.0], [True]), fn_output_signature=tf.float32)


def test_a_loop_takes_the_description_of_an_extension_type_as_its_shape_invariant() -> None:
    def twice(x: Any) -> Any:
        return Masked(tf.concat([x.values, x.values], 0), x.mask)

    with tf.Graph().as_default(), tf.Session() as session:
        x = Masked([1.0], [True])
        wide = Masked.Spec(tf.TensorSpec([None]), tf.TensorSpec([1], tf.bool), "x")
        y = tf.while_loop(lambda x: tf.size(x.values) < 4, twice, [x], shape_invariants=[wide])[0]
        assert (y.values.shape.as_list(), y.mask.shape.as_list()) == ([None], [1])
        assert session.run(y).values.tolist() == [1.0] * 4
        with pytest.raises(ValueError, match="shape"):
            tf.while_loop(lambda x: tf.size(x.values) < 4, twice, [x])
        with pytest.raises(TypeError, match=r"use a Masked\.Spec"):
            tf.while_loop(lambda x: tf.size(x.values) < 4, twice, [x], shape_invariants=[tf.TensorShape([None])])


def test_a_function_takes_the_description_of_an_extension_type_as_its_signature() -> None:
    wide = Masked.Spec(tf.TensorSpec([None]), tf.TensorSpec([1], tf.bool), "x")
    calls = []

    def double(x: Any, y: Any) -> Any:
        calls.append(x.name)
        return Masked(x.values * y, x.mask, "double")

    with tf.Graph().as_default(), tf.Session() as session:
        f = tf.function(double, input_signature=[wide, tf.TensorSpec([])])
        a, b = f(Masked([1.0], [True]), 2.0), f(Masked([1.0, 2.0], [True]), 3.0)
        assert [session.run(t).values.tolist() for t in (a, b)] == [[2.0], [3.0, 6.0]]
        assert (calls, a.name) == (["x"], "double")
        for wrong in (Masked([1.0], [True], "y"), tf.constant([1.0]), Masked([1.0], [True, False])):
            with pytest.raises(ValueError, match=r"input_signature|must be"):
                f(wrong, 2.0)
    jitted = hr.jit(double, input_signature=[wide, hr.TensorSpec([])])
    assert jitted(Masked(hr.constant([4.0]), hr.constant([False])), 2.0).values.numpy().tolist() == [8.0]


def test_sessions_fetch_extension_types_with_arrays() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = Masked([1.0], [True]), Masked([1.0], [True], "y")
        found = session.run({"x": x, "y": (y, tf.constant(3))})
        assert (found["x"].values.tolist(), found["x"].name, found["y"][0].name, found["y"][1]) == ([1.0], "x", "y", 3)
        z = Masked(x.values, x.mask, "z")  # the same tensors under another name
        assert session.run(z).name == "z"
        whole = Rows([[1]], tf.ragged.constant([[1, 2]]), [1])
        assert session.run(whole).r.to_list() == [[1, 2]]


def test_functions_take_and_return_extension_types() -> None:
    calls = []

    def double(x: Any) -> Any:
        calls.append(x.name)
        return Masked(x.values * 2.0, x.mask, x.name + "2")

    with tf.Graph().as_default(), tf.Session() as session:
        f = tf.function(double)
        a, b, c = f(Masked([1.0], [True])), f(Masked([2.0], [True])), f(Masked([3.0], [True], "y"))
        assert [session.run(t).values.tolist() for t in (a, b, c)] == [[2.0], [4.0], [6.0]]
        assert (a.name, c.name, calls) == ("x2", "y2", ["x", "y"])
    jitted = hr.jit(double)
    found = jitted(Masked(hr.constant([4.0]), hr.constant([False])))
    assert (found.values.numpy().tolist(), found.name) == ([8.0], "x2")


def test_converted_loops_and_conditionals_change_extension_types() -> None:
    def doubled(x: Any, n: Any) -> Any:
        while n > 0:
            n = n - 1
            x = Masked(x.values * 2.0, x.mask)
        if x.values[0] > 100.0:
            x = Masked(x.values + 1.0, x.mask)
        return x

    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.autograph.to_graph(doubled)(Masked([1.0], [True]), tf.constant(8))
        assert session.run(found).values.tolist() == [257.0]


class Named(tf.experimental.ExtensionType):
    __name__ = "tests.Named"
    m: tuple[Masked, ...]
    d: typing.Mapping[str, tf.Tensor]
    f: float = 2.5


def test_annotations_that_are_texts_name_classes_of_the_function_around_them() -> None:
    class Inner(tf.experimental.ExtensionType):
        x: tf.Tensor

    class Outer(tf.experimental.ExtensionType):
        inner: Inner
        later: typing.Optional[Later]  # noqa: UP045, F821

    with tf.Graph().as_default(), pytest.raises(TypeError, match="Unsupported type annotation"):
        Outer(Inner(1.0), None)

    class Again(tf.experimental.ExtensionType):
        inner: Inner
        number: int = 3

    with tf.Graph().as_default():
        assert Again(Inner(1.0)).number == 3
        with pytest.raises(TypeError, match="inner: expected 'Inner', got 'float'"):
            Again(1.0)


def test_transformations_of_eager_functions_take_extension_types() -> None:
    class Point(tf.experimental.ExtensionType):
        x: tf.Tensor
        name: str

    p = Point(hr.constant([1.0, 2.0]), "p")
    gradient = hr.grad(lambda p: hr.reduce_sum(p.x * p.x))(p)
    assert (type(gradient), gradient.x.numpy().tolist(), gradient.name) == (Point, [2.0, 4.0], "p")
    assert hr.vmap(lambda p: p.x * 3.0)(p).numpy().tolist() == [3.0, 6.0]
    chosen = hr.cond(hr.constant(True), lambda: p, lambda: gradient)
    assert chosen.x.numpy().tolist() == [1.0, 2.0]


def test_extension_types_are_copied() -> None:
    with tf.Graph().as_default():
        x = Masked([1.0], [True], "y")
        for y in (copy.copy(x), copy.deepcopy(x)):
            assert (y.values, y.name, tf.nest.flatten(y, expand_composites=True)) == (x.values, "y", [x.values, x.mask])
        spec = tf.type_spec_from_value(x)
        assert copy.copy(spec) == copy.deepcopy(spec) == spec


@pytest.mark.parametrize("name", ["_parts", "_key", "_flatten", "is_fetched_as_itself"])
def test_a_field_cannot_have_the_name_of_an_attribute_that_the_class_needs(name: str) -> None:
    with pytest.raises(ValueError, match=f"Field '{name}' is reserved"):
        type(Masked)("Wrong", (tf.experimental.ExtensionType,), {"__annotations__": {name: int}})


def test_messages_describe_extension_types() -> None:
    spec = Named.Spec((), {"a": tf.TensorSpec([None, 2], tf.int32)}, 2.5)
    message = spec.experimental_as_proto()
    assert (message.type_spec_class_name, message.num_flat_components) == ("tests.Named.Spec", 1)
    assert Named.Spec.experimental_from_proto(message) == spec
    with pytest.raises(ValueError, match="No encoder for object"):
        Masked.Spec(tf.TensorSpec([]), tf.TensorSpec([]), "x").experimental_as_proto()
    message.type_spec_class_name = "another"
    with pytest.raises(ValueError, match="has not been registered"):
        Named.Spec.experimental_from_proto(message)


def test_an_override_ends_when_it_is_unregistered() -> None:
    @tf.experimental.dispatch_for_api(tf.abs, {"x": Masked})
    def absolute(x: Any, name: Any = None) -> Any:
        return Masked(tf.abs(x.values), x.mask)

    with tf.Graph().as_default():
        x = Masked([-1.0], [True])
        assert isinstance(tf.abs(x), Masked)
        tf.experimental.unregister_dispatch_for(absolute)
        with pytest.raises(TypeError):
            tf.abs(x)
        with pytest.raises(ValueError, match="was not registered"):
            tf.experimental.unregister_dispatch_for(absolute)

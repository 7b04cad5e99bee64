"""Datasets: input pipelines of elements that are made, changed and batched one after the other.

A `Dataset` is a variant tensor with the description of its elements. Its methods add an op of `ops.data` to the graph
of the variant, or run it outside of graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from headrace import dtypes, nest, shapes, tracebacks
from headrace.api import scopes, tracing
from headrace.api.data import functions, iterators, structure
from headrace.api.data.structure import DatasetSpec
from headrace.api.random import seeds
from headrace.api.sparse_tensor import SparseTensor, SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import SignatureError
from headrace.ir.graph import Tensor
from headrace.ir.infer import constant_value

AUTOTUNE = -1
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2

D = TypeVar("D", bound="Dataset")


class Dataset:
    """Sequence of elements, which are nested structures of tensors.

    Args:
      variant_tensor: the variant.
      element_spec: the description of an element.

    Attributes:
      variant_tensor: the scalar variant that represents the dataset in its graph.
      element_spec: the description of an element: a structure of `TensorSpec`s, `SparseTensorSpec`s and `DatasetSpec`s.

    Source: TensorFlow's `tf.data.Dataset`.

    Example:
      >>> import headrace as hr
      >>> numbers = hr.data.Dataset.range(6).filter(lambda x: x % 3 > 0).map(lambda x: x * 10)
      >>> [batch.numpy().tolist() for batch in numbers.batch(3)]
      [[10, 20, 40], [50]]
    """

    #: Whether `map` reports an OutOfRangeError of its function; else such an error ends the dataset.
    _keeps_cardinality = True

    def __init__(self, variant_tensor: Any, element_spec: Any) -> None:
        self.variant_tensor = variant_tensor
        self.element_spec = element_spec

    @classmethod
    def _door(cls) -> type[Dataset]:
        """Returns the class of the datasets that methods return."""
        return Dataset

    @property
    def graph(self) -> Any:
        """The graph of the dataset; None outside of graphs."""
        return self.variant_tensor.op.graph if isinstance(self.variant_tensor, Tensor) else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.element_spec}>"

    # *** making ops ***

    @classmethod
    def _new(cls, b: Any, type: str, args: Sequence[Any], spec: Any, attrs: Mapping[str, Any] | None = None) -> Any:
        made = b.make(type, args, {**structure.attributes(spec), **(attrs or {})})
        return cls._door()(made, spec)

    def _changed(
        self, type: str, args: Sequence[Any] = (), spec: Any = None, attrs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the dataset of an op on this one and `args`; Python integers become int64."""
        b = scopes.builder(self.variant_tensor, *args)
        tensors = [_int64(b, a) for a in args]
        spec = self.element_spec if spec is None else spec
        return self._new(b, type, [b.tensor(self.variant_tensor), *tensors], spec, attrs)

    def _traced(self, fn: Callable[..., Any], what: str, spec: Any = None, **options: Any) -> Any:
        """Returns the builder of an op with a function, and the traced function."""
        b = scopes.builder(self.variant_tensor)
        spec = self.element_spec if spec is None else spec
        traced = functions.traced(b, fn, spec, what, self._door(), **options)
        return functions.with_controls(b, traced), traced

    def _with_function(
        self, type: str, traced: Any, b: Any, args: Sequence[Any], spec: Any, attrs: Mapping[str, Any]
    ) -> Any:
        """Returns the dataset of an op on this one, the captured tensors and `args`."""
        captured = {"Targuments": tuple(t.dtype.base for t in traced.captured)}
        inputs = [b.tensor(self.variant_tensor), traced.captured, *[_int64(b, a) for a in args]]
        return self._new(b, type, inputs, spec, {**captured, **attrs})

    # *** sources ***

    @classmethod
    @tracebacks.entry
    def from_tensors(cls, tensors: Any) -> Any:
        """Returns a dataset of one element.

        Args:
          tensors: the element.

        Example:
          >>> import headrace as hr
          >>> [x.numpy().tolist() for x in hr.data.Dataset.from_tensors([1, 2])]
          [[1, 2]]
        """
        leaves = structure.flatten(tensors)
        b = scopes.builder(*leaves)
        parts, specs = zip(*[structure.component(leaf, b) for leaf in leaves], strict=True)
        return cls._given("TensorDataset", b, parts, specs, tensors, [structure.component_shape(s) for s in specs])

    @classmethod
    @tracebacks.entry
    def from_tensor_slices(cls, tensors: Any) -> Any:
        """Returns a dataset of the rows of tensors.

        Args:
          tensors: a nested structure of tensors with equal first dimensions.

        Raises:
          ValueError: a tensor is a scalar.
          InvalidArgumentError: the first dimensions differ.

        Example:
          >>> import headrace as hr
          >>> features = {"x": [1.0, 2.0], "y": [3, 4]}
          >>> [int(element["y"]) for element in hr.data.Dataset.from_tensor_slices(features)]
          [3, 4]
        """
        leaves, like = structure.with_rows(tensors)
        b = scopes.builder(*leaves)
        parts, specs = zip(*[structure.rows(leaf, b) for leaf in leaves], strict=True)
        return cls._given("TensorSliceDataset", b, parts, specs, like, [structure.component_shape(s) for s in specs])

    @classmethod
    def _given(
        cls, type: str, b: Any, parts: Sequence[Any], specs: Sequence[Any], like: Any, known: Sequence[Any]
    ) -> Any:
        made = b.make(type, (list(parts),), {"output_shapes": tuple(known)})
        return cls._door()(made, structure.pack(like, specs))

    @classmethod
    @tracebacks.entry
    def from_generator(
        cls,
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] = (),
        output_signature: Any = None,
    ) -> Any:
        """Returns a dataset of the elements of a Python iterator.

        Args:
          generator: a function that returns an iterable; each pass calls it once.
          output_types: the structure of the dtypes of an element.
          output_shapes: the structure of their shapes; None: any.
          args: tensors whose values `generator` receives, as arrays.
          output_signature: the structure of `TensorSpec`s, in place of types and shapes.

        Raises:
          TypeError: neither `output_types` nor `output_signature` is given.

        Example:
          >>> import headrace as hr
          >>> count = hr.data.Dataset.from_generator(lambda: iter([1, 2, 3]), hr.int32, ())
          >>> [int(x) for x in count]
          [1, 2, 3]
        """
        from headrace.api.data.generators import generated  # which imports py_func

        return generated(cls._door(), generator, _signature(output_types, output_shapes, output_signature), args)

    @classmethod
    @tracebacks.entry
    def range(cls, *args: Any, output_type: Any = dtypes.int64) -> Any:
        """Returns a dataset of numbers.

        Args:
          args: start, stop and step, as in Python's `range`.
          output_type: the dtype.

        Example:
          >>> import headrace as hr
          >>> [int(x) for x in hr.data.Dataset.range(5, 0, -2)]
          [5, 3, 1]
        """
        if not 1 <= len(args) <= 3:
            raise ValueError(f"`range` takes 1 to 3 numbers (start, stop, step), got {len(args)}")
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        b = scopes.builder(*args)
        inputs = [_int64(b, x) for x in (start, stop, step)]
        return cls._new(b, "RangeDataset", inputs, TensorSpec((), output_type))

    @classmethod
    @tracebacks.entry
    def random(
        cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Any:
        """Returns a dataset of random int64 numbers in [0, 2**32), without an end.

        Args:
          seed: the seed, as for `hr.random.uniform`.
          rerandomize_each_iteration: whether each pass has other numbers.
          name: accepted, without an effect.

        Example:
          >>> import headrace as hr
          >>> ok = [0 <= int(x) < 2**32 for x in hr.data.Dataset.random(seed=1).take(2)]
          >>> ok
          [True, True]
        """
        b = scopes.builder()
        spec = TensorSpec((), dtypes.int64)
        if not rerandomize_each_iteration:
            return cls._new(b, "RandomDataset", _seeds(b, seed), spec)
        inputs = [*_seeds(b, seed), b.make("DummySeedGenerator", (), {})]
        return cls._new(b, "RandomDatasetV2", inputs, spec, {"rerandomize_each_iteration": True})

    @classmethod
    @tracebacks.entry
    def counter(cls, start: Any = 0, step: Any = 1, dtype: Any = dtypes.int64) -> Any:
        """Returns a dataset that counts without an end.

        Args:
          start: the first number.
          step: the difference of numbers that follow one another.
          dtype: the dtype.

        Example:
          >>> import headrace as hr
          >>> [int(x) for x in hr.data.Dataset.counter(10, -3).take(3)]
          [10, 7, 4]
        """
        b = scopes.builder(start, step)
        kind = dtypes.as_dtype(dtype)
        first, each = (b.Cast(b.tensor(x), DstT=kind) for x in (start, step))
        endless = cls.from_tensors(b.const(0, dtypes.int32)).repeat(None)
        return endless.scan(first, lambda state, _: (state + each, state))

    @classmethod
    @tracebacks.entry
    def from_list(cls, elements: Sequence[Any], name: str | None = None) -> Any:
        """Returns a dataset of the elements of a Python list.

        Args:
          elements: the elements, of one structure.
          name: accepted, without an effect.

        Raises:
          ValueError: there are none, or it is no list.
          TypeError: their structures or dtypes differ.

        Source: TensorFlow's `tf.data.experimental.from_list`.

        Example:
          >>> import headrace as hr
          >>> pairs = hr.data.Dataset.from_list([(1, "a"), (2, "b")])
          >>> [(int(n), text.numpy()) for n, text in pairs]
          [(1, b'a'), (2, b'b')]
        """
        if not isinstance(elements, list):
            raise ValueError(f"Invalid `elements`. `elements` must be a list, got {type(elements).__name__}.")
        if not elements:
            raise ValueError(
                "Invalid `elements`. `elements` should not be empty. If you want an empty dataset, use "
                "`Dataset.range(0)`."
            )
        b = scopes.builder(*[leaf for e in elements for leaf in structure.flatten(e)])
        parts, spec = [], None
        for e in elements:
            made = [structure.component(leaf, b) for leaf in structure.flatten(e)]
            parts += [part for part, _ in made]
            own = structure.pack(e, [s for _, s in made])
            spec = own if spec is None else structure.joined(spec, own)
        return cls._new(b, "ListDataset", (parts,), spec)

    @classmethod
    @tracebacks.entry
    def load(
        cls,
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Any], Any] | None = None,
        wait: bool = False,
    ) -> Any:
        """Returns a dataset of the elements that `save` wrote.

        Args:
          path: the folder.
          element_spec: the description of the elements.
          compression: accepted; the folder tells it.
          reader_func: a function from the dataset of the shards, which are datasets, to a dataset; None: one element
            of each shard in turn.
          wait: accepted, without an effect: a folder is complete.

        Raises:
          ValueError: `element_spec` is not given.

        Example:
          >>> import headrace as hr, tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     _ = hr.data.Dataset.range(3).save(f"{folder}/numbers")
          ...     [int(x) for x in hr.data.Dataset.load(f"{folder}/numbers", hr.TensorSpec((), hr.int64))]
          [0, 1, 2]
        """
        if element_spec is None:
            raise ValueError("`load` needs `element_spec`, that of the dataset that was saved")
        b = scopes.builder(path)
        read = functions.traced(b, reader_func or _in_turn, DatasetSpec(DatasetSpec(element_spec)), "load", cls._door())
        b = functions.with_controls(b, read)
        inputs = [b.tensor(path, dtypes.string), read.captured]
        attrs = {"reader_func": read.attr, "compression": compression or ""}
        return cls._new(b, "LoadDataset", inputs, _inner(read, "load"), attrs)

    @classmethod
    @tracebacks.entry
    def list_files(cls, file_pattern: Any, shuffle: Any = None, seed: int | None = None) -> Any:
        """Returns a dataset of the names of files that match a pattern.

        Args:
          file_pattern: a pattern, or several.
          shuffle: False: the names are sorted; else their order is random.
          seed: the seed of the order.

        Raises (when it runs):
          InvalidArgumentError: no file matches.
        """
        from headrace.api import io
        from headrace.api.debugging import Assert

        b = scopes.builder(file_pattern)
        names = io.matching_files(file_pattern)
        n = b.Size(names, out_type=dtypes.int64)
        found = Assert(b.Greater(n, b.const(0, dtypes.int64)), ["No files matched pattern: ", file_pattern])
        names = (b if found is None else b.after(found)).Identity(names)
        files = cls.from_tensor_slices(names)
        if shuffle is False:
            return files
        return files.shuffle(b.Maximum(n, b.const(1, dtypes.int64)), seed=seed)

    @classmethod
    @tracebacks.entry
    def zip(cls, *datasets: Any) -> Any:
        """Returns a dataset of tuples of one element of each dataset.

        The shortest dataset ends it.

        Args:
          datasets: the datasets, or one nested structure of them.

        Example:
          >>> import headrace as hr
          >>> a, b = hr.data.Dataset.range(2), hr.data.Dataset.range(10, 15)
          >>> [(int(x), int(y)) for x, y in hr.data.Dataset.zip((a, b))]
          [(0, 10), (1, 11)]
        """
        given = datasets[0] if len(datasets) == 1 else datasets
        leaves = structure.flatten(given)
        for d in leaves:
            if not isinstance(d, Dataset):
                raise TypeError(
                    f"The argument to `Dataset.zip()` must be a (nested) structure of `Dataset` objects, got {d!r}"
                )
        spec = nest.pack(given, [d.element_spec for d in leaves], expand=False, is_leaf=structure.is_dataset)
        b = scopes.builder(*[d.variant_tensor for d in leaves])
        return cls._new(b, "ZipDataset", ([b.tensor(d.variant_tensor) for d in leaves],), spec)

    @classmethod
    @tracebacks.entry
    def choose_from_datasets(
        cls, datasets: Sequence[Any], choice_dataset: Any, stop_on_empty_dataset: bool = True
    ) -> Any:
        """Returns a dataset whose elements come from several datasets.

        Args:
          datasets: the datasets.
          choice_dataset: a dataset of int64 scalars: the number of the dataset of each element.
          stop_on_empty_dataset: whether the end of one of them is the end.

        Example:
          >>> import headrace as hr
          >>> a, b = hr.data.Dataset.range(3), hr.data.Dataset.range(10, 13)
          >>> choice = hr.data.Dataset.from_tensor_slices(hr.constant([0, 1, 1, 0], hr.int64))
          >>> [int(x) for x in hr.data.Dataset.choose_from_datasets([a, b], choice)]
          [0, 10, 11, 1]
        """
        spec = datasets[0].element_spec
        for d in datasets[1:]:
            spec = structure.joined(spec, d.element_spec)
        if choice_dataset.element_spec != TensorSpec((), dtypes.int64):
            raise TypeError(
                f"`choice_dataset` must have elements of dtype int64 and shape [], got {choice_dataset.element_spec}"
            )
        b = scopes.builder(*[d.variant_tensor for d in datasets])
        inputs = [b.tensor(choice_dataset.variant_tensor), [b.tensor(d.variant_tensor) for d in datasets]]
        attrs = {"stop_on_empty_dataset": stop_on_empty_dataset}
        return cls._new(b, "DirectedInterleaveDataset", inputs, spec, attrs)

    @classmethod
    @tracebacks.entry
    def sample_from_datasets(
        cls,
        datasets: Sequence[Any],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
    ) -> Any:
        """Returns a dataset whose elements come from several datasets at random.

        Args:
          datasets: the datasets.
          weights: the probability of each; None: equal ones. A dataset: the probabilities for each element.
          seed: the seed.
          stop_on_empty_dataset: whether the end of one of them is the end.

        Raises:
          ValueError: the number of weights is not that of the datasets.
        """
        from headrace.api import random
        from headrace.api.data.structure import is_dataset

        datasets = list(datasets)
        if weights is None:
            weights = [1.0 / len(datasets)] * len(datasets)
        pairs = cls._door().random(seed).batch(2)

        def draw(logits: Any, pair: Any) -> Any:
            return random.stateless_categorical(logits, 1, pair)[0, 0]

        if is_dataset(weights):
            both = cls._door().zip((weights.map(_logits), pairs))
            return cls.choose_from_datasets(datasets, both.map(draw), stop_on_empty_dataset)
        if isinstance(weights, (list, tuple)) and len(weights) != len(datasets):
            raise ValueError(f"{len(weights)} weights for {len(datasets)} datasets; give one weight for each")
        if isinstance(weights, (list, tuple)) and all(isinstance(w, (int, float)) for w in weights):
            datasets = [d for d, w in zip(datasets, weights, strict=True) if w]  # the others are never chosen
            weights = np.array([w for w in weights if w], np.float32)
        logits = _logits(weights)
        return cls.choose_from_datasets(datasets, pairs.map(lambda pair: draw(logits, pair)), stop_on_empty_dataset)

    # *** transformations without functions ***

    @tracebacks.entry
    def assert_cardinality(self, expected_cardinality: Any) -> Any:
        """Returns a dataset of the same elements, whose number is asserted; then it is known.

        Args:
          expected_cardinality: the number; -1: the dataset has no end.

        Raises (when it runs):
          FailedPreconditionError: there are more or fewer elements.

        Source: TensorFlow's `tf.data.experimental.assert_cardinality`.

        Example:
          >>> import headrace as hr
          >>> even = hr.data.Dataset.range(6).filter(lambda x: x % 2 < 1)
          >>> len(even.assert_cardinality(3))
          3
        """
        return self._changed("AssertCardinalityDataset", (expected_cardinality,))

    @tracebacks.entry
    def rebatch(self, batch_size: Any, drop_remainder: bool = False) -> Any:
        """Returns a dataset of the rows of batches, in batches of another size.

        Args:
          batch_size: the number of rows in a batch; several: those of the batches in turn.
          drop_remainder: whether a last batch of fewer rows is left out.

        Example:
          >>> import headrace as hr
          >>> [x.numpy().tolist() for x in hr.data.Dataset.range(5).batch(2).rebatch(3)]
          [[0, 1, 2], [3, 4]]
        """
        b = scopes.builder(self.variant_tensor, batch_size)
        sizes = b.tensor(np.asarray(batch_size, np.int64) if isinstance(batch_size, (int, list)) else batch_size)
        known = batch_size if isinstance(batch_size, int) and drop_remainder else None
        spec = structure.batched(structure.unbatched(self.element_spec), known)
        inputs = [b.tensor(self.variant_tensor), _int64(b, sizes), b.tensor(drop_remainder, dtypes.bool_)]
        return self._new(b, "RebatchDatasetV2", inputs, spec)

    @tracebacks.entry
    def sparse_batch(self, batch_size: Any, row_shape: Any) -> Any:
        """Returns a dataset of consecutive elements as rows of sparse tensors.

        Args:
          batch_size: the number of elements in a batch.
          row_shape: the shape of a row; an unknown dimension becomes the largest one in the batch.

        Raises (when it runs):
          DataLossError: an element is larger than a row.

        Example:
          >>> import headrace as hr
          >>> rows = hr.data.Dataset.range(1, 3).map(lambda n: hr.fill([n], n))
          >>> [hr.sparse.to_dense(x).numpy().tolist() for x in rows.sparse_batch(2, [None])]
          [[[1, 0], [2, 2]]]
        """
        spec = self.element_spec
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"`sparse_batch` takes elements that are one dense tensor, got {spec}")
        wanted = shapes.as_shape(row_shape)
        if wanted is None:
            raise ValueError("the rank of `row_shape` must be known")

        from headrace.api.debugging import Assert

        def sparse(x: Any) -> Any:
            b = scopes.builder(x)
            size = b.Shape(x, out_type=dtypes.int64)
            largest = b.const([np.iinfo(np.int64).max if n is None else n for n in wanted], dtypes.int64)
            fits = Assert(
                b.All(b.LessEqual(size, largest), b.const([0], dtypes.int32)),
                [f"Input element had a shape larger than the row shape ({shapes.show(wanted)}):", size],
            )
            b = b if fits is None else b.after(fits)
            known = b.SelectV2(b.Equal(largest, b.const(np.iinfo(np.int64).max, dtypes.int64)), size, largest)
            everywhere = b.Where(b.Fill(size, b.const(True, dtypes.bool_)))
            found = SparseTensor(everywhere, b.Reshape(x, b.const([-1], dtypes.int32)), known)
            if isinstance(x, Tensor):
                found.set_shape(wanted)
            return found

        return self.map(sparse).batch(batch_size)

    def apply(self, transformation_func: Callable[[Any], Any]) -> Any:
        """Returns `transformation_func(self)`, a dataset.

        Raises:
          TypeError: it returned something else.
        """
        out = transformation_func(self)
        if not isinstance(out, Dataset):
            raise TypeError(f"`transformation_func` must return a `Dataset`, got {out!r}")
        return out

    @tracebacks.entry
    def batch(self, batch_size: Any, drop_remainder: bool = False, num_parallel_calls: Any = None) -> Any:
        """Returns a dataset of consecutive elements, stacked.

        Args:
          batch_size: the number of elements in a batch.
          drop_remainder: whether a last batch of fewer elements is left out.
          num_parallel_calls: accepted, without an effect.

        Example:
          >>> import headrace as hr
          >>> [x.numpy().tolist() for x in hr.data.Dataset.range(5).batch(2)]
          [[0, 1], [2, 3], [4]]
        """
        size = _constant(batch_size) if drop_remainder is True else None
        spec = structure.batched(self.element_spec, size)
        b = scopes.builder(self.variant_tensor, batch_size)
        inputs = [b.tensor(self.variant_tensor), _int64(b, batch_size), b.tensor(drop_remainder, dtypes.bool_)]
        leaves = structure.flatten(spec)
        if not any(isinstance(s, SparseTensorSpec) for s in leaves):
            return self._new(b, "BatchDatasetV2", inputs, spec)
        rows = [structure.SparseRowsSpec(s) if isinstance(s, SparseTensorSpec) else s for s in leaves]
        batches = self._new(b, "BatchDatasetV2", inputs, structure.pack(spec, rows))
        return batches.map(lambda *parts: parts if type(spec) is tuple else parts[0])

    @tracebacks.entry
    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Any:
        """Returns a dataset of consecutive elements, padded to equal shapes and stacked.

        Args:
          batch_size: the number of elements in a batch.
          padded_shapes: the structure of the shapes; an unknown dimension becomes the largest one in the batch. None:
            those of the elements.
          padding_values: the structure of the scalars that fill up; None: zeros and empty strings.
          drop_remainder: whether a last batch of fewer elements is left out.

        Raises:
          ValueError: the rank of an element is unknown and there are no `padded_shapes`.

        Example:
          >>> import headrace as hr
          >>> rows = hr.data.Dataset.range(1, 4).map(lambda n: hr.fill([n], n))
          >>> [x.numpy().tolist() for x in rows.padded_batch(2, [None])]
          [[[1, 0], [2, 2]], [[3, 3, 3]]]
        """
        spec = self.element_spec
        leaves = structure.flatten(spec)
        b = scopes.builder(self.variant_tensor, batch_size)
        if any(not isinstance(s, TensorSpec) for s in leaves):
            raise TypeError(f"Padded batching takes elements of dense tensors, got {spec}")
        if padded_shapes is None:
            if any(s.shape is None for s in leaves):
                raise ValueError("an element has an unknown rank; give `padded_shapes`")
            padded = [s.shape for s in leaves]
        else:
            padded = [_padded_shape(s) for s in _like(spec, padded_shapes)]
        size = _constant(batch_size) if drop_remainder is True else None
        known = [(size, *(s if isinstance(s, tuple) else _unknown(s))) for s in padded]
        fill: list[Any] = [None] * len(leaves)
        if padding_values is not None:
            fill = _like(spec, padding_values) if nest.is_nested(padding_values) else [padding_values] * len(leaves)
        fill = [_padding(b, v, s) for v, s in zip(fill, leaves, strict=True)]
        wanted = [_shape_tensor(b, s) for s in padded]
        inputs = [
            b.tensor(self.variant_tensor),
            _int64(b, batch_size),
            wanted,
            fill,
            b.tensor(drop_remainder, dtypes.bool_),
        ]
        made = b.make("PaddedBatchDatasetV2", inputs, {"output_shapes": tuple(known)})
        specs = [TensorSpec(k, s.dtype) for k, s in zip(known, leaves, strict=True)]
        return self._door()(made, structure.pack(spec, specs))

    @tracebacks.entry
    def unbatch(self) -> Any:
        """Returns a dataset of the rows of the elements.

        Raises:
          ValueError: a component is a scalar.

        Example:
          >>> import headrace as hr
          >>> [int(x) for x in hr.data.Dataset.range(3).batch(2).unbatch()]
          [0, 1, 2]
        """
        spec = self.element_spec
        if all(isinstance(s, TensorSpec) for s in structure.flatten(spec)):
            return self._changed("UnbatchDataset", (), structure.unbatched(spec))
        door = self._door()
        return self.flat_map(lambda *parts: door.from_tensor_slices(parts if type(spec) is tuple else parts[0]))

    def repeat(self, count: Any = None) -> Any:
        """Returns a dataset of `count` passes over this one; None or -1: without an end."""
        return self._changed("RepeatDataset", (-1 if count is None else count,))

    def take(self, count: Any) -> Any:
        """Returns a dataset of the first `count` elements; -1: of all."""
        return self._changed("TakeDataset", (count,))

    def skip(self, count: Any) -> Any:
        """Returns a dataset without the first `count` elements; -1: without any."""
        return self._changed("SkipDataset", (count,))

    def shard(self, num_shards: Any, index: Any) -> Any:
        """Returns a dataset of every `num_shards`-th element, from number `index` on.

        Example:
          >>> import headrace as hr
          >>> [int(x) for x in hr.data.Dataset.range(7).shard(3, 1)]
          [1, 4]
        """
        if isinstance(num_shards, int) and num_shards < 1:
            raise ValueError(f"`num_shards` must be >= 1, got {num_shards}")
        if isinstance(index, int) and isinstance(num_shards, int) and not 0 <= index < num_shards:
            raise ValueError(f"`index` must be in [0, {num_shards}), got {index}")
        return self._changed("ShardDataset", (num_shards, index))

    @tracebacks.entry
    def shuffle(self, buffer_size: Any, seed: int | None = None, reshuffle_each_iteration: bool | None = None) -> Any:
        """Returns a dataset of the elements in random order.

        Args:
          buffer_size: the number of elements among which each next one is chosen; -1: all.
          seed: the seed. With it, and that of the graph, the order is that of TensorFlow.
          reshuffle_each_iteration: whether each pass has another order; None: it has.

        Example:
          >>> import headrace as hr
          >>> sorted(int(x) for x in hr.data.Dataset.range(4).shuffle(4, seed=1))
          [0, 1, 2, 3]
        """
        b = scopes.builder(self.variant_tensor, buffer_size)
        inputs = [b.tensor(self.variant_tensor), _int64(b, buffer_size), *_seeds(b, seed)]
        attrs = {"reshuffle_each_iteration": reshuffle_each_iteration is not False}
        return self._new(b, "ShuffleDataset", inputs, self.element_spec, attrs)

    def prefetch(self, buffer_size: Any) -> Any:
        """Returns a dataset whose next `buffer_size` elements a thread computes; -1: any number."""
        return self._changed("PrefetchDataset", (buffer_size,))

    def cache(self, filename: Any = "") -> Any:
        """Returns a dataset that keeps the elements of its first complete pass.

        Args:
          filename: the file of the elements; "": they stay in memory.
        """
        b = scopes.builder(self.variant_tensor, filename)
        inputs = [b.tensor(self.variant_tensor), b.tensor(filename, dtypes.string)]
        return self._new(b, "CacheDataset", inputs, self.element_spec)

    @tracebacks.entry
    def concatenate(self, dataset: Any) -> Any:
        """Returns a dataset of the elements of this one, then of another.

        Raises:
          TypeError: their elements have different structures or dtypes.
        """
        spec = structure.joined(self.element_spec, dataset.element_spec)
        b = scopes.builder(self.variant_tensor, dataset.variant_tensor)
        inputs = [b.tensor(self.variant_tensor), b.tensor(dataset.variant_tensor)]
        return self._new(b, "ConcatenateDataset", inputs, spec)

    def enumerate(self, start: Any = 0) -> Any:
        """Returns a dataset of pairs of a number, from `start` on, and an element.

        Example:
          >>> import headrace as hr
          >>> letters = hr.data.Dataset.from_tensor_slices(["a", "b"])
          >>> [(int(i), x.numpy()) for i, x in letters.enumerate(5)]
          [(5, b'a'), (6, b'b')]
        """
        numbers = self._door().range(start, np.iinfo(np.int64).max)
        return self._door().zip((numbers, self))

    @tracebacks.entry
    def window(self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: bool = False) -> Any:
        """Returns a dataset of windows: for each component a dataset of `size` elements.

        Args:
          size: the number of elements in a window.
          shift: the number of elements from one window to the next; None: `size`.
          stride: the number of elements from one element of a window to the next.
          drop_remainder: whether windows with fewer elements are left out.

        Example:
          >>> import headrace as hr
          >>> windows = hr.data.Dataset.range(5).window(3, shift=1, drop_remainder=True)
          >>> [x.numpy().tolist() for x in windows.flat_map(lambda w: w.batch(3))]
          [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
        """
        spec = structure.pack(self.element_spec, [DatasetSpec(s) for s in structure.flatten(self.element_spec)])
        b = scopes.builder(self.variant_tensor, size, shift, stride)
        sizes = [_int64(b, x) for x in (size, size if shift is None else shift, stride)]
        inputs = [b.tensor(self.variant_tensor), *sizes, b.tensor(drop_remainder, dtypes.bool_)]
        return self._new(b, "WindowDataset", inputs, spec)

    def unique(self) -> Any:
        """Returns a dataset of the first of each group of equal elements."""
        return self._changed("UniqueDataset")

    def ignore_errors(self, log_warning: bool = False) -> Any:
        """Returns a dataset of the elements that can be made without an error.

        Example:
          >>> import headrace as hr
          >>> halves = hr.data.Dataset.range(3).map(lambda x: hr.check_numerics(1 / (x - 1), "no number"))
          >>> [float(x) for x in halves.ignore_errors()]
          [-1.0, 1.0]
        """
        return self._changed("IgnoreErrorsDataset", (), None, {"log_warning": log_warning})

    def options(self) -> Any:
        """Returns the options of this dataset and of those that it is made of."""
        from headrace.api.data.options import of_variant  # which programs use rarely

        variant = self.variant_tensor
        return of_variant(variant if isinstance(variant, Tensor) else variant.numpy())

    @tracebacks.entry
    def with_options(self, options: Any) -> Any:
        """Returns a dataset of the same elements, with options.

        Args:
          options: the options, `hr.data.Options`.
        """
        text = options.to_bytes().decode(errors="surrogateescape")
        return self._changed("OptionsDataset", (), None, {"serialized_options": text})

    @tracebacks.entry
    def snapshot(
        self,
        path: Any,
        compression: str | None = "AUTO",
        reader_func: Callable[[Any], Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
    ) -> Any:
        """Returns a dataset that its first complete pass writes to a folder.

        Args:
          path: the folder, which belongs to this dataset alone.
          compression: None, "GZIP" or "ZLIB"; "AUTO" and "SNAPPY" stand for None.
          reader_func: a function from the dataset of the shards, which are datasets, to a dataset; None: one element
            of each shard in turn.
          shard_func: a function from an element to the number of its shard, an int64 scalar; None: one shard.

        Example:
          >>> import headrace as hr, tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     kept = hr.data.Dataset.random(seed=None).take(3).snapshot(f"{folder}/random")
          ...     [int(x) for x in kept] == [int(x) for x in kept]
          True
        """
        key = TensorSpec((), dtypes.int64)
        b, shard = self._traced(shard_func or _no_shard, "snapshot", results=key)
        _, read = self._traced(reader_func or _in_turn, "snapshot", DatasetSpec(DatasetSpec(self.element_spec)))
        b = functions.with_controls(b, read, shard)
        inputs = [b.tensor(self.variant_tensor), b.tensor(path, dtypes.string), read.captured, shard.captured]
        attrs = {"compression": compression or "", "reader_func": read.attr, "shard_func": shard.attr}
        return self._new(b, "SnapshotDatasetV2", inputs, _inner(read, "snapshot"), attrs)

    @tracebacks.entry
    def save(
        self,
        path: Any,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: Any = None,
    ) -> Any:
        """Writes the elements to a folder, which `load` reads; returns the operation in a graph.

        Args:
          path: the folder.
          compression: None, "GZIP" or "ZLIB".
          shard_func: a function from an element to the number of its shard, an int64 scalar; None: one shard.
          checkpoint_args: must be None.

        Raises:
          ValueError: `checkpoint_args` is given.
        """
        if checkpoint_args is not None:
            raise ValueError("`checkpoint_args` is not supported; a folder appears when it is complete")
        b, shard = self._traced(shard_func or _no_shard, "save", results=TensorSpec((), dtypes.int64))
        inputs = [b.tensor(self.variant_tensor), b.tensor(path, dtypes.string), shard.captured]
        attrs = {"compression": compression or "", "shard_func": shard.attr, "use_shard_func": shard_func is not None}
        return b.make("SaveDataset", inputs, attrs)

    @tracebacks.entry
    def rejection_resample(
        self, class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None, seed: int | None = None
    ) -> Any:
        """Returns a dataset of pairs of class and element with a given distribution.

        Elements are rejected at random.

        Args:
          class_func: a function from an element to its class, an int32 scalar.
          target_dist: the probabilities of the classes.
          initial_dist: those of this dataset; None: they are estimated.
          seed: the seed.

        Example:
          >>> import headrace as hr
          >>> numbers = hr.data.Dataset.range(100).map(lambda x: hr.cast(x % 5 < 3, hr.int32))
          >>> changed = numbers.rejection_resample(lambda x: x, [0.3, 0.7], [0.4, 0.6], seed=1)
          >>> labels = [int(label) for label, _ in changed]
          >>> 0.55 < sum(labels) / len(labels) < 0.85
          True
        """
        from headrace.api.data.resampling import resampled

        return resampled(self, class_func, target_dist, initial_dist, seed)

    @tracebacks.entry
    def group_by_reducer(
        self,
        key_func: Callable[..., Any],
        init_func: Callable[..., Any],
        reduce_func: Callable[..., Any],
        finalize_func: Callable[..., Any],
    ) -> Any:
        """Returns a dataset of the reductions of the elements of each key.

        The elements have the order of the keys.

        Args:
          key_func: a function from an element to an int64 scalar.
          init_func: a function from a key to the first state.
          reduce_func: a function from a state and an element to the next state.
          finalize_func: a function from the last state to an element.

        Source: TensorFlow's `tf.data.experimental.group_by_reducer`.

        Example:
          >>> import headrace as hr
          >>> zero = lambda key: hr.constant(0, hr.int64)
          >>> numbers = hr.data.Dataset.range(6)
          >>> sums = numbers.group_by_reducer(lambda x: x % 2, zero, lambda state, x: state + x, lambda state: state)
          >>> [int(x) for x in sums]
          [6, 9]
        """
        key_spec = TensorSpec((), dtypes.int64)
        b, key = self._traced(key_func, "group_by_reducer", results=key_spec)
        _, begin = self._traced(init_func, "group_by_reducer", key_spec)
        reduce_func = tracing.converted(reduce_func)
        wider: Any = begin.spec
        state = None
        while wider != state:  # a dimension of the state that `reduce_func` changes is unknown
            state = wider
            step = lambda s, e, state=state: _state_of(reduce_func(s, e), state, "reduce")
            _, reduce = self._traced(step, "group_by_reducer", (state, self.element_spec))
            wider = structure.joined(state, reduce.spec)
        _, finish = self._traced(finalize_func, "group_by_reducer", state)
        made = {"key": key, "init": begin, "reduce": reduce, "finalize": finish}
        attrs = {f"{name}_func": f.attr for name, f in made.items()}
        b = functions.with_controls(b, *made.values())
        inputs = [b.tensor(self.variant_tensor), *[f.captured for f in made.values()]]
        return self._new(b, "GroupByReducerDataset", inputs, finish.spec, attrs)

    # *** transformations by functions ***

    @tracebacks.entry
    def map(self, map_func: Callable[..., Any], num_parallel_calls: Any = None, deterministic: Any = None) -> Any:
        """Returns a dataset of the results of a function.

        Args:
          map_func: a function of an element (of its parts, if it is a tuple). It is traced once.
          num_parallel_calls: the number of calls at the same time; None: 1; -1: any number.
          deterministic: whether the results keep their order; None: as the options of the dataset say, or True.

        Example:
          >>> import headrace as hr
          >>> pairs = hr.data.Dataset.range(3).map(lambda x: (x, x * x))
          >>> [(int(x), int(y)) for x, y in pairs]
          [(0, 0), (1, 1), (2, 4)]
        """
        b, traced = self._traced(map_func, "map")
        attrs = {"f": traced.attr, "preserve_cardinality": self._keeps_cardinality}
        if num_parallel_calls is None:
            return self._with_function("MapDataset", traced, b, (), traced.spec, attrs)
        attrs["deterministic"] = "default" if deterministic is None else "true" if deterministic else "false"
        return self._with_function("ParallelMapDatasetV2", traced, b, (num_parallel_calls,), traced.spec, attrs)

    @tracebacks.entry
    def flat_map(self, map_func: Callable[..., Any]) -> Any:
        """Returns a dataset of the elements of the datasets that a function returns.

        Args:
          map_func: a function of an element, which returns a dataset.

        Example:
          >>> import headrace as hr
          >>> [int(x) for x in hr.data.Dataset.range(4).flat_map(hr.data.Dataset.range)]
          [0, 0, 1, 0, 1, 2]
        """
        b, traced = self._traced(map_func, "flat_map")
        return self._with_function("FlatMapDataset", traced, b, (), _inner(traced, "flat_map"), {"f": traced.attr})

    @tracebacks.entry
    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
    ) -> Any:
        """Returns a dataset of the elements of the datasets that a function returns, in turn.

        Args:
          map_func: a function of an element, which returns a dataset.
          cycle_length: the number of datasets in turn; None: 10, or `num_parallel_calls`.
          block_length: the number of consecutive elements of each; None: 1.
          num_parallel_calls: accepted; the elements and their order are those of one call.
          deterministic: accepted, without an effect.

        Example:
          >>> import headrace as hr
          >>> D = hr.data.Dataset
          >>> [int(x) for x in D.range(3).interleave(lambda x: D.from_tensors(x).repeat(2), cycle_length=2)]
          [0, 1, 0, 1, 2, 2]
        """
        if cycle_length is None:
            cycle_length = 10 if num_parallel_calls in (None, AUTOTUNE) else num_parallel_calls
        b, traced = self._traced(map_func, "interleave")
        args = (cycle_length, 1 if block_length is None else block_length)
        spec, attrs = _inner(traced, "interleave"), {"f": traced.attr}
        return self._with_function("InterleaveDataset", traced, b, args, spec, attrs)

    @tracebacks.entry
    def filter(self, predicate: Callable[..., Any]) -> Any:
        """Returns a dataset of the elements for which a function returns True.

        Example:
          >>> import headrace as hr
          >>> [int(x) for x in hr.data.Dataset.range(5).filter(lambda x: x % 2 < 1)]
          [0, 2, 4]
        """
        return self._filtered("FilterDataset", predicate, "filter")

    @tracebacks.entry
    def take_while(self, predicate: Callable[..., Any]) -> Any:
        """Returns a dataset of the elements before a function first returns False."""
        return self._filtered("TakeWhileDataset", predicate, "take_while")

    def _filtered(self, type: str, predicate: Callable[..., Any], what: str) -> Any:
        b, traced = self._traced(predicate, what)
        spec = traced.spec
        if not isinstance(spec, TensorSpec) or spec.dtype is not dtypes.bool_ or not shapes.compatible(spec.shape, ()):
            raise ValueError(f"`predicate` must return a boolean scalar, got {spec}")
        return self._with_function(type, traced, b, (), self.element_spec, {"predicate": traced.attr})

    @tracebacks.entry
    def scan(self, initial_state: Any, scan_func: Callable[..., Any]) -> Any:
        """Returns a dataset of the outputs of `scan_func(state, element)`.

        Args:
          initial_state: the structure of the first state.
          scan_func: returns a pair of the next state and the output.

        Example:
          >>> import headrace as hr
          >>> sums = hr.data.Dataset.range(4).scan(hr.constant(0, hr.int64), lambda s, x: (s + x, s + x))
          >>> [int(x) for x in sums]
          [0, 1, 3, 6]
        """
        b = scopes.builder(self.variant_tensor, initial_state)
        state, parts, call = self._stateful(b, initial_state, scan_func, "scan")

        def step(traced_state: Any, element: Any) -> Any:
            out = call(traced_state, element)
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise SignatureError("The scan function must return a pair of (new_state, output_value).")
            return _of_dtypes(out[0], state), out[1]

        traced = functions.traced(b, step, (state, self.element_spec), "scan", self._door())
        found = traced.spec[0]
        if not structure.same(found, state):
            raise TypeError(f"the state of scan is {state}, and `scan_func` returned {found} as the next one")
        return self._scanned(b, "ScanDataset", parts, traced)

    def _scanned(self, b: Any, type: str, parts: Sequence[Any], traced: Any) -> Any:
        b = functions.with_controls(b, traced)
        attrs = {"f": traced.attr, "preserve_cardinality": True}
        inputs = [b.tensor(self.variant_tensor), list(parts), traced.captured]
        return self._new(b, type, inputs, traced.spec[1], attrs)

    def _stateful(self, b: Any, initial: Any, fn: Callable[..., Any], what: str) -> Any:
        """Returns the spec and the components of a state, and `fn`.

        A dimension of the state that `fn` changes is unknown.
        """
        fn = tracing.converted(fn)
        leaves = structure.flatten(initial)
        pairs = [structure.component(leaf, b) for leaf in leaves]
        state = structure.pack(initial, [s for _, s in pairs])
        while True:
            traced = functions.traced(
                b,
                lambda s, e, state=state: _state_of(fn(s, e), state, what),
                (state, self.element_spec),
                what,
                self._door(),
            )
            wider = structure.joined(state, traced.spec)
            if wider == state:
                return state, [p for p, _ in pairs], fn
            state = wider

    @tracebacks.entry
    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any]) -> Any:
        """Returns the last state of `state = reduce_func(state, element)`, as tensors.

        Args:
          initial_state: the structure of the first state.
          reduce_func: returns the next state, with the same structure and dtypes.

        Raises:
          TypeError: it returned another structure or other dtypes.

        Example:
          >>> import headrace as hr
          >>> int(hr.data.Dataset.range(5).reduce(hr.constant(0, hr.int64), lambda total, x: total + x))
          10
        """
        b = scopes.builder(self.variant_tensor, initial_state)
        state, parts, call = self._stateful(b, initial_state, reduce_func, "reduce")
        step = lambda s, e: _of_dtypes(call(s, e), state)
        traced = functions.traced(b, step, (state, self.element_spec), "reduce", self._door())
        b = functions.with_controls(b, traced)
        attrs = {"f": traced.attr, **structure.attributes(state)}
        made = b.make("ReduceDataset", [b.tensor(self.variant_tensor), parts, traced.captured], attrs)
        return structure.as_element(made, state, self._door())

    @tracebacks.entry
    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[..., Any],
        window_size: Any = None,
        window_size_func: Callable[..., Any] | None = None,
    ) -> Any:
        """Returns a dataset of the elements of datasets made of groups with equal keys.

        Args:
          key_func: a function from an element to an int64 scalar.
          reduce_func: a function from a key and a dataset of elements to a dataset.
          window_size: the number of elements in a group.
          window_size_func: a function from a key to this number, in place of `window_size`.

        Raises:
          ValueError: both or none of `window_size` and `window_size_func` are given.

        Example:
          >>> import headrace as hr
          >>> groups = hr.data.Dataset.range(6).group_by_window(lambda x: x % 2, lambda key, group: group.batch(3), 3)
          >>> [x.numpy().tolist() for x in groups]
          [[0, 2, 4], [1, 3, 5]]
        """
        if (window_size is None) == (window_size_func is None):
            raise ValueError("Either the `window_size` or the `window_size_func` argument must be specified.")
        if window_size_func is None:
            window_size_func = lambda key: window_size
        key_spec = TensorSpec((), dtypes.int64)
        b, key = self._traced(key_func, "group_by_window", results=key_spec)
        _, size = self._traced(window_size_func, "group_by_window", key_spec, results=key_spec)
        spec = (key_spec, DatasetSpec(self.element_spec))
        _, reduce = self._traced(reduce_func, "group_by_window", spec)
        made = {"key": key, "reduce": reduce, "window_size": size}
        attrs = {f"{name}_func": f.attr for name, f in made.items()}
        b = functions.with_controls(b, *made.values())
        inputs = [b.tensor(self.variant_tensor), *[f.captured for f in made.values()]]
        return self._new(b, "GroupByWindowDataset", inputs, _inner(reduce, "group_by_window"), attrs)

    @tracebacks.entry
    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Any:
        """Returns a dataset of padded batches of elements of similar length.

        Args:
          element_length_func: a function from an element to its length, an int32 scalar.
          bucket_boundaries: the first length of each bucket after the first.
          bucket_batch_sizes: the number of elements in a batch of each bucket; one more than the boundaries.
          padded_shapes, padding_values: see `padded_batch`.
          pad_to_bucket_boundary: whether unknown dimensions become the largest length of the bucket.
          no_padding: whether batches are not padded; then the elements of a batch must have one shape.
          drop_remainder: whether last batches of fewer elements are left out.

        Raises:
          ValueError: the numbers of boundaries and batch sizes do not fit.

        Example:
          >>> import headrace as hr
          >>> rows = hr.data.Dataset.range(1, 7).map(lambda n: hr.fill([n], n))
          >>> batches = rows.bucket_by_sequence_length(lambda row: hr.size(row), [3, 5], [2, 2, 2])
          >>> [x.shape for x in batches]
          [(2, 2), (2, 4), (2, 6)]
        """
        if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
            raise ValueError(
                f"`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but got {len(bucket_batch_sizes)} "
                f"and {len(bucket_boundaries)}"
            )
        element_length_func = tracing.converted(element_length_func)
        sizes = np.array(bucket_batch_sizes, np.int64)
        least = np.array([np.iinfo(np.int32).min, *bucket_boundaries], np.int32)
        most = np.array([*bucket_boundaries, np.iinfo(np.int32).max], np.int32)

        def key(*element: Any) -> Any:
            b = scopes.builder(*element)
            n = b.Cast(b.tensor(element_length_func(*element)), DstT=dtypes.int32)
            inside = b.LogicalAnd(b.LessEqual(b.const(least), n), b.Less(n, b.const(most)))
            return b.Min(b.Where(inside), b.const([0, 1], dtypes.int32))

        def window_size(bucket: Any) -> Any:
            b = scopes.builder(bucket)
            return b.GatherV2(b.const(sizes), bucket, 0)

        def batches(bucket: Any, grouped: Any) -> Any:
            b = scopes.builder(bucket)
            size = window_size(bucket)
            if no_padding:
                return grouped.batch(size, drop_remainder=drop_remainder)
            wanted = padded_shapes
            if wanted is None:
                leaves = [s.shape for s in structure.flatten(grouped.element_spec)]
                if any(s is None for s in leaves):
                    raise ValueError("an element has an unknown rank; give `padded_shapes`")
                wanted = structure.pack(grouped.element_spec, [TensorSpec(s) for s in leaves])
            filled = [_padded_shape(s) for s in _like(grouped.element_spec, wanted)]
            if pad_to_bucket_boundary:
                bounds = np.array([*bucket_boundaries, -1], np.int64) - 1
                bound = b.GatherV2(b.const(bounds), bucket, 0)
                check = _asserted(b, b.GreaterEqual(bound, b.const(0, dtypes.int64)), bucket_boundaries)
                bound = check.Identity(bound)
                filled = [_bounded(b, s, bound) for s in filled]
            spec = structure.pack(grouped.element_spec, [_Shape(s) for s in filled])
            return grouped.padded_batch(size, spec, padding_values, drop_remainder=drop_remainder)

        return self.group_by_window(key, batches, window_size_func=window_size)

    # *** passes ***

    def cardinality(self) -> Any:
        """Returns the number of elements, an int64 scalar.

        It is -1 without an end, and -2 if only a pass finds it.
        """
        b = scopes.builder(self.variant_tensor)
        return b.DatasetCardinality(b.tensor(self.variant_tensor))

    def __len__(self) -> int:
        """Returns the number of elements.

        Raises:
          TypeError: the dataset is in a graph, has no end, or its length is unknown.
        """
        if self.graph is not None or not scopes.is_outside():
            raise TypeError("`len` of a dataset in a graph is not known; use its `cardinality()`, a tensor")
        n = int(self.cardinality())
        if n < 0:
            why = "The dataset is infinite." if n == INFINITE_CARDINALITY else "The dataset length is unknown."
            raise TypeError(why)
        return n

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator of a new pass, outside of graphs.

        Raises:
          RuntimeError: the dataset is in a graph.
        """
        return iterators.OwnedIterator(self)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Returns an iterator whose elements have arrays in place of tensors.

        Example:
          >>> import headrace as hr
          >>> list(hr.data.Dataset.range(3).as_numpy_iterator())
          [np.int64(0), np.int64(1), np.int64(2)]
        """
        return iterators.NumpyIterator(self)

    @tracebacks.entry
    def get_single_element(self) -> Any:
        """Returns the only element, as tensors.

        Raises (when it runs):
          InvalidArgumentError: the dataset has another number of elements.
        """
        b = scopes.builder(self.variant_tensor)
        attrs = structure.attributes(self.element_spec)
        made = b.make("DatasetToSingleElement", [b.tensor(self.variant_tensor)], attrs)
        return structure.as_element(made, self.element_spec, self._door())


DatasetSpec.datasets = Dataset


def _in_turn(shards: Any) -> Any:
    """Returns the dataset of the elements of the shards in turn."""
    return shards.interleave(lambda shard: shard, 16)


def _no_shard(*element: Any) -> Any:
    """Returns the number of the only shard."""
    return np.int64(0)


class _Shape:
    """Shape as a leaf of a structure.

    Args:
      value: a tuple or a tensor.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


def _int64(b: Any, x: Any) -> Any:
    """Returns an argument that is a number of elements, an int64 scalar."""
    t = b.tensor(x, dtypes.int64) if isinstance(x, (int, np.integer)) else b.tensor(x)
    return t if t.dtype.base is dtypes.int64 else b.Cast(t, DstT=dtypes.int64)


def _logits(*weights: Any) -> Any:
    """Returns the logarithms of probabilities, which are one vector or scalars, as a row."""
    b = scopes.builder(*weights)
    if len(weights) > 1:
        return b.ExpandDims(b.Log(b.Pack([b.tensor(w) for w in weights])), 0)
    return b.ExpandDims(b.Log(b.tensor(weights[0])), 0)


def _seeds(b: Any, seed: int | None) -> list[Any]:
    found = seeds(seed)
    return [b.const(found["seed"], dtypes.int64), b.const(found["seed2"], dtypes.int64)]


def _constant(x: Any) -> int | None:
    """Returns the static value of a number, if it is known."""
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, Tensor):
        known = constant_value(x)
        return None if known is None else int(known)
    return int(x) if hasattr(x, "numpy") else None


def _signature(types: Any, known: Any, signature: Any) -> Any:
    """Returns the specs of a generator's elements."""
    if signature is not None:
        if types is not None or known is not None:
            raise TypeError("The `output_types` and `output_shapes` must not be specified with `output_signature`")
        return signature
    if types is None:
        raise TypeError("Either `output_signature` or `output_types` must be specified")
    leaves = nest.flatten(types)
    flat = [None] * len(leaves) if known is None else _like(types, known)
    specs = [TensorSpec(_as_shape(s), dtypes.as_dtype(t)) for t, s in zip(leaves, flat, strict=True)]
    return nest.pack(types, specs)


def _as_shape(s: Any) -> Any:
    return shapes.as_shape(s.value if isinstance(s, _Shape) else getattr(s, "shape", s))


def _like(spec: Any, given: Any) -> list[Any]:
    """Returns the parts of `given`, shapes or scalars in the structure of `spec`.

    Raises:
      TypeError: it has another structure.
    """
    if not nest.is_nested(spec):
        return [given]
    if isinstance(spec, Mapping):
        if not isinstance(given, Mapping) or set(given) != set(spec):
            raise TypeError(f"{given!r} has not the structure of the elements, {spec}")
        return [x for k in sorted(spec) for x in _like(spec[k], given[k])]
    parts = list(spec)
    if not isinstance(given, (tuple, list)) or len(given) != len(parts):
        raise TypeError(f"{given!r} has not the structure of the elements, {spec}")
    return [x for s, g in zip(parts, given, strict=True) for x in _like(s, g)]


def _padded_shape(s: Any) -> Any:
    """Returns a padded shape as a tuple, or as a tensor if it is one."""
    if isinstance(s, _Shape):
        return s.value
    if isinstance(s, Tensor) or (hasattr(s, "numpy") and hasattr(s, "dtype")):
        known = constant_value(s) if isinstance(s, Tensor) else s.numpy()
        return s if known is None else _padded_shape(np.asarray(known).tolist())
    if isinstance(s, (list, tuple)):
        s = [None if d is not None and not hasattr(d, "value") and d == -1 else d for d in s]
    found = shapes.as_shape(getattr(s, "shape", s) if isinstance(s, TensorSpec) else s)
    if found is None:
        raise ValueError("a padded shape must have a known rank")
    return found


def _unknown(s: Any) -> tuple[None, ...]:
    """Returns the static shape, of unknown dimensions, for a padded shape that is a tensor."""
    shape = shapes.as_shape(s.shape)
    n = shape[0] if shape else None
    if n is None:
        raise ValueError("a padded shape must have a known rank")
    return (None,) * n


def _shape_tensor(b: Any, s: Any) -> Any:
    if isinstance(s, tuple):
        return b.const(np.array([-1 if d is None else d for d in s], np.int64))
    return _int64(b, s)


def _padding(b: Any, value: Any, spec: TensorSpec) -> Any:
    """Returns the scalar that fills up a component."""
    if value is None:
        return b.const(b"" if spec.dtype is dtypes.string else np.zeros((), spec.dtype.numpy), spec.dtype)
    t = b.tensor(value, spec.dtype) if isinstance(value, (int, float, str, bytes, bool)) else b.tensor(value)
    if t.dtype.base is not spec.dtype:
        raise TypeError(f"the padding value {value!r} has dtype {t.dtype.base.name}, its component {spec.dtype.name}")
    return t


def _bounded(b: Any, s: Any, bound: Any) -> Any:
    """Returns a padded shape with `bound` in place of unknown dimensions."""
    if not isinstance(s, tuple) or None not in s:
        return s
    parts = [bound if d is None else b.const(d, dtypes.int64) for d in s]
    return b.Pack(parts)


def _asserted(b: Any, condition: Any, boundaries: Sequence[int]) -> Any:
    from headrace.api.debugging import Assert

    text = f"an element is not shorter than the last bucket boundary, {boundaries[-1] if boundaries else math.nan}"
    found = Assert(condition, [text])
    return b if found is None else b.after(found)


def _inner(traced: Any, what: str) -> Any:
    """Returns the spec of the elements of the dataset that a function returned.

    Raises:
      TypeError: it returned something else.
    """
    if not isinstance(traced.spec, DatasetSpec):
        raise TypeError(f"the function of {what} must return a `Dataset` object, got {traced.spec}")
    return traced.spec.element_spec


def _of_dtypes(value: Any, spec: Any) -> Any:
    """Returns a structure in which Python numbers have become tensors of the dtypes of `spec`."""
    b = scopes.builder()
    leaves = structure.flatten(value)
    wanted = structure.flatten(spec)
    if len(leaves) != len(wanted):
        return value
    made = [
        b.tensor(x, s.dtype) if isinstance(x, (bool, int, float, complex)) else x
        for x, s in zip(leaves, wanted, strict=True)
    ]
    return structure.pack(value, made)


def _state_of(value: Any, state: Any, what: str) -> Any:
    """Returns the next state of a scan or reduction, after a check."""
    if what == "scan":
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise TypeError("The scan function must return a pair of (new_state, output_value).")
        value = value[0]
    value = _of_dtypes(value, state)
    if not structure.same(state, value):
        raise TypeError(f"The element structure of the new state must match the initial state {state}, got {value}")
    for x, s in zip(structure.flatten(value), structure.flatten(state), strict=True):
        dtype = getattr(x, "dtype", s.dtype)
        if dtypes.as_dtype(dtype).base is not s.dtype:
            raise TypeError(
                f"The element types for the new state must match the initial state. Expected {s.dtype.name}; got "
                f"{dtypes.as_dtype(dtype).base.name}"
            )
    return value

"""Random programs on arrays, for comparisons of native code with the Python target."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from headrace.api import scopes

SHAPES = ((), (3,), (4,), (3, 4), (4, 3), (4, 4), (1, 4), (2, 3, 4), (3, 1))


class Maker:
    """Draws operations. Values have static shapes, but for those of `_rows`, which only fetches read.

    Args:
      rng: The source of decisions.
      fails: Whether the programs have operations that may fail.
    """

    def __init__(self, rng: random.Random, fails: bool = False) -> None:
        self.rng = rng
        self.fails = fails
        self.feeds: dict[Any, Any] = {}
        self._depth = 0
        self._fetched: list[Any] = []

    def program(self) -> tuple[list[Any], dict[Any, Any]]:
        """Fetches and feeds of a program in the graph that is entered."""
        rng = self.rng
        values = [self._fed(rng.choice(SHAPES)) for _ in range(rng.randint(2, 4))]
        values.append(hr.constant(self._numbers(rng.choice(SHAPES))))
        self._grow(values, rng.randint(4, 14))
        if self.fails:
            values.append(self._fallible(values))
        fetches = rng.sample(values, min(len(values), rng.randint(1, 4)))
        fetches += [*values[-3:], *self._fetched[-2:]]
        if rng.random() < 0.3:
            wanted = [x for x in self.feeds if x.dtype == hr.float32]
            slopes = hr.gradients(values[-1], wanted)
            fetches += [hr.convert_to_tensor(g) for g in slopes if g is not None]
        return [scopes.builder().Identity(x) for x in fetches], self.feeds

    def _numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        seed = np.random.default_rng(self.rng.randrange(2**32))
        if self.rng.random() < 0.2:
            return np.full(shape, seed.normal(), np.float32)
        return seed.normal(size=shape).astype(np.float32)

    def _fed(self, shape: tuple[int, ...]) -> Any:
        x = hr.placeholder(hr.float32, shape)
        self.feeds[x] = self._numbers(shape)[()]
        return x

    def _grow(self, values: list[Any], steps: int) -> None:
        """Adds the results of random operations to `values`."""
        for _ in range(steps):
            kinds: list[Callable[[list[Any]], Any]] = (
                [self._map] * 5
                + [self._view] * 3
                + [self._join, self._product, self._sum, self._replaced, self._taken, self._put, self._row]
                + [self._packed, self._entropy, self._ordered, self._ranged, self._chosen]
            )
            if self._depth > 0:  # elsewhere kernels compute windows
                kinds.append(self._window)
            if self.fails and self._depth > 0:
                kinds += [self._fallible] * 2
            if self._depth < 3:
                kinds += [self._cond, self._loop, self._listed, self._rows, self._complex, self._half]
            if self._depth < 2:
                kinds += [self._recursive]
            made = self.rng.choice(kinds)(values)
            values.extend(x for x in (made if isinstance(made, (list, tuple)) else [made]) if x is not None)

    def _pick(self, values: list[Any], want: Callable[[tuple[int, ...]], bool] = lambda s: True) -> Any:
        found = [x for x in values if want(tuple(x.shape))]
        return self.rng.choice(found[-6:] if self.rng.random() < 0.7 else found) if found else None

    def _pair(self, values: list[Any]) -> tuple[Any, Any]:
        """Two values of compatible shapes."""
        a = self._pick(values)

        def fits(shape: tuple[int, ...]) -> bool:
            try:
                np.broadcast_shapes(shape, tuple(a.shape))
            except ValueError:
                return False
            return True

        return a, self._pick(values, fits)

    def _map(self, values: list[Any]) -> Any:
        a, b = self._pair(values)
        return self.rng.choice(
            [
                lambda: a + b,
                lambda: a - b,
                lambda: a * b * 0.5,
                lambda: hr.maximum(a, b),
                lambda: hr.tanh(a),
                lambda: hr.sigmoid(a) * b,
                lambda: hr.sin(a + 1.0),
                lambda: hr.where(a > b + 0.0101, a, b * 0.5),  # a tie is decided by the last bit
                lambda: hr.cast(hr.cast(hr.clip_by_value(a, -9.0, 9.0) * 3.0 + 0.07, hr.int32) % 5, hr.float32),
                lambda: hr.square(hr.tanh(a)) - 1.0,
            ]
        )()

    def _chosen(self, values: list[Any]) -> Any:
        """A choice of rows, or a sum of many arrays."""
        a = self._pick(values, lambda s: len(s) > 1)
        if a is None or self.rng.random() < 0.3:
            a, b = self._pair(values)
            some = [a * 0.02, hr.sin(a) * 0.01] if a.shape == b.shape else [a * 0.02]
            return hr.add_n([self.rng.choice(some) for _ in range(self.rng.choice([33, 70]))])
        is_first = hr.reduce_sum(a, list(range(1, len(a.shape)))) > 0.0101
        return scopes.builder().Select(is_first, a, hr.sin(a) * 0.5)

    def _view(self, values: list[Any]) -> Any:
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        shape = tuple(a.shape)
        kind = rng.randrange(5)
        if kind == 0:
            return hr.transpose(a, rng.sample(range(len(shape)), len(shape)))
        if kind == 1:
            size = int(np.prod(shape))
            options = [s for s in (*SHAPES, (size,), (2, size // 2), (size, 1)) if int(np.prod(s)) == size]
            return hr.reshape(a, rng.choice(options))
        if kind == 2:
            return hr.reverse(a, [rng.randrange(len(shape))])
        if kind == 3:
            axis = rng.randrange(len(shape))
            if shape[axis] % 2 == 0:
                return hr.split(a, 2, axis=axis)
        index: list[Any] = []
        for d in shape[: rng.randint(1, len(shape))]:
            first = rng.randrange(d)
            part = slice(first, rng.randint(first + 1, d), rng.choice([1, 1, 2]))
            index.append(first if rng.random() < 0.3 else part)
        return a[tuple(index)]

    def _sum(self, values: list[Any]) -> Any:
        a = self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        rank = len(tuple(a.shape))
        axes = self.rng.sample(range(rank), self.rng.randint(1, rank))
        reduce = self.rng.choice([hr.reduce_sum, hr.reduce_max, hr.reduce_mean])
        return reduce(a, axes, keepdims=self.rng.random() < 0.4)

    def _join(self, values: list[Any]) -> Any:
        a = self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        shape = tuple(a.shape)
        axis = self.rng.randrange(len(shape))
        if self.rng.random() < 0.3 and int(np.prod(shape)) <= 12:
            return hr.pad(a, [[self.rng.randint(0, 2), self.rng.randint(0, 1)] for _ in shape])
        if self.rng.random() < 0.2 and len(shape) < 3 and int(np.prod(shape)) <= 20:
            b = self._pick(values, lambda s: s == shape)
            return hr.stack([a, b, a][: self.rng.randint(2, 3)], axis=self.rng.randint(-1, len(shape)))
        rest = shape[:axis] + shape[axis + 1 :]
        b = self._pick(values, lambda s: len(s) == len(shape) and s[:axis] + s[axis + 1 :] == rest)
        return None if int(np.prod(shape)) > 60 else hr.concat([a, b, a][: self.rng.randint(2, 3)], axis)

    def _packed(self, values: list[Any]) -> Any:
        """Arrays along a new axis."""
        a = self._pick(values, lambda s: int(np.prod(s)) <= 12)
        if a is None:
            return None
        shape = tuple(a.shape)
        b = self._pick(values, lambda s: s == shape)
        return hr.stack([a, b, a][: self.rng.randint(1, 3)], self.rng.randint(0, len(shape)))

    def _ordered(self, values: list[Any]) -> Any:
        """Running results, rotations, diagonals, bands, or the greatest elements of rows."""
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        axis, b = rng.randrange(len(a.shape)), scopes.builder()
        if len(a.shape) == 1:
            return hr.linalg.diag(a) if rng.random() < 0.3 else hr.roll(a, rng.randint(-3, 3), 0)
        kinds = [
            lambda: hr.cumsum(a, axis, exclusive=rng.random() < 0.5, reverse=rng.random() < 0.5) * 0.5,
            lambda: hr.cumprod(hr.sin(a) + 1.5, axis, exclusive=rng.random() < 0.5) * 0.5,
            lambda: hr.roll(a, [rng.randint(-3, 3) for _ in a.shape], list(range(len(a.shape)))),
            lambda: b.MatrixBandPart(a, rng.randint(-1, 1), rng.randint(-1, 1)),
            lambda: hr.linalg.diag_part(a),
            lambda: b.MatrixSetDiag(a, hr.linalg.diag_part(a) * 2.0),
            # near ties may change places, and with them the gradient
            lambda: hr.stop_gradient(hr.nn.top_k(a, rng.randint(1, a.shape[-1]))[0]),
        ]
        return rng.choice(kinds)()

    def _ranged(self, values: list[Any]) -> Any:
        """A range of an array from a position that is not static."""
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        begin, sizes = [], []
        for d in a.shape:
            sizes.append(rng.randint(1, d))
            room = d - sizes[-1] + 1
            at = hr.cast(self._positions([self._element(values)], room), hr.int32)
            begin.append(at if rng.random() < 0.6 else hr.constant(rng.randrange(room)))
        return hr.slice(a, hr.stack(begin), sizes)

    def _window(self, values: list[Any]) -> Any:
        """A convolution or pooling of an array as an image."""
        rng, a = self.rng, self._pick(values, lambda s: 1 < len(s) < 4)
        if a is None:
            return None
        image = hr.reshape(a, [1, *[1] * (3 - len(a.shape)), *a.shape])
        size, stride = [rng.randint(1, 2), rng.randint(1, 3)], rng.randint(1, 2)
        if rng.random() < 0.6:
            filters = self._numbers((*size, image.shape[-1], rng.randint(1, 3))) * 0.3
            made = hr.nn.conv2d(image, filters, strides=[1, 1, stride, 1], padding="SAME")
        else:
            pool = rng.choice(
                [hr.nn.avg_pool2d, hr.nn.avg_pool2d, lambda *args: hr.stop_gradient(hr.nn.max_pool2d(*args))]
            )
            made = pool(image, size, [1, stride], "SAME")
        return hr.reshape(made, made.shape[4 - len(a.shape) :])

    def _entropy(self, values: list[Any]) -> Any:
        """Cross entropies of rows, and their gradient."""
        a = self._pick(values, lambda s: len(s) == 2)
        if a is None:
            return None
        rows, classes = a.shape
        labels: Any = np.array([self.rng.randrange(classes) for _ in range(rows)], np.int32)
        if self.fails and self.rng.random() < 0.5:
            labels = labels + self._whole(self._element(values), 0.5)
        found = scopes.builder().SparseSoftmaxCrossEntropyWithLogits(a, labels)
        return [[found[0]], [found[1]], list(found)][self.rng.randrange(3)]

    def _product(self, values: list[Any]) -> Any:
        a = self._pick(values, lambda s: len(s) == 2)
        if a is None:
            return None
        ta, tb = self.rng.random() < 0.5, self.rng.random() < 0.5
        inner = a.shape[0] if ta else a.shape[1]
        b = self._pick(values, lambda s: len(s) == 2 and s[1 if tb else 0] == inner)
        return None if b is None else hr.matmul(a, b, transpose_a=ta, transpose_b=tb) * 0.3

    def _inner(self, values: list[Any], shapes: list[tuple[int, ...]], steps: int) -> list[Any]:
        """Values of the given shapes, computed from `values` by random operations."""
        mine = list(values)
        self._depth += 1
        self._grow(mine, steps)
        self._depth -= 1
        out = []
        for shape in shapes:
            found = self._pick(mine[-8:], lambda s, shape=shape: s == shape)
            if found is None or self.rng.random() < 0.2:
                found = self._pick(mine, lambda s, shape=shape: s == shape)
            out.append(found)
        return out

    def _element(self, values: list[Any]) -> Any:
        """A number of an array."""
        a = self._pick(values)
        while len(a.shape):
            a = a[self.rng.randrange(a.shape[0])]
        return a

    def _predicate(self, values: list[Any]) -> Any:
        return self._element(values) > self.rng.choice([-0.5, 0.0, 0.5])

    def _cond(self, values: list[Any]) -> Any:
        shapes = [tuple(self._pick(values).shape) for _ in range(self.rng.randint(1, 2))]
        state = self.rng.getstate()

        def branch(k: int) -> Any:
            inner = random.Random(str((state[1][:3], k)))
            outer, self.rng = self.rng, inner
            try:
                return [
                    scopes.builder().Identity(x) if inner.random() < 0.2 else x
                    for x in self._inner(values, shapes, inner.randint(0, 4))
                ]
            finally:
                self.rng = outer

        predicate = self._predicate(values)
        self.rng.random()
        if self.rng.random() < 0.3:
            index = hr.cast(hr.cast(predicate, hr.int32) * 2, hr.int32) - self.rng.randint(0, 2)
            return hr.switch_case(index, [lambda k=k: branch(k) for k in range(3)])
        return hr.cond(predicate, lambda: branch(0), lambda: branch(1))

    def _loop(self, values: list[Any]) -> Any:
        rng = self.rng
        initial = [self._pick(values) for _ in range(rng.randint(1, 3))]
        shapes = [tuple(x.shape) for x in initial]
        trips = rng.choice([0, 1, 2, 3, 5])
        seed = rng.randrange(2**32)
        is_counted = rng.random() < 0.7

        def body(i: Any, *xs: Any) -> Any:
            outer, self.rng = self.rng, random.Random(seed)
            try:
                more = [hr.cast(i, hr.float32)]
                out = self._inner([*values, *more, *xs], shapes, self.rng.randint(1, 5))
            finally:
                self.rng = outer
            # keeps the numbers small, and so the errors of both targets
            return [i + 1, *(hr.tanh(x) if k % 2 == 0 else x for k, x in enumerate(out))]

        def test(i: Any, *xs: Any) -> Any:
            if is_counted:
                return i < trips
            return hr.logical_and(i < trips, hr.reshape(xs[0], [-1])[0] < 0.9)

        return hr.while_loop(test, body, [hr.constant(0), *initial])[1:]

    def _recursive(self, values: list[Any]) -> Any:
        """A function that calls itself, or two that call each other."""
        rng = self.rng
        given = [self._pick(values) for _ in range(rng.randint(1, 3))]
        shapes = [tuple(x.shape) for x in given]
        if sum(int(np.prod(s)) for s in shapes) > 60:
            return None
        results = [hr.TensorSpec(s, hr.float32) for s in shapes]
        seed, calls, is_mutual = rng.randrange(2**32), rng.choice([1, 1, 2]), rng.random() < 0.2
        in_loop = calls == 1 and rng.random() < 0.3
        functions: list[Any] = []

        def body(which: int, k: Any, *xs: Any) -> Any:
            def call(*inner: Any) -> list[Any]:
                return list(functions[1 - which if is_mutual else which](k - 1, *inner))

            def more() -> Any:
                outer, self.rng = self.rng, random.Random(str((seed, which)))
                try:
                    mine = [hr.cast(k, hr.float32), *(values if captures else []), *xs]
                    out = [hr.tanh(x) for x in self._inner(mine, shapes, self.rng.randint(1, 3))]
                    if in_loop:
                        out = hr.while_loop(lambda i, *v: i < 2, lambda i, *v: [i + 1, *call(*v)], [0, *out])[1:]
                    for _ in range(0 if in_loop else calls):
                        out = call(*[(x + y) * 0.4 for x, y in zip(out, xs, strict=True)])
                    return self._inner([*mine, *out], shapes, self.rng.randint(0, 3))
                finally:
                    self.rng = outer

            return hr.cond(k < 1, lambda: list(xs), more)

        captures = rng.random() < 0.5
        functions += [
            hr.Function(functools.partial(body, which), results=results, name=f"f{seed % 1000}{which}")
            for which in range(1 + is_mutual)
        ]
        depth = hr.constant(rng.randint(0, 3)) + hr.cast(self._predicate(values), hr.int32)
        self._depth += 1
        found = list(functions[0](depth, *given))
        self._depth -= 1
        return [hr.tanh(x) for x in found]

    def _listed(self, values: list[Any]) -> Any:
        """A loop that reads and writes tensor arrays."""
        rng = self.rng
        a = self._pick(values, lambda s: len(s) > 1)
        state = self._pick(values)
        if a is None or int(np.prod(state.shape)) > 60:
            return None
        n, shape = a.shape[0], tuple(state.shape)
        rows = hr.TensorArray(hr.float32, n, element_shape=list(a.shape[1:])).unstack(a)
        out = hr.TensorArray(hr.float32, n, element_shape=list(shape))
        seed = rng.randrange(2**32)

        def body(i: Any, x: Any, o: Any) -> Any:
            outer, self.rng = self.rng, random.Random(seed)
            try:
                (y,) = self._inner([*values, rows.read(i), x], [shape], self.rng.randint(1, 4))
            finally:
                self.rng = outer
            y = hr.tanh(y)
            return i + 1, y, o.write(i, y)

        _, x, o = hr.while_loop(lambda i, x, o: i < n, body, [hr.constant(0), state, out])
        return [x, o.stack()]

    # *** Arrays of unknown length ***

    def _rows(self, values: list[Any]) -> Any:
        """Results of the first rows of an array, of an unknown number."""
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 1)
        if a is None:
            return None
        x = self._front(a, values)
        if None not in x.shape:  # the end is a constant
            return None
        mine, out = [x], []
        for _ in range(rng.randint(1, 5)):
            made = self._of_rows(rng.choice(mine), mine)
            (mine if None in made.shape else out).append(made)
        if not out:
            out.append(hr.reduce_sum(mine[-1], [0]))
        if self._depth == 0:
            self._fetched.append(mine[-1])
        return [hr.tanh(x) for x in out]

    def _front(self, a: Any, values: list[Any]) -> Any:
        """Rows up to an end, which may be negative or too large."""
        shift = self.rng.choice([-a.shape[0], 0, 0, a.shape[0], a.shape[0]])
        return a[: hr.cast(self._predicate(values), hr.int32) + shift]

    def _of_rows(self, x: Any, others: list[Any]) -> Any:
        """The result of an operation on an array of unknown length."""
        rng, shape = self.rng, tuple(x.shape)
        kind = rng.randrange(8)
        if kind == 7:
            row = hr.sin(hr.reduce_sum(x, [0], keepdims=rng.random() < 0.5))
            return hr.broadcast_to(row, hr.shape(x)) + x
        if kind == 0:
            return hr.tanh(x * 0.5) + x
        if kind == 1:
            return hr.reverse(x, rng.sample(range(len(shape)), rng.randint(1, len(shape))))
        if kind == 2 and len(shape) > 1:
            return hr.concat([x, hr.sin(x), x][: rng.randint(2, 3)], rng.randrange(1, len(shape)))
        if kind == 3:
            return hr.reduce_sum(x, [0, *range(1, rng.randint(1, len(shape)))], keepdims=rng.random() < 0.3)
        if kind == 4 and len(shape) == 2:
            fits = [y for y in others if len(y.shape) == 2] if self.fails else [x]
            return hr.matmul(x, rng.choice(fits), transpose_a=True)
        size = int(np.prod(shape[1:]))
        if kind == 5:
            return hr.reshape(x, rng.choice([[-1, size], [-1], [-1, 1, size], [-1, *shape[1:]]]))
        counted = hr.concat([hr.shape(x)[:1], [1, size] if rng.random() < 0.5 else [size]], 0)
        return hr.reshape(x, counted)

    # *** Complex numbers ***

    def _complex(self, values: list[Any]) -> Any:
        """The parts of results of operations on complex numbers."""
        rng = self.rng
        real, imag = self._pair(values)
        z = hr.complex(hr.tanh(real), hr.sin(imag))
        mine = [z if rng.random() < 0.7 else hr.cast(hr.cast(z, hr.complex128), hr.complex64)]
        for _ in range(rng.randint(1, 5)):
            kind = rng.choice([self._complex_map] * 4 + [self._complex_loop, self._complex_list, self._complex_move])
            made = kind(mine, values)
            mine += [x for x in (made if isinstance(made, list | tuple) else [made]) if x is not None]
        out = mine[-1]
        out = out / hr.cast(hr.abs(out) + 1.0, hr.complex64)
        if self._depth == 0:
            self._fetched.append(out)
        return [hr.real(out), hr.imag(out)][: rng.randint(1, 2)]

    def _complex_map(self, mine: list[Any], values: list[Any]) -> Any:
        a, b = self._pair(mine)
        return self.rng.choice(
            [
                lambda: a * b * 0.5,
                lambda: a + hr.conj(b),
                lambda: b - a * 0.5j,
                lambda: a / (b * hr.conj(b) + 1.0),
                lambda: hr.exp(a * (0.2 - 0.3j)) - b,
                lambda: hr.sqrt(a + 4.0) * 0.3,
                lambda: hr.square(a) - hr.tanh(b * 0.3),
                lambda: hr.log(hr.sin(a * 0.2) + 3.0),
                lambda: hr.where(hr.real(a) > hr.imag(b) + 0.0101, a, b * 0.5),
                lambda: hr.cast(hr.abs(a + 0.1) * 0.5, hr.complex64) - b,
                lambda: hr.reciprocal(a * hr.conj(a) + 1.0) + b,
                lambda: scopes.builder().Log1p(hr.tanh(a * 0.3) * 0.3) + b,
                lambda: scopes.builder().Expm1(hr.tanh(a * 0.3) * (0.2 - 0.3j)) - b,
                lambda: hr.pow(hr.tanh(a * 0.3) * 0.3 + 3.0, hr.tanh(b * 0.3) * 0.5) - b,
                lambda: hr.sign(hr.tanh(a * 0.3) * 0.3 + 2.0j) * b,
            ]
        )()

    def _complex_move(self, mine: list[Any], values: list[Any]) -> Any:
        """Moved, selected, packed, added and multiplied elements."""
        kind = self.rng.randrange(10)
        if kind == 9:
            a = self._pick(mine, lambda s: len(s) > 1)
            b = None if a is None else self._pick(mine, lambda s: len(s) > 1 and s[-1] == a.shape[-1])
            return None if b is None else hr.matmul(a[None] * 0.3, b, adjoint_b=True)
        if kind == 8:
            a = self._pick(mine, lambda s: len(s) > 0)
            return None if a is None else hr.cumsum(a * 0.3, self.rng.randrange(len(a.shape)), exclusive=True)
        if kind == 0:
            a = self._pick(mine, lambda s: len(s) > 0)
            if a is None:
                return None
            axes = self.rng.sample(range(len(a.shape)), self.rng.randint(1, len(a.shape)))
            return self.rng.choice([hr.reduce_sum, hr.reduce_mean])(a * 0.3, axes, keepdims=self.rng.random() < 0.4)
        if kind == 1:
            a = self._pick(mine, lambda s: 0 < len(s) < 3)
            return None if a is None else hr.gather(a, self._positions(values, a.shape[0]))
        if kind == 2:
            a = self._pick(mine, lambda s: len(s) > 1)
            at = None if a is None else [[self.rng.randrange(a.shape[0])] for _ in range(2)]
            return None if a is None else hr.tensor_scatter_nd_add(a, at, hr.concat([a[:1], a[-1:]], 0))
        return self.rng.choice([self._view, self._join, self._product, self._packed])(mine)

    def _complex_loop(self, mine: list[Any], values: list[Any]) -> Any:
        """A loop or a conditional with a complex number or array."""
        rng, z = self.rng, self._pick(mine)
        factor, trips = self._complex_map(mine, values), rng.choice([0, 1, 3, 5])
        if tuple(factor.shape) != tuple(z.shape):
            factor = hr.reduce_mean(factor)
        if rng.random() < 0.4:
            return hr.cond(self._predicate(values), lambda: z * factor, lambda: hr.conj(z))
        bound = self._element([hr.abs(z)])

        def body(i: Any, w: Any) -> Any:
            w = w * factor * 0.5 + z
            return i + 1, w / hr.cast(hr.abs(w) + 1.0, hr.complex64)

        is_counted = rng.random() < 0.7
        return hr.while_loop(
            lambda i, w: i < trips if is_counted else hr.logical_and(i < trips, bound < 1.5), body, [hr.constant(0), z]
        )[1]

    def _complex_list(self, mine: list[Any], values: list[Any]) -> Any:
        """A loop over the rows of an array that collects results."""
        a = self._pick(mine, lambda s: len(s) > 0)
        if a is None:
            return None
        n, shape = a.shape[0], list(a.shape[1:])
        rows = hr.TensorArray(hr.complex64, n, element_shape=shape).unstack(a)
        out = hr.TensorArray(hr.complex64, n, element_shape=shape)
        start = a[self.rng.randrange(n)]

        def body(i: Any, z: Any, out: Any) -> Any:
            z = z * 0.5j + rows.read(i)
            return i + 1, z, out.write(i, hr.conj(z) * 0.5)

        _, z, out = hr.while_loop(lambda i, z, out: i < n, body, [hr.constant(0), start, out])
        return [z, out.stack()]

    # *** Half precision ***

    def _half(self, values: list[Any]) -> Any:
        """The result of operations on half precision, in float32.

        The numbers are few multiples of 1/4, so that float32 adds and multiplies them exactly in any order.
        """
        rng = self.rng
        dtype = rng.choice([hr.float16, hr.bfloat16])
        rows, cols = rng.choice([(3, 4), (4, 4), (2, 3)])
        seed = np.random.default_rng(rng.randrange(2**32))
        mine = [
            hr.constant(seed.integers(-4, 5, (rows, cols)).astype(dtype.numpy) / dtype.numpy.type(4)) for _ in range(2)
        ]
        mine.append(mine[0] * (hr.cast(self._predicate(values), dtype) + 1.0))
        for _ in range(rng.randint(1, 4)):
            mine.append(self._half_step(mine, values))
        trips = rng.choice([0, 1, 3])
        out = hr.while_loop(
            lambda i, z: i < trips,
            lambda i, z: (i + 1, self._half_step([*mine, z, z], values)),
            [hr.constant(0), mine[-1]],
        )[1]
        return hr.cast(out, hr.float32) * 0.25

    def _half_step(self, mine: list[Any], values: list[Any]) -> Any:
        a, b = self.rng.choice(mine[-3:]), self.rng.choice(mine)
        size, dtype = a.shape[0], a.dtype
        at = [self.rng.randrange(size) for _ in range(size)]
        axis = self.rng.randrange(2)
        made = self.rng.choice(
            [
                lambda: hr.matmul(hr.matmul(a, b, transpose_b=True), b) * 0.25,
                lambda: hr.matmul(a[None], b[None], transpose_a=True)[0, :1] - a,
                lambda: a + hr.reduce_sum(b, axis, keepdims=True),
                lambda: a - hr.reduce_mean(b, axis, keepdims=True),
                lambda: hr.reduce_max(a, axis, keepdims=True) + hr.reduce_min(b) + a,
                lambda: hr.reduce_prod(a, axis, keepdims=True) - b,
                lambda: hr.cumsum(a, axis, exclusive=self.rng.random() < 0.5, reverse=self.rng.random() < 0.5),
                lambda: hr.cumprod(a, axis) + b,
                lambda: hr.gather(a, hr.reshape(self._positions(values, size), [-1])[:1]) + b,
                lambda: hr.gather(hr.unsorted_segment_sum(a, at, size), at[::-1]) - b,
                lambda: hr.scatter_nd([[k] for k in at], a, a.shape) + b,
                lambda: hr.tensor_scatter_nd_sub(a, [[k] for k in at], b),
                lambda: hr.where(a > b, a, b * 0.5),
            ]
        )()
        whole = hr.clip_by_value(hr.round(made * 4.0), -8.0, 8.0)
        return hr.cast(whole, dtype) * 0.25

    # *** Lists whose elements are replaced ***

    def _replaced(self, values: list[Any]) -> Any:
        """An array, and the same with some rows replaced in a list of its rows."""
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 1)
        if a is None:
            return None
        n, shape = a.shape[0], tuple(a.shape[1:])
        rows = scopes.builder().TensorListFromTensor(a, np.array(shape, np.int32))
        shift, step = rng.randrange(n), rng.randrange(n)

        def replace(i: Any, rows: Any, x: Any) -> tuple[Any, Any]:
            b = scopes.builder()
            old = b.TensorListGetItem(rows, (i + shift) % n, np.array(shape, np.int32), element_dtype=hr.float32)
            new = hr.tanh(old + x) if is_bounded else x
            return b.TensorListSetItem(rows, (i * 2 + step) % n, new), old

        x = self._pick(values, lambda s: s == shape)
        x = a[rng.randrange(n)] if x is None else x
        is_bounded = rng.random() < 0.7
        if rng.random() < 0.4:
            more, x = replace(hr.constant(rng.randrange(n)), rows, x)
        else:
            trips = rng.choice([0, 1, 2, 3, 5])
            _, more, x = hr.while_loop(
                lambda i, rows, x: i < trips,
                lambda i, rows, x: [i + 1, *replace(i, rows, x)],
                [hr.constant(0), rows, x],
            )
        # the list before and after the replacements, which may share memory
        return [x, *(self._stacked(each, n, shape) for each in rng.sample([rows, more], rng.randint(1, 2)))]

    def _stacked(self, rows: Any, n: int, shape: tuple[int, ...]) -> Any:
        return scopes.builder().TensorListStack(
            rows, np.array(shape, np.int32), element_dtype=hr.float32, num_elements=n
        )

    # *** Positions that are not static ***

    def _positions(self, values: list[Any], n: int) -> Any:
        """Integers in [0, n), of rank 0 or more."""
        a = self._pick(values, lambda s: int(np.prod(s)) <= 6)
        a = self._element(values) if a is None or self.rng.random() < 0.3 else a
        return hr.cast(self._whole(a, 2.0) % n, self.rng.choice([hr.int32, hr.int64]))

    def _row(self, values: list[Any]) -> Any:
        """A slice with a position of one axis or two, and ranges of other axes."""
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        shape, n = tuple(a.shape), rng.randint(1, len(a.shape))
        first = rng.randint(0, n)  # the axes before an ellipsis; the other ones are the last axes
        more: list[Any] = [] if rng.random() < 0.7 else [rng.choice([None, ...])]
        index: list[Any] = []
        for d in shape[:first] + (shape[len(shape) - n + first :] if ... in more else shape[first:n]):
            at = hr.cast(self._positions([self._element(values)], d), hr.int32) - rng.choice([0, d])
            index.append(rng.choice([at, slice(None), slice(rng.randrange(d), None), rng.randrange(d)]))
        return a[(*index[:first], *more, *index[first:])]

    def _taken(self, values: list[Any]) -> Any:
        rng, a = self.rng, self._pick(values, lambda s: 0 < len(s) < 3)
        if a is None:
            return None
        if rng.random() < 0.7:
            axis = rng.randrange(len(a.shape))
            return hr.gather(a, self._positions(values, a.shape[axis]), axis=axis)
        return hr.gather_nd(a, self._rows_of_positions(values, a))

    def _rows_of_positions(self, values: list[Any], a: Any) -> Any:
        depth = self.rng.randint(1, len(a.shape))
        at = [hr.reshape(self._positions(values, d), [-1])[0] for d in a.shape[:depth] for _ in range(3)]
        at = [hr.cast(x, hr.int32) for x in at]
        return hr.stack([hr.stack(at[k::3]) for k in range(self.rng.randint(1, 3))])

    def _put(self, values: list[Any]) -> Any:
        rng, a = self.rng, self._pick(values, lambda s: len(s) > 0)
        if a is None:
            return None
        if rng.random() < 0.3:
            rows = self._whole(hr.reduce_mean(a, list(range(1, len(a.shape)))), 2.0) % 4 - 1
            return hr.unsorted_segment_sum(a, rows, 3)
        at = self._rows_of_positions(values, a)
        shape = (int(at.shape[0]), *a.shape[int(at.shape[1]) :])
        updates = self._pick(values, lambda s: s == shape)
        updates = hr.sin(hr.gather_nd(a, at)) if updates is None else updates
        if rng.random() < 0.3:
            return hr.scatter_nd(at, updates, a.shape)
        puts = [hr.tensor_scatter_nd_update, hr.tensor_scatter_nd_add, hr.tensor_scatter_nd_sub]
        return rng.choice(puts)(a, at, updates)

    # *** Operations that may fail ***

    def _fallible(self, values: list[Any]) -> Any:
        """The result of an operation that fails for some inputs."""
        rng = self.rng
        kind = rng.randrange(7)
        if kind > 3:  # a position may be out of range
            a = self._pick(values, lambda s: len(s) > 0)
            if a is None:
                return None
            at = hr.cast(self._positions(values, a.shape[0] + 1), hr.int32)
            varying = hr.cast(
                hr.reduce_sum(values[0]) * 0.0, hr.int32
            )  # a constant one would fail while the graph is made
            index = hr.reshape(at, [-1])[0] * 2 - a.shape[0] + varying
            if kind == 6:
                begin = hr.stack([index + rng.randint(0, 2), *[0] * (len(a.shape) - 1)])
                return hr.slice(a, begin, [max(1, a.shape[0] - 1), *a.shape[1:]])
            return hr.gather(a, at) if kind == 4 and len(at.shape) < 2 and len(a.shape) < 3 else a[index]
        if kind == 0:  # a divisor may be zero
            x, y = (self._whole(v, size) for v, size in zip(self._pair(values), (3.0, 2.0)))
            return hr.cast(x // y if rng.random() < 0.5 else x % y, hr.float32)
        a = self._pick(values, lambda s: len(s) > 1)
        if a is None:
            a = hr.reshape(self._pick(values), [1, -1])
        n, shape = a.shape[0], tuple(a.shape[1:])
        b, size = scopes.builder(), np.array(shape, np.int32)
        rows = b.TensorListFromTensor(a, size)
        index = self._whole(self._element(values), 2.0) + n - 1
        if kind == 1:  # an index may be too large
            return b.TensorListGetItem(rows, index, size, element_dtype=hr.float32)
        if kind == 2:
            return self._stacked(b.TensorListSetItem(rows, index, hr.tanh(a[rng.randrange(n)])), n, shape)

        def pop(i: Any, rows: Any, x: Any) -> Any:  # a list may be empty
            rows, x = scopes.builder().TensorListPopBack(rows, size, element_dtype=hr.float32)
            return i + 1, rows, x

        return hr.while_loop(lambda i, rows, x: i <= index, pop, [hr.constant(0), rows, a[0]])[2]

    def _whole(self, x: Any, size: float) -> Any:
        """Integers of which some are zero.

        Saturated values such as tanh(9) are not near a border between two integers, where a unit of the last place
        makes a difference.
        """
        return hr.cast(hr.clip_by_value(x * size, -9.0, 9.0) + self.rng.choice([0.07, 0.57]), hr.int32)

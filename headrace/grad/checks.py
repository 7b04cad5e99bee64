"""Numerical checks of gradients: `check_gradients`.

Let f be a function, v a direction of its arguments and w weights of its results. The slope of `<w, f(x + t v)>` at t =
0 is computed in three ways: by central differences; in reverse mode, as `<f'(x)^T w, v>`; and in forward mode, as `<w,
f'(x) v>`. For the second order, the same is done with the functions `x -> f'(x)^T w` and `x -> f'(x) v` in place of f,
and so on. So each order checks derivatives of functions that the order before has confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest, tracebacks
from headrace.api import scopes, tracing
from headrace.grad.transforms import jvp, vjp
from headrace.grad.zeros import carries
from headrace.ir.graph import Tensor
from headrace.records import record

_MODES = ("rev", "fwd")
_ROUNDING = 1e-10  # well above the rounding error of a float64, and well below `rtol`
_WIDE = dict.fromkeys(dtypes.FLOATING, dtypes.float64) | dict.fromkeys(dtypes.COMPLEX, dtypes.complex128)


@record(frozen=True, slots=True)
class Check:
    """Result of one comparison.

    Attributes:
      derivative: the modes of the derivative, outermost first ("rev of fwd").
      order: the order of the derivative.
      analytic: the computed slope.
      numeric: the slope by differences.
      error: the difference of the slopes, relative to the size of the terms that are summed in them.
    """

    derivative: str
    order: int
    analytic: float
    numeric: float
    error: float


class GradientMismatch(AssertionError):
    """A derivative differs from its numerical approximation.

    Attributes:
      checks: all comparisons that were made, in order.
    """

    checks: list[Check]


@tracebacks.entry
def check_gradients(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = _MODES,
    eps: float | None = None,
    rtol: float = 1e-5,
    directions: int = 1,
    seed: int = 0,
) -> list[Check]:
    """Compares the derivatives of `f` at `args` with central differences in random directions.

    Floats are computed in float64 and complex numbers in complex128, for `args` of any precision. `f` must keep these
    dtypes (contain no `hr.float32`).

    Args:
      f: a function of tensors.
      args: a list or tuple of its arguments: numbers, arrays, and nested structures of them. Integers stay as they are.
      order: the highest order of the derivatives to check.
      modes: "rev" (`vjp`), "fwd" (`jvp`), or both; then all combinations of them, `2 ** order` of the last order.
      eps: the step of the differences; None: about 6e-6 times the size of the arguments, which is best for float64.
      rtol: the largest relative error of a correct derivative.
      directions: the number of random directions.
      seed: the seed of the directions.

    Returns:
      The comparisons that were made.

    Raises:
      GradientMismatch (an AssertionError): a derivative differs. The text lists all comparisons.
      ValueError: `args` contains no float, or `modes` contains another word.
      TypeError: `args` is not a list or tuple.

    Source: the method is that of JAX's `check_grads`.

    Example:
      >>> import headrace as hr
      >>> [c.derivative for c in hr.check_gradients(hr.sin, [0.5], order=1)]
      ['rev', 'fwd']
    """
    tracing.check_callable(f=f)
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"check_gradients: args must be a list or tuple of the arguments, got {nest.describe(args)}")
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if not modes or set(modes) - set(_MODES):
        raise ValueError(f"check_gradients: modes are 'rev' and 'fwd', got {modes!r}")
    if not isinstance(order, int) or order < 1:
        raise ValueError(f"check_gradients: order must be 1 or more, got {order!r}")
    checks: list[Check] = []
    for i in range(directions):
        checks += _Checker(f, args, modes, eps, np.random.default_rng((seed, i))).run(order)
    wrong = [c for c in checks if not c.error <= rtol]
    if wrong:
        raise _report(f, checks, wrong, rtol)
    return checks


def _report(f: Any, checks: Sequence[Check], wrong: Sequence[Check], rtol: float) -> GradientMismatch:
    lines = [
        f"{len(wrong)} of {len(checks)} derivatives of {tracing.titled(f)} differ from the numbers by more than "
        f"{rtol:g}; those of an order rest on those before:",
        f"  {'order':5}  {'derivative':24}  {'computed':>14}  {'by differences':>14}  {'error':>8}",
    ]
    for c in checks:
        mark = "" if c.error <= rtol else "  <- wrong"
        lines.append(f"  {c.order:5}  {c.derivative:24}  {c.analytic:14.8g}  {c.numeric:14.8g}  {c.error:8.1g}{mark}")
    out = GradientMismatch("\n".join(lines))
    out.checks = list(checks)
    return out


class _Pending(NamedTuple):
    """A comparison to make.

    Attributes:
      derivative: see `Check`.
      order: see `Check`.
      value: `<w, f(x)>`, and the sum of the absolute values of its terms.
      slope: the slope of `<w, f(x)>`, and the sum of the absolute values of its terms.
    """

    derivative: str
    order: int
    value: tuple[Tensor, Tensor]
    slope: tuple[Tensor, Tensor]


class _Checker:
    """Comparisons in one direction.

    All are made in one graph, whose arguments are fed with x, x + eps v and x - eps v.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: Sequence[Any],
        modes: Sequence[str],
        eps: float | None,
        rng: np.random.Generator,
    ) -> None:
        self.f = f
        self.modes = modes
        self.rng = rng
        self.structure = list(args)
        self.values = [_wide(leaf) for leaf in nest.flatten(self.structure)]
        self.moving = [carries(t.dtype) for t in self.values]
        if not any(self.moving):
            raise ValueError("check_gradients: none of the arguments is a float, so there is nothing to differentiate")
        floats = [t.numpy() for t, moves in zip(self.values, self.moving, strict=True) if moves]
        size = max((float(np.max(np.abs(x))) for x in floats if x.size), default=1.0)
        self.eps = eps if eps is not None else 6e-6 * max(1.0, size)
        self.graph = scopes.Graph()
        self.pending: list[_Pending] = []

    def run(self, order: int) -> list[Check]:
        with self.graph:
            b = scopes.builder()
            params = [b.make("Placeholder", (), {"dtype": t.dtype, "shape": t.shape}, "arg") for t in self.values]
            self.params = [p for p, moves in zip(params, self.moving, strict=True) if moves]
            self.v = [b.tensor(self._random(p)) for p in self.params]

            def of_floats(*xs: Tensor) -> list[Tensor]:
                rest = iter(xs)
                given = [next(rest) if moves else p for p, moves in zip(params, self.moving, strict=True)]
                found = nest.flatten(tracing.convert(self.f(*nest.pack(self.structure, given)), b, "the function"))
                return [t for t in found if carries(t.dtype)]

            self._compare(of_floats, "", 1, order)
        return self._results(params)

    def _compare(self, f: Callable[..., list[Tensor]], of: str, order: int, last: int) -> None:
        """Makes the comparisons for `f`, from the floating-point arguments to floats."""
        b = scopes.builder()
        ys, pull_back = vjp(f, *self.params)
        w = [self._random(y) for y in ys]
        value = self._inner(b, w, ys)
        for mode in self.modes:
            label = f"{mode} of {of}" if of else mode
            if mode == "rev":
                slope = self._inner(b, pull_back(w), self.v)
            else:
                slope = self._inner(b, w, jvp(f, self.params, self.v)[1])
            self.pending.append(_Pending(label, order, value, slope))
            if order == last:
                continue
            if mode == "rev":
                self._compare(lambda *xs: list(vjp(f, *xs)[1](w)), label, order + 1, last)
            else:
                self._compare(lambda *xs: list(jvp(f, xs, self.v)[1]), label, order + 1, last)

    def _random(self, like: Tensor) -> Any:
        """Returns random numbers of the dtype and the run-time shape of `like`."""
        b = scopes.builder()
        if like.shape is not None and None not in like.shape:
            return b.const(self._normal(like.dtype, like.shape), like.dtype.base)
        # pseudorandom numbers that are the same in each run, for any size
        n = b.Cast(b.Range(0, b.Size(like), 1), DstT=dtypes.float64)
        parts = [b.Cos(b.AddV2(b.Mul(n, f), p)) for f, p in self.rng.uniform(1, 3, (2, 2))]
        made = b.Complex(*parts, Tout=like.dtype.base) if like.dtype.is_complex else parts[0]
        return b.Reshape(made, b.Shape(like))

    def _normal(self, dtype: dtypes.DType, shape: Any) -> np.ndarray:
        out: np.ndarray = self.rng.standard_normal(shape)
        return out + 1j * self.rng.standard_normal(shape) if dtype.is_complex else out

    def _inner(self, b: Any, first: Sequence[Any], second: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Returns the inner product of two lists, and the sum of its absolute terms.

        Of complex numbers, the first one is conjugated, and the real part is taken.
        """
        terms, sizes = [b.const(0.0, dtypes.float64)], [b.const(0.0, dtypes.float64)]
        for x, y in zip(first, second, strict=True):
            if y.dtype.is_complex:
                product = b.Real(b.Mul(b.Conj(x), y), Tout=dtypes.float64)
            else:
                product = b.Mul(x, y)
            axes = b.Range(0, b.Rank(product), 1)
            terms.append(b.Sum(product, axes))
            sizes.append(b.Sum(b.Abs(product), axes))
        return b.AddN(terms), b.AddN(sizes)

    def _results(self, params: Sequence[Tensor]) -> list[Check]:
        with scopes.runtime().session(graph=self.graph) as session:
            at = {p: t.numpy() for p, t in zip(params, self.values, strict=True)}
            wanted = [p.slope for p in self.pending], [p.value for p in self.pending], self.v
            slopes, values, v = session.run(wanted, at)
            moved = []
            for sign in (1, -1):
                feed = dict(at)
                for p, d in zip(self.params, v, strict=True):
                    feed[p] = at[p] + sign * self.eps * d
                moved.append(session.run([p.value[0] for p in self.pending], feed))
        out = []
        for p, (analytic, size), (_, of_value), up, down in zip(self.pending, slopes, values, *moved, strict=True):
            numeric = (up - down) / (2 * self.eps)
            # the last term is the rounding error of a difference of large values
            scale = max(size, abs(numeric), _ROUNDING / self.eps * of_value)
            error = abs(analytic - numeric) / scale if scale else 0.0
            out.append(Check(p.derivative, p.order, float(analytic), float(numeric), float(error)))
        return out


def _wide(leaf: Any) -> Any:
    """Converts an argument to an eager tensor, floats to float64."""
    b = scopes.runtime().eager
    t = b.tensor(leaf.numpy() if hasattr(type(leaf), "numpy") else leaf)
    wide = _WIDE.get(t.dtype)
    return t if wide is None else b.const(t.numpy(), wide)

"""`GradientTape`: records eager computations and differentiates them.

The tape records the computations that read a watched tensor, and watches their results. A gradient cuts the recording
into slices at the computations that have a gradient of their own (`hr.custom_gradient`). `eager.replay` differentiates
each slice in a graph; the gradient functions in between run eagerly. A tape inside of another one is differentiated in
turn, because the outer tape records what the inner gradient computes.

Source: TensorFlow's `tf.GradientTape`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headrace import dtypes, nest, notices, shapes, thresholds, tracebacks
from headrace.api import scopes
from headrace.api.recorder import CustomEntry, Entry, Recorder
from headrace.api.variable import Variable
from headrace.eager.replay import Slice, gradient_of
from headrace.eager.tensor import EagerTensor
from headrace.errors import GraphError, SignatureError
from headrace.grad import sums
from headrace.grad.gradients import UNCONNECTED, aligned, check_composites, make_gradients
from headrace.grad.jacobians import jacobian
from headrace.grad.zeros import carries
from headrace.ir.graph import Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.source import Source, here

if TYPE_CHECKING:
    from typing import Self


class _Recording(Recorder):
    """The entries that use a watched tensor.

    Args:
      watches_variables: whether trainable variables are watched when they are read.

    Attributes:
      entries: the entries, in the order of their runs.
      watched: the watched tensors by id; that they are kept keeps the ids valid.
      variables: the watched variables by the id of the handle.
      leaks: the lines where Python or numpy read the value of a watched tensor, the first ones.
    """

    def __init__(self, watches_variables: bool) -> None:
        self.entries: list[Entry | CustomEntry] = []
        self.watched: dict[int, Any] = {}
        self.variables: dict[int, Variable] = {}
        self.leaks: list[Source] = []
        self._watches_variables = watches_variables

    def record(self, entry: Entry | CustomEntry) -> None:
        watched = self.watched
        for x in entry.inputs:
            if id(x) in watched:
                self.entries.append(entry)
                for y in entry.outputs:
                    if carries(y.dtype):
                        watched[id(y)] = y
                return

    def accessed(self, variable: Any) -> None:
        if self._watches_variables and variable.trainable:
            self.watch(variable)

    def left(self, x: Any) -> None:
        if id(x) in self.watched and len(self.leaks) < thresholds.TAPE_NAMED_READS:
            at = here()
            if at is not None and at not in self.leaks:
                self.leaks.append(at)

    def watch(self, x: Any) -> None:
        """Watches a tensor or variable."""
        if isinstance(x, Variable):
            self.variables[id(x.handle)] = x
            x = x.handle
        self.watched[id(x)] = x

    def forget(self) -> None:
        """Drops the entries and tensors; the variables stay known."""
        self.entries = []
        self.watched = {}
        self.leaks = []


class GradientTape:
    """Records the ops of a `with` block outside of graphs, for gradients through them.

    The tape watches the trainable variables that the block reads, and the tensors given to `watch`. It records each op
    and each call of a jitted function that uses a watched tensor, and watches the results. Values are recorded with the
    ops: a gradient uses the value of a variable at the time of the read, and runs nothing of the block again.

    Several tapes can be active at once. An outer tape records what the gradient of an inner tape computes, which gives
    derivatives of higher orders. A tape records the computations of the thread (more exactly, of the context of
    `contextvars`) that entered it. Inside of a graph `gradient` is `hr.gradients` of the given tensors, with the
    operations outside of the block.

    Args:
      persistent: whether more than one gradient can be computed. The recording is then kept as long as the tape.
      watch_accessed_variables: whether trainable variables are watched when they are read.

    Source: TensorFlow's `tf.GradientTape`.

    Example:
      >>> import headrace as hr
      >>> x = hr.constant(3.0)
      >>> with hr.GradientTape() as outer:
      ...     outer.watch(x)
      ...     with hr.GradientTape() as inner:
      ...         inner.watch(x)
      ...         y = x * x * x if float(x) > 0 else -x
      ...     dy = inner.gradient(y, x)
      >>> dy, outer.gradient(dy, x)
      (<EagerTensor shape=[] dtype=float32: np.float32(27.0)>, <EagerTensor shape=[] dtype=float32: np.float32(18.0)>)
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._is_used = False
        self._recording = _Recording(watch_accessed_variables)

    # *** recording ***

    def __enter__(self) -> Self:
        if self._recording.is_active:
            raise ValueError("Tape is still recording. Leave its `with` block before it is entered again")
        self._is_used = False
        self._recording.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._recording.stop()

    def watch(self, tensor: Any) -> None:
        """Records the later uses of tensors or variables.

        Args:
          tensor: an eager tensor or variable, or a nested structure of them.

        Raises:
          TypeError: a leaf is neither a tensor nor a variable, or is of a dtype without gradients (an integer).
        """
        for path, x in nest.flatten_with_paths(tensor):
            if not isinstance(x, (EagerTensor, Variable, Tensor)):
                raise TypeError(
                    f"GradientTape.watch: tensor{path} must be a tensor or variable, got {nest.describe(x)}; convert "
                    "it first (hr.constant), and compute with the tensor"
                )
            if not carries(x.dtype):
                raise TypeError(
                    f"GradientTape.watch: tensor{path} is of dtype {x.dtype.base.name}, which has no gradients; only "
                    "floating point and complex numbers have. Cast it to a float first (hr.cast)"
                )
            self._recording.watch(x)

    def watched_variables(self) -> tuple[Any, ...]:
        """Returns the watched variables in the order of their first use."""
        return tuple(self._recording.variables.values())

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Returns a context in which the tape does not record.

        Raises:
          RuntimeError: the tape is not recording.
        """
        if not self._recording.is_active:
            raise RuntimeError("GradientTape.stop_recording: the tape is not recording in this context")
        self._recording.stop()
        try:
            yield
        finally:
            self._recording.start()

    def reset(self) -> None:
        """Forgets everything recorded and watched.

        Raises:
          RuntimeError: the tape is not recording.
        """
        if not self._recording.is_active:
            raise RuntimeError("GradientTape.reset: the tape is not recording in this context")
        self._recording.forget()
        self._recording.variables = {}

    # *** derivatives ***

    @tracebacks.entry
    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, unconnected_gradients: Any = "none"
    ) -> Any:
        """Computes the gradient of the sum of all elements of `target` with respect to `sources`.

        Args:
          target: a floating point or complex tensor, or a nested structure of them.
          sources: a tensor or variable, or a nested structure of them.
          output_gradients: the gradient of each target (None: ones), in the structure of `target`.
          unconnected_gradients: the gradient for a source that is not watched, or that no target depends on: "none" for
            None, or "zero" for zeros.

        Returns:
          A structure like `sources`. Each leaf is a tensor of the dtype and shape of the source, an `IndexedSlices` for
          a gathered variable, or None.

        Raises:
          RuntimeError: a tape that is not persistent is used for a second gradient.
          TypeError: a source or target is not a tensor, or a complex target has no gradient in `output_gradients`.
          SignatureError (a ValueError and TypeError): `output_gradients` differs from `target` in number, dtype or
            shape.
          LookupError: an op on a path has no gradient.
          ValueError: `unconnected_gradients` has another value.
        """
        unconnected = _checked(unconnected_gradients)
        if _is_symbolic(target):
            found = make_gradients(target, sources, output_gradients, None, unconnected, "gradients", True)
            leaves = nest.flatten(found, expand=False, is_leaf=lambda g: g is None)
            return nest.pack(sources, leaves, expand=False)
        with self._used():
            check_composites("source", sources)
            starts = [self._source(x, path) for path, x in nest.flatten_with_paths(sources)]
            ys = nest.map_leaves(
                lambda y: y.as_tensor(_eager()) if isinstance(y, IndexedSlices) else y, target, expand=False
            )
            ends = [self._target(y, path) for path, y in nest.flatten_with_paths(ys)]
            if (
                isinstance(output_gradients, list)
                and not nest.is_nested(ys)
                and len(output_gradients) != 1
                and ys.shape
            ):
                output_gradients = [output_gradients]  # numbers for one target
            seeds = aligned(ys, output_gradients, len(ends))
            pairs = [
                (y, _seed(y, dy, path))
                for (path, _), y, dy in zip(nest.flatten_with_paths(ys), ends, seeds, strict=True)
                if carries(y.dtype)
            ]
            return nest.pack(sources, self._gradients(pairs, starts, nest.flatten(sources), unconnected))

    @tracebacks.entry
    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Computes the derivatives of each element of `target` by each element of `sources`.

        The gradient is computed once for each element of the target. In a graph this is `hr.jacobian` of tensors.

        Args:
          target: a floating point tensor.
          sources: a tensor or variable, or a nested structure of them.
          unconnected_gradients: see `gradient`.
          parallel_iterations, experimental_use_pfor: ignored; arguments of TensorFlow.

        Returns:
          A structure like `sources`, with leaves of shape `target.shape + source.shape`, or None.

        Raises: see `gradient`.
        """
        unconnected = _checked(unconnected_gradients)
        if _is_symbolic(target):
            return jacobian(target, sources)
        with self._used():
            y = self._one_target(target, "jacobian")
            units = np.eye(int(np.prod(y.shape)), dtype=y.dtype.numpy).reshape(-1, *y.shape)
            return self._rows(y, sources, units, y.shape, unconnected)

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Computes the derivatives of each row of `target` by the same row of `source`.

        Row i of the target must depend on row i of the source alone. The gradient is computed once for each element of
        a row.

        Args:
          target: a floating point tensor of shape [b, ...].
          source: a tensor of shape [b, ...].
          unconnected_gradients: see `gradient`.
          parallel_iterations, experimental_use_pfor: ignored; arguments of TensorFlow.

        Returns:
          A tensor of shape `target.shape + source.shape[1:]`, or None.

        Raises:
          ValueError: the first dimensions of target and source differ. Others: see `gradient`.
        """
        unconnected = _checked(unconnected_gradients)
        with self._used():
            y = self._one_target(target, "batch_jacobian")
            self._source(source, "")
            if not y.shape or not source.shape or y.shape[0] != source.shape[0]:
                raise ValueError(
                    f"batch_jacobian: first dimension of target shape ({shapes.show(y.shape)}) and source shape "
                    f"({shapes.show(source.shape)}) should match"
                )
            n, row = y.shape[0], y.shape[1:]
            units = np.eye(int(np.prod(row)), dtype=y.dtype.numpy).reshape(-1, 1, *row)
            units = np.broadcast_to(units, (len(units), n, *row))
            found = self._rows(y, source, units, row, unconnected)
            if found is None:
                return None
            k = len(row)
            order = [k, *range(k), *range(k + 1, len(found.shape))]
            return _eager().Transpose(found, order)

    def _rows(self, y: EagerTensor, sources: Any, units: np.ndarray, shape: Sequence[int], unconnected: str) -> Any:
        """Returns the gradients of `y` for the seeds `units`, stacked to `shape`."""
        b = _eager()
        starts = [self._source(x, path) for path, x in nest.flatten_with_paths(sources)]
        leaves = nest.flatten(sources)
        rows = [self._gradients([(y, b.const(unit, y.dtype))], starts, leaves, unconnected) for unit in units]
        out = []
        for k, x in enumerate(leaves):
            mine = [row[k] for row in rows]
            if not rows:
                out.append(b.const(np.zeros((*shape, *x.shape), x.dtype.numpy), x.dtype))
            elif any(g is None for g in mine):
                out.append(None)
            else:
                stacked = b.Pack([sums.dense(b, g) for g in mine])
                out.append(b.Reshape(stacked, np.array((*shape, *stacked.shape[1:]), np.int32)))
        return nest.pack(sources, out)

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        """Context of a computation of derivatives; a tape that is not persistent allows one."""
        if self._is_used:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians); use "
                "GradientTape(persistent=True), or one call with all sources"
            )
        if self._persistent:
            yield
            return
        self._recording.stop()
        self._is_used = True
        try:
            yield
        finally:
            self._recording.forget()

    def _source(self, x: Any, path: str) -> Any:
        """Returns the tensor by which to differentiate: `x`, or the handle of a variable."""
        if isinstance(x, Variable):
            return x.handle
        if not isinstance(x, EagerTensor):
            raise TypeError(
                f"GradientTape: source{path} must be an eager tensor or variable like the target, got "
                f"{nest.describe(x)}"
            )
        return x

    def _target(self, y: Any, path: str) -> EagerTensor:
        if isinstance(y, Variable):
            was_active = self._recording.is_active
            if not was_active:
                self._recording.start()
            try:
                return cast("EagerTensor", y.value())
            finally:
                if not was_active:
                    self._recording.stop()
        if not isinstance(y, EagerTensor):
            raise TypeError(f"GradientTape: target{path} must be a tensor, got {nest.describe(y)}")
        return y

    def _one_target(self, target: Any, what: str) -> EagerTensor:
        if nest.is_nested(target):
            raise TypeError(f"GradientTape.{what}: target must be one tensor, got {nest.describe(target)}")
        if _is_symbolic(target):
            raise GraphError(f"GradientTape.{what} of a tensor of a graph: use hr.jacobian(target, sources)")
        y = self._target(target, "")
        if not carries(y.dtype):
            raise TypeError(f"GradientTape.{what}: target is of dtype {y.dtype.name}, which has no gradients")
        return y

    def _gradients(
        self,
        pairs: Sequence[tuple[EagerTensor, EagerTensor | None]],
        starts: Sequence[EagerTensor],
        sources: Sequence[Any],
        unconnected: str,
    ) -> list[Any]:
        """Returns the gradient for each source.

        Args:
          pairs: the targets, each with its gradient or None for ones.
          starts: the tensor of each source.
          sources: the tensors and variables.
          unconnected: "none" or "zero".
        """
        watched = list({id(x): x for x in starts if id(x) in self._recording.watched}.values())
        of = _backward(self._recording.entries, pairs, watched) if pairs else [None] * len(watched)
        found = dict(zip(map(id, watched), of, strict=True))
        grads = [found.get(id(x)) for x in starts]
        if unconnected == "zero":
            return [_zeros(x) if g is None else g for g, x in zip(grads, sources, strict=True)]
        if self._recording.leaks and all(g is None for g in grads):
            notices.warn(
                "every gradient of the tape is None. The value of a watched tensor was read at "
                f"{', '.join(map(str, self._recording.leaks))}: a tape does not record what Python or numpy computes "
                "from float(t), int(t), t.numpy() or np.asarray(t). Compute with the tensor itself"
            )
        return grads


# *** the walk ***


def _backward(
    entries: Sequence[Entry | CustomEntry],
    pairs: Sequence[tuple[EagerTensor, EagerTensor | None]],
    sources: Sequence[EagerTensor],
) -> list[Any]:
    """Returns the gradient for each source, or None.

    Args:
      entries: the recording.
      pairs: the targets, each with its gradient or None for ones.
      sources: the tensors to differentiate by; distinct.
    """
    way, reached = _between(entries, [y for y, _ in pairs], sources)
    if not any(isinstance(e, CustomEntry) for e in way):
        return gradient_of(Slice(way, pairs, sources))  # type: ignore[arg-type]
    b = _eager()
    parts: dict[int, list[Any]] = {}  # gradients by the id of their tensor
    for y, dy in pairs:
        parts.setdefault(id(y), []).append(b.OnesLike(y) if dy is None else dy)
    found: dict[int, Any] = {}  # of the sources that an entry made
    wanted = {id(x) for x in sources}
    for segment in reversed(_segments(way)):
        made = {id(y): y for entry in segment for y in entry.outputs}
        ends: list[tuple[EagerTensor, Any]] = [
            (y, sums.total(b, parts.pop(key))) for key, y in made.items() if key in parts
        ]
        if not ends:
            continue
        first = segment[0]
        if isinstance(first, CustomEntry):
            found.update((id(y), dy) for y, dy in ends if id(y) in wanted)
            known = {id(y): sums.dense(b, dy) for y, dy in ends}
            dys = [known[id(y)] if id(y) in known else _zeros(y) if carries(y.dtype) else None for y in first.outputs]
            new = list(zip(first.inputs, first.pull_back(dys), strict=True))
        else:
            inside = [y for key, y in made.items() if key in wanted]
            outside = {id(x): x for e in segment for x in e.inputs if id(x) in reached and id(x) not in made}
            dense = [(y, sums.dense(b, dy)) for y, dy in ends]
            starts = [*inside, *outside.values()]
            grads = gradient_of(Slice(segment, dense, starts))  # type: ignore[arg-type]
            found.update((id(y), g) for y, g in zip(inside, grads, strict=False) if g is not None)
            new = list(zip(outside.values(), grads[len(inside) :], strict=True))
        for x, g in new:
            if g is not None and id(x) in reached:
                parts.setdefault(id(x), []).append(g)
    return [found[id(x)] if id(x) in found else sums.total(b, parts.get(id(x), [])) for x in sources]


def _between(
    entries: Sequence[Entry | CustomEntry], targets: Sequence[EagerTensor], sources: Sequence[EagerTensor]
) -> tuple[list[Entry | CustomEntry], set[int]]:
    """Returns the entries between sources and targets, and the ids of dependent tensors."""
    needed = set(map(id, targets))
    back = []
    for entry in reversed(entries):
        if not needed.isdisjoint(map(id, entry.outputs)):
            back.append(entry)
            needed.update([id(x) for x in entry.inputs if carries(x.dtype)])
    reached = set(map(id, sources))
    way = []
    for entry in reversed(back):
        if not reached.isdisjoint(map(id, entry.inputs)):
            way.append(entry)
            reached.update([id(y) for y in entry.outputs if carries(y.dtype)])
    return way, reached


def _segments(entries: Sequence[Entry | CustomEntry]) -> list[list[Entry | CustomEntry]]:
    """Returns the entries in runs: one for each `CustomEntry`, and those in between."""
    out: list[list[Entry | CustomEntry]] = []
    for entry in entries:
        if isinstance(entry, CustomEntry) or not out or isinstance(out[-1][0], CustomEntry):
            out.append([entry])
        else:
            out[-1].append(entry)
    return out


# *** arguments ***


def _eager() -> Any:
    return scopes.runtime().eager


def _dense(y: Any) -> Any:
    return y.as_tensor(_eager()) if isinstance(y, IndexedSlices) else y


def _checked(unconnected: Any) -> str:
    value = getattr(unconnected, "value", unconnected)  # TensorFlow has an enumeration
    if value not in UNCONNECTED:
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected!r}; it is 'none' or 'zero'")
    return str(value)


def _is_symbolic(target: Any) -> bool:
    """Whether a leaf is a tensor of a graph."""
    return any(isinstance(y, Tensor) for y in nest.flatten(target))


def _seed(y: EagerTensor, dy: Any, path: str) -> EagerTensor | None:
    if dy is None:
        if y.dtype.is_complex or y.dtype.base is dtypes.variant:
            raise TypeError(
                f"GradientTape: target{path} is of dtype {y.dtype.base.name}, whose gradient must be given "
                "(output_gradients=), or differentiate its real part"
            )
        return None
    wanted = f"GradientTape: output_gradients{path} must be a tensor of dtype {y.dtype.base.name} and shape "
    wanted += f"{shapes.show(y.shape)} like the target, got {nest.describe(dy)}"
    try:
        t: EagerTensor = _eager().tensor(dy, y.dtype)
    except (TypeError, ValueError) as e:
        raise SignatureError(f"{wanted}: {e}") from e
    if y.dtype.base is not dtypes.variant and t.shape != y.shape:
        raise SignatureError(f"{wanted} of shape {shapes.show(t.shape)}")
    return t


def _zeros(x: Any) -> Any:
    """Returns zeros like the gradient with respect to a tensor or variable."""
    return _eager().ZerosLike(x.value() if isinstance(x, Variable) else x)

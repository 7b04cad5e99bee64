"""Sessions: run subgraphs from any number of threads and own the state between runs.

with hr.Session(graph=g) as session:
    y = session.run("y:0", {"x:0": 3.0})
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from headrace import flags, forking, notices, step_events, thresholds, tracebacks
from headrace.api.scopes import current_graph
from headrace.errors import CancelledError, FeedError, InvalidArgumentError, OpError, UnimplementedError
from headrace.execute.devices import HERE, DeviceAttributes
from headrace.execute.entered import entered, library_threads_of, threads_of
from headrace.execute.step import Step
from headrace.explain import Explanation, explanation
from headrace.fetches import (
    Convert,
    Fetches,
    PreparedCall,
    as_own,
    feed_form,
    feed_tensors,
    feeder,
    key_of,
    may_lend,
    result,
    strict,
)
from headrace.graph_growth import GraphGrowth
from headrace.ir.function import find_anywhere
from headrace.ir.graph import Tensor
from headrace.ir.kernel_errors import name_inputs
from headrace.memo import Memo
from headrace.metadata import NumericsCheck, RunMetadata, RunOptions, SessionStatistics, scoped_options
from headrace.metadata.counters import measuring
from headrace.metadata.run import options_of
from headrace.partial import PartialRun
from headrace.session_config import read_config
from headrace.target import LocalTarget, connectable

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headrace.compile import Compiled
    from headrace.compiled_step import CompiledStep, Request
    from headrace.ir.graph import Graph, Operation
    from headrace.metadata.run import RunMetadataMessage, RunOptionsMessage
    from headrace.observe.watch import Watch, Watched
    from headrace.observe.watching import PartialValues
    from headrace.target import Connectable, Target

CLOSED = "Attempted to use a closed Session."
CLOSE_SECONDS = 5.0  # the longest wait of close() for running steps, in seconds

_NO_OPTIONS = RunOptions()


def _specs(options: RunOptions, watch: Any) -> tuple[Watch, ...]:
    """Returns the specifications of watched values of a run: its argument, or its options."""
    watch = options.watch if watch is None else watch
    if watch is None:
        return ()
    from headrace.observe.watching import specs_of

    return specs_of(watch)


class Session:
    """Runs a graph.

    Args:
      target: "" (this process); or a cluster: an address ("headrace://host:port"), an `hr.Server`, or the result of
        `hr.cluster.local`.
      graph: the graph to run; None: the graph of the enclosing `with hr.Graph()`.
      config: a mapping of `device_count` ({"CPU": n}), `operation_timeout_in_ms`, `allow_soft_placement` (default
        True), `log_device_placement`, `enable_bfloat16_sendrecv` (float32 is sent between devices as bfloat16),
        `enable_recv_scheduling` (Recvs are delayed until they are needed), `inter_op_parallelism_threads`,
        `intra_op_parallelism_threads`, `device_filters`, `max_folded_constant_in_bytes` and `isolate_session_state`, as
        in TensorFlow's ConfigProto; and `optimize`, passes to leave out as in HEADRACE_OPTIMIZE ("-fold,-cse", "off").
      engine: "interpret": the token machine runs all steps. "compiled": each step becomes one Python function; a step
        that cannot be compiled is an error. "auto": each step that can be compiled is, and the token machine runs the
        others. None: the value of HEADRACE_ENGINE ("auto" by default). The token machine runs partial runs, and runs
        with a listener.
      devices: number of logical devices of each type, such as {"CPU": 4}. A step runs on several of them, each with its
        own threads, if its operations request this or if it is large enough to gain from it.
      memory_limit: bytes that each device may use for values that loops keep for gradients, and for variables and
        queues. Loops with `swap_memory=True` swap values that do not fit; other steps fail before they exceed the
        limit. None: no limit.
      intra_op_threads: threads that a single operation may use: in the BLAS library, in native code, and in PyTorch on
        devices of type TORCH.
      inter_op_threads: threads for heavy kernels that can run in parallel; None: one for each core.

    Threads may call `run` of one session at the same time. Their steps overlap, and share variables and queues. The
    session releases its resources when its `with` block ends, when it is closed, and when it has no more references.

    Source: TensorFlow's `tf.compat.v1.Session`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.reduce_sum(x * x)
      >>> with hr.Session(graph=g) as session:
      ...     session.run(y, {x: [3.0, 4.0]})
      np.float32(25.0)
    """

    _convert: Convert = staticmethod(strict)  # converts fed values to arrays

    def __init__(
        self,
        target: str | Connectable = "",
        graph: Graph | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        engine: str | None = None,
        devices: Mapping[str, int] | None = None,
        memory_limit: int | None = None,
        intra_op_threads: int = 1,
        inter_op_threads: int | None = None,
    ) -> None:
        graph = graph if graph is not None else current_graph()
        if graph is None:
            raise ValueError("no graph: give Session(graph=...), or make the session inside `with hr.Graph() as g:`")
        settings = read_config(config)
        engine = flags.ENGINE.value if engine is None else engine
        if engine not in flags.ENGINES:
            raise ValueError(f"no engine {engine!r}; there are {', '.join(map(repr, flags.ENGINES))}")
        self.graph = graph
        self._engine = engine
        self._timeout_ms = settings.timeout_ms
        self._off, self._fold_bytes = settings.off, settings.fold_bytes
        if devices is not None and not isinstance(devices, Mapping):
            raise TypeError(f"devices={devices!r}: expected the number of devices of each type, as {{'CPU': 2}}")
        self._target: Target
        self._blas_threads = settings.intra_op_threads or intra_op_threads
        if target == "":
            self._target = LocalTarget(
                {**settings.devices, **(devices or {})},
                memory_limit,
                self._blas_threads,
                settings.inter_op_threads or inter_op_threads,
                settings.placement,
            )
        elif devices is not None or memory_limit is not None:
            raise ValueError(
                "devices= and memory_limit= are for sessions of this process; a cluster has its own devices"
            )
        else:
            if settings.is_isolated:
                raise UnimplementedError(
                    "isolate_session_state: the sessions of a cluster share the variables of its workers; leave it "
                    "out, and make the variables of this session in a container of their own (`tf.container`)"
                )
            self._target = connectable(target).connect(settings.placement, settings.device_filters)
        #: By version of the graph, fetches and feed keys. All entries are of one version.
        self._calls: Memo[tuple[Hashable, ...], PreparedCall] = Memo("session calls", thresholds.SESSION_CALLS)
        self._version = -1  # of the graph, when the newest call was prepared
        self._made = 0  # calls prepared so far
        self._growth = GraphGrowth()
        self._lock = threading.Lock()
        self._active: set[Step] = set()
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # an entry for each step that ends after `close`
        self._partial: dict[str, PartialRun] = {}
        self._closed = ""  # the reason why the session can no longer be used; "" while it is open
        forking.register_at_fork(self)
        if notices.listener("session", notices.INFO) is not None:
            names = ", ".join(d.name.removeprefix(f"{HERE}/device:") for d in self._target.devices())
            notices.inform("session", [f"session of {graph!r}: devices {names}; engine {engine!r}"])

    # *** running ***

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | RunOptionsMessage | None = None,
        run_metadata: RunMetadata | RunMetadataMessage | None = None,
        *,
        timeout_ms: float | None = None,
        check_numerics: bool | NumericsCheck = False,
        watch: Watch | Sequence[Watch] | None = None,
    ) -> Any:
        """Runs the operations that `fetches` needs; returns the values in its structure.

        Args:
          fetches: a tensor, an operation (its value is None), the name of one, or a list, tuple, dict, namedtuple or
            dataclass of fetches.
          feed_dict: tensor, tensor name or variable → value. Operations that only a fed tensor needs do not run. In
            this run every read of a fed variable returns the fed value, and no operation can change the variable.
          options: time limit, listener, trace level and the other `RunOptions`; or a message of TensorFlow's.
          run_metadata: receives the metadata of the run at its end. A message receives its `step_stats`.
          timeout_ms: the same as `RunOptions(timeout_in_ms=...)`, in milliseconds.
          check_numerics: the same as `RunOptions(check_numerics=...)`: whether the run stops at the first NaN or Inf.
          watch: the same as `RunOptions(watch=...)`: values to return from inside of the step (`hr.watch`), or a list
            of such specifications.

        Returns:
          Arrays that the caller may write into; numpy scalars (`bytes` for strings) for rank 0. With `watch`, a pair of
          these and the watched values (`observe.watch.Watched`).

        Raises:
          FeedError: a fed value does not fit its tensor (also a ValueError and a TypeError).
          ValueError: an unknown fetch.
          RuntimeError: the session is closed.
          OpError: an error of an operation, for example `InvalidArgumentError` for a dead fetch.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     x = hr.placeholder(hr.int32, (), name="x")
          ...     y = hr.identity(x + 1, name="y")
          >>> session = hr.Session(graph=g)
          >>> session.run({"sum": [x, y], "y": "y:0"}, {x: 2})
          {'sum': [np.int32(2), np.int32(3)], 'y': np.int32(3)}
          >>> session.run("y:0", {"x:0": "two"})
          Traceback (most recent call last):
          headrace.errors.FeedError: ...
        """
        try:
            feed_dict = feed_dict or {}
            options = _NO_OPTIONS if options is None else options_of(options)
            if check_numerics:
                options = dataclasses.replace(options, check_numerics=check_numerics)
            specs = _specs(options, watch)
            if specs:
                call = self._call(fetches, feed_dict, specs)
                return self._watched(call, list(feed_dict.values()), options, run_metadata, timeout_ms)
            call = self._call(fetches, feed_dict)
            if run_metadata is not None:
                return self._measured(call, list(feed_dict.values()), options, timeout_ms, run_metadata)
            return self._run(call, list(feed_dict.values()), options, timeout_ms)
        except BaseException as e:
            tracebacks.hide(e)
            raise

    def _watched(
        self,
        call: PreparedCall,
        values: Sequence[Any],
        options: RunOptions,
        run_metadata: RunMetadata | RunMetadataMessage | None,
        timeout_ms: float | None,
    ) -> tuple[Any, Watched]:
        """Runs a step; returns its values and the watched values."""
        from headrace.observe.watching import watching_of

        watching = watching_of(call.programs.request)
        listener = watching.listener()
        if listener is not None:
            options = dataclasses.replace(options, listener=step_events.joined(options.listener, listener))
        if run_metadata is not None:
            out = self._measured(call, values, options, timeout_ms, run_metadata)
        else:
            out = self._run(call, values, options, timeout_ms)
        return out if listener is None else (out[0], watching.heard(listener))

    @tracebacks.entry
    def make_callable(
        self,
        fetches: Any,
        feed_list: Sequence[Any] = (),
        accept_options: bool = False,
        *,
        watch: Watch | Sequence[Watch] | None = None,
    ) -> Callable[..., Any]:
        """Returns a function from values of `feed_list` to values of `fetches`.

        Args:
          fetches: as for `run`.
          feed_list: the keys of a feed dict, in the order of the function's arguments.
          accept_options: whether the function takes the keyword arguments `options` and `run_metadata`.
          watch: as for `run`; the function then returns a pair. A call with `RunOptions(watch=...)` returns one, too.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     x = hr.placeholder(hr.int32, ())
          ...     double = hr.Session(graph=g).make_callable(x * 2, [x])
          >>> double(4), double(5)
          (np.int32(8), np.int32(10))
        """
        key = tuple(feed_list)
        watched = _specs(_NO_OPTIONS, watch)
        # (graph version, call): no look-up until the graph grows
        known = (self.graph.version, self._call(fetches, dict.fromkeys(key), watched))
        with self._explained():
            known[1].programs.general  # noqa: B018 - errors of compiling are raised here, not at the first call

        def call(
            *args: Any,
            options: RunOptions | RunOptionsMessage | None = None,
            run_metadata: RunMetadata | RunMetadataMessage | None = None,
        ) -> Any:
            nonlocal known
            try:
                if len(args) != len(key):
                    raise FeedError(f"this callable takes {len(key)} values ({list(feed_list)}), got {len(args)}")
                if not accept_options and (options is not None or run_metadata is not None):
                    raise TypeError("this callable takes no options: make it with accept_options=True")
                if self._closed or known[0] != self.graph.version:
                    known = (self.graph.version, self._call(fetches, key, watched))
                options = _NO_OPTIONS if options is None else options_of(options)
                if options.watch is not None:
                    prepared = self._call(fetches, key, _specs(options, watch))
                    return self._watched(prepared, args, options, run_metadata, None)
                if watched:
                    return self._watched(known[1], args, options, run_metadata, None)
                if run_metadata is not None:
                    return self._measured(known[1], args, options, None, run_metadata)
                return self._run(known[1], args, options, None)
            except BaseException as e:
                tracebacks.hide(e)
                raise

        call.explain = lambda: explanation(known[1].programs)  # type: ignore[attr-defined]  # for `hr.explain`
        return call

    def value_callable(
        self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Returns a function from values of `feeds` to values of `fetches`, neither checked nor copied.

        The values have the form of values between kernels (`resources.values`), resource handles included. The caller
        guarantees that they fit the tensors. Neither the caller nor the function changes a value.

        Args:
          fetches: the tensors to compute; distinct.
          targets: the operations to run without a value.
          feeds: the tensors of the arguments; distinct.
        """
        from headrace.programs import Programs  # here: it imports all stages, which building a graph does not need

        with self._explained():
            programs = Programs(self._request(list(feeds), list(fetches), list(targets)), self._target)
            programs.general  # noqa: B018 - errors of compiling are raised here, not at the first call
        names = [t.name for t in fetches]
        prepared = PreparedCall(programs, [], list, names, [])

        def call(fed: Sequence[Any]) -> list[Any]:
            code = programs.for_values(fed).compiled
            if code is None or not code.is_direct or self._closed or scoped_options.count:
                return self._run(prepared, fed, _NO_OPTIONS, None, is_checked=True)  # type: ignore[no-any-return]
            try:
                return list(code.run(None, fed))
            except BaseException as e:
                self._explain(e)
                raise

        call.explain = lambda: explanation(programs)  # type: ignore[attr-defined]  # for `hr.explain`
        return call

    @tracebacks.entry
    def explain(self, fetches: Any, feeds: Sequence[Any] = ()) -> Explanation:
        """Explanation of the step that `run` takes with these fetches and feeds.

        Args:
          fetches: as for `run`.
          feeds: the keys of a feed dict.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     x = hr.placeholder(hr.float32, (2,))
          >>> hr.Session(graph=g, engine="interpret").explain(-x, [x]).engine
          'interpret'
        """
        return explanation(self._call(fetches, dict.fromkeys(feeds)).programs)

    def statistics(self) -> SessionStatistics:
        """State of the session at this moment: runs in progress, cached steps, resources, memory.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     session = hr.Session()
          >>> session.statistics().steps
          0
        """
        with self._lock:
            engines = [call.programs.engine for call in self._calls.values()]
        target = self._target.statistics()
        return SessionStatistics(
            len(self._active), len(self._partial), len(engines), self._made, Counter(filter(None, engines)),
            target.resources, target.memory,
        )  # fmt: skip

    def _call(self, fetches: Any, feeds: Any, watched: tuple[Watch, ...] = ()) -> PreparedCall:
        """Returns the prepared call of `fetches`, feed keys and watched tensors.

        When the graph grows, the calls of the version before are dropped, since no run can use them any more.
        """
        if self._closed:
            raise RuntimeError(self._closed)
        calls = self._calls
        # a single tensor is its own key; `key_of` takes a tenth of a short run to find that
        fetched: Hashable = fetches if fetches.__class__ is Tensor else key_of(fetches)
        key = (self.graph.version, (watched, fetched) if watched else fetched, *feeds)
        call = calls.get(key)
        if call is not None:
            return call
        with self._lock:
            version, what = self.graph.version, key[1:]
            key = (version, *what)
            call = calls.get(key) if key in calls else None  # another thread may have prepared it
            if call is None:
                call = self._compile(fetches, list(feeds), watched)
                if version != self._version:
                    if self._made:
                        self._growth.add(self.graph, fetches, what if (self._version, *what) in calls else None)
                    calls.clear()
                    self._version = version
                calls.put(key, call)
                self._made += 1
        return call

    def _compile(self, fetches: Any, feed_keys: list[Any], watched: tuple[Watch, ...]) -> PreparedCall:
        resolved = Fetches(self.graph, fetches)
        keys = [feed_tensors(self.graph, k) for k in feed_keys]
        tensors = [t for ts in keys for t in ts]
        if len(set(tensors)) < len(tensors):
            raise FeedError(f"a tensor is fed twice: {[t.name for t in tensors]}")
        from headrace.programs import Programs  # here: it imports all stages, which building a graph does not need

        request = self._request(tensors, resolved.tensors, resolved.targets)
        names, pack = [t.name for t in resolved.tensors], resolved.pack
        with self._explained():
            if watched:
                from headrace.observe.watching import Watching

                watching = Watching(watched, self.graph, names, pack)
                fetched = [*resolved.tensors, *watching.root_tensors]
                request = dataclasses.replace(request, fetches=fetched, addition=watching)
            programs = Programs(request, self._target)
            if watched:
                programs.prepare()
                names, pack = watching.fetch_names, watching.pack
            if self._engine == "interpret":
                programs.general  # noqa: B018 - errors are raised here, not at the first run
        forms = [feed_form(k) for k in feed_keys]
        if all(form == 1 for form in forms):
            forms = []
        feeders = [feeder(t, self._convert, lends=True) for t in tensors]
        return PreparedCall(programs, feeders, pack, names, forms, any(map(may_lend, tensors)))

    def _request(self, feeds: list[Tensor], fetches: list[Tensor], targets: list[Operation]) -> Request:
        """Returns the step to compile, with the settings of the session."""
        from headrace.compiled_step import Request

        return Request(feeds, fetches, targets, self._engine, off=self._off, fold_bytes=self._fold_bytes)

    def _run(
        self,
        call: PreparedCall,
        values: Sequence[Any],
        options: RunOptions,
        timeout_ms: float | None,
        is_checked: bool = False,
        found: CompiledStep | None = None,
    ) -> Any:
        """Runs a step.

        Args:
          call: the programs of the step.
          values: a value for each feed.
          options: the options of the run.
          timeout_ms: the time limit, in milliseconds.
          is_checked: whether the values have the form of values between kernels.
          found: the program to run; None for that of the values.

        Returns:
          The values in the structure of the fetches.
        """
        if found is None:
            if scoped_options.count:
                options = scoped_options.applied(options)
            if options.profile is not None:
                return self._profiled(call, values, options, timeout_ms, is_checked)
        if call.at_once is not None and options is _NO_OPTIONS and not timeout_ms:
            results = self._at_once(call, values, is_checked)
            if results is not NotImplemented:
                return call.pack(results)
        fed = values if is_checked else call.feed(values)
        try:
            if found is None:
                is_observed = options is not _NO_OPTIONS and options.is_observed
                found = call.programs.observed if is_observed else call.programs.for_values(fed)
            code = found.compiled
            if code is not None and code.is_whole and not self._timeout_ms:
                # machine code for any shapes must not replace a variant for some
                suits = found.request.shapes or call.programs.is_only
                call.at_once = code.at_once(self._target.resources) if suits else None
            if code is not None and code.is_direct:  # no kernel can wait and the run needs no state
                return call.pack(as_own(list(code.run(None, fed))))
            if code is not None and code.is_plain:
                return call.pack(self._called(code, None, fed))
            if call.lends and not is_checked:
                fed = call.owned(fed, values)  # kernels with state may keep what is fed
        except BaseException as e:
            self._explain(e)
            raise
        step = self._step(found, options, timeout_ms)
        error = ""
        try:
            self._begin_step(step, call, found, options)
            if code is not None and not code.blocks:  # all feeds and fetches are there at once
                out = self._called(code, step, fed)
            else:
                run = found.start(step)
                for i, v in enumerate(fed):
                    run.feed(i, v)
                run.run()
                out = [result([run.fetch(i)]) for i in range(len(call.fetch_names))]
        except BaseException as e:
            error = str(e)
            self._explain(e)
            raise
        finally:
            self._end_step(step, error)
        return call.pack(out)

    def _profiled(
        self,
        call: PreparedCall,
        values: Sequence[Any],
        options: RunOptions,
        timeout_ms: float | None,
        is_checked: bool,
    ) -> Any:
        """Runs a step by its program with timers; the arguments are those of `_run`."""
        profile = options.profile
        with profile.measured():
            fed = values if is_checked else call.feed(values)
        with self._explained():
            found, options = profile.prepared(call.programs, fed, options)
        with profile.measured():
            if call.lends and not is_checked:
                fed = call.owned(fed, values)  # kernels with state may keep what is fed
            return self._run(call, fed, options, timeout_ms, True, found)

    def _at_once(self, call: PreparedCall, values: Sequence[Any], is_checked: bool) -> Any:
        """Returns the fetches of a step that is one call of machine code.

        The result is NotImplemented if the step must run as other steps do. A run at once has no `Step`: it has no
        time limit, and closing the session ends it at its next poll. The call checks the values itself.
        """
        assert call.at_once is not None
        try:
            results = call.at_once(self._look, *values)
            if results is NotImplemented and not is_checked:
                results = call.at_once(self._look, *call.feed(values))
        except (CancelledError, FeedError):
            raise
        except Exception:
            return NotImplemented  # the run that follows fails again, and its error names the operation
        return results

    def _look(self) -> None:
        """Raises if the session was closed."""
        if self._closed:
            raise CancelledError("the session was closed while this step ran")

    def _called(self, code: Compiled, step: Step | None, fed: Sequence[Any]) -> list[Any]:
        """Returns the fetches of compiled code in which no kernel may block its thread."""
        n = self._blas_threads
        with entered(code.flushes, threads_of(code, n), library_threads_of(code, n)):
            return as_own(list(code.run(step, fed)))

    def _measured(
        self,
        call: PreparedCall,
        values: Sequence[Any],
        options: RunOptions,
        timeout_ms: float | None,
        m: RunMetadata | RunMetadataMessage,
    ) -> Any:
        """Calls `_run` and fills `m`."""
        if not isinstance(m, RunMetadata):
            from headrace.files import run_metadata

            run_metadata.check(m)
            measured = RunMetadata()
            try:
                return self._measured(call, values, options, timeout_ms, measured)
            finally:
                run_metadata.fill(m, measured)
        m.clear()
        programs, device = call.programs, self._target.environment.names[0]
        is_seen = bool(options.trace_level) or scoped_options.applied(options).is_observed
        # the program is compiled before the measurement
        is_compiled = not is_seen and bool(programs.variants or programs.general.compiled)
        m.engine = "compiled" if is_compiled else "interpret"
        if is_seen:
            programs.observed  # noqa: B018 - the access compiles it
        if options.output_partition_graphs:
            from headrace.partition_graphs import partition_graphs  # it imports the messages, which few runs ask for

            found = programs.observed if is_seen else programs.for_values(call.feed(values))
            m.partition_graphs = partition_graphs(found, device)
        with measuring(m, options, device) as options:
            return self._run(call, values, options, timeout_ms)

    def _step(self, compiled: CompiledStep, options: RunOptions, timeout_ms: float | None) -> Step:
        limit = timeout_ms or options.timeout_in_ms or self._timeout_ms
        until = self._target.clock.monotonic() + limit / 1000 if limit else None
        listener = None if options.listener is None else step_events.OneAtATime(options.listener)
        step = self._target.step(until, listener, options.ready, compiled.device)
        step.advise = self._advise
        return step

    def _begin_step(self, step: Step, call: PreparedCall, found: CompiledStep, options: RunOptions) -> None:
        """Reports the start of a step, and adds it to the session with its inspectors."""
        if step.listener is not None:
            step.listener(step_events.StepStart(time.perf_counter_ns(), step.id, call))
        self._active.add(step)
        if self._closed:
            raise CancelledError("the session was closed before the run began")
        if options.cancellation is not None:
            step.cancellation = options.cancellation
            step.cancellation.add(step)
        if options.check_numerics or options.breakpoints:
            from headrace.observe.inspectors import inspectors_of  # needed by runs that are debugged only

            step.inspectors = inspectors_of(options, found.plans)

    def _advise(self, op: Operation) -> str:
        """Describes the queue for which an operation waits, and a remedy."""
        if not isinstance(self._target, LocalTarget):
            return ""  # the workers have the queues
        from headrace.observe.waiting import describe_wait  # needed by steps that wait for long only

        return describe_wait(op, self.graph, self, self._target.resources)

    def _explain(self, error: BaseException) -> None:
        """Replaces the operation of an error by the user's operation that it copies."""
        if isinstance(error, OpError) and error.node is not None:
            error.op = op = find_anywhere(self.graph, error.node.partition(":")[0])
            if op is not None:
                name_inputs(error, op)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Context manager in which errors name the user's operations."""
        try:
            yield
        except BaseException as e:
            self._explain(e)
            raise

    # *** partial runs ***

    @tracebacks.entry
    def partial_run_setup(
        self,
        fetches: Any,
        feeds: Sequence[Any] = (),
        options: RunOptions | None = None,
        *,
        watch: Watch | Sequence[Watch] | None = None,
    ) -> str:
        """Begins a run that is fed and fetched in several `partial_run` calls.

        A recording or a profile that is open now observes the run up to its end.

        Args:
          fetches: everything that will be fetched or run.
          feeds: every tensor that will be fed.
          options: as for `run`; the time limit counts from now.
          watch: as for `run`. Each `partial_run` then returns a pair.

        Returns:
          A handle for `partial_run`.

        Raises:
          InvalidArgumentError: `fetches` is empty.
        """
        if self._closed:
            raise RuntimeError(self._closed)
        options = options or _NO_OPTIONS
        specs = _specs(options, watch)
        call = self._call(fetches, tuple(feeds), specs)
        if not call.fetch_names and not Fetches(self.graph, fetches).targets:
            raise InvalidArgumentError("Must specify at least one target to fetch or execute.")
        if scoped_options.count:
            options = scoped_options.applied(options)
        profile = options.profile
        if profile is not None:
            options = profile.heard(options)
        values: PartialValues | None = None
        if specs:
            from headrace.observe.watching import watching_of

            values = watching_of(call.programs.request).partial_values()
            if values.listener is not None:
                options = dataclasses.replace(options, listener=step_events.joined(options.listener, values.listener))
        with self._explained():
            prepared = call.programs.observed if options.is_observed else call.programs.partial
        step = self._step(prepared, options, None)
        try:
            self._begin_step(step, call, prepared, options)
            run = prepared.start(step)
        except BaseException as e:
            self._explain(e)
            self._end_step(step, str(e))
            raise
        handle = f"partial_run_{step.id}"
        fed = [t for f in feeds for t in feed_tensors(self.graph, f)]
        feeders, names = [feeder(t, self._convert) for t in fed], [t.name for t in fed]
        targets = [op.name for op in Fetches(self.graph, fetches).targets]
        self._partial[handle] = PartialRun(
            self.graph, run, prepared.pruned, feeders, names, call.fetch_names, targets, values,
            contextlib.nullcontext if profile is None else profile.measured,
        )  # fmt: skip
        return handle

    @tracebacks.entry
    def partial_run(self, handle: str, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Feeds more of a partial run and returns more of its results.

        With a watch the result is a pair: the results, and the watched values so far (`observe.watch.Watched`). The
        values of a tensor are there when the feeds that they need are.

        Raises:
          InvalidArgumentError: a fetch that needs further feeds, was fetched before, or is not in the set-up; a feed
            that was fed before or is not in the set-up.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     x, y = hr.placeholder(hr.int32, ()), hr.placeholder(hr.int32, ())
          ...     total = (partly := x + 1) + y
          >>> session = hr.Session(graph=g)
          >>> handle = session.partial_run_setup([partly, total], [x, y])
          >>> first = session.partial_run(handle, partly, {x: 3})
          >>> session.partial_run(handle, total, {y: first * 10})
          np.int32(44)
        """
        if self._closed:
            raise RuntimeError(self._closed)
        run = self._partial.get(handle)
        if run is None:
            raise InvalidArgumentError(
                f"Must run 'setup' before performing partial runs: {handle!r} is no running handle (unknown, or done)"
            )
        try:
            out = run.go(fetches, feed_dict or {})
        except BaseException as e:
            self._explain(e)
            if run.failed:
                self._end_partial(handle, str(e))
            raise
        if run.is_done:
            self._end_partial(handle)
        return out

    def _end_partial(self, handle: str, error: str = "") -> None:
        run = self._partial.pop(handle, None)
        if run is None:
            return  # another thread has called close()
        run.run.abandon()
        self._end_step(run.run.step, error)

    def _end_step(self, step: Step, error: str) -> None:
        self._active.discard(step)
        step.close()
        if self._closed:
            self._ended.put(None)
        if step.listener is not None:
            step.listener(step_events.StepEnd(time.perf_counter_ns(), step.id, error))

    # *** devices ***

    def list_devices(self) -> Sequence[DeviceAttributes]:
        """Descriptions of the devices of this session. Source: TensorFlow's `Session.list_devices`.

        Example:
          >>> import headrace as hr
          >>> [d.name for d in hr.Session(graph=hr.Graph(), devices={"CPU": 2}).list_devices()]
          ['/job:localhost/replica:0/task:0/device:CPU:0', '/job:localhost/replica:0/task:0/device:CPU:1']
        """
        return self._target.devices()

    # *** ending ***

    def clear_container(self, name: str = "") -> None:
        """Drops the variables, queues and other resources of a container ("" is the default one)."""
        self._target.clear_container(name)

    def close(self) -> None:
        """Cancels steps that run and drops the session's resources.

        Callers of cancelled steps get `CancelledError`. A second call has no effect.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     x = hr.constant(1)
          >>> session = hr.Session(graph=g)
          >>> session.close()
          >>> session.run(x)
          Traceback (most recent call last):
          RuntimeError: Attempted to use a closed Session.
        """
        if self._closed:
            return
        self._closed = CLOSED
        for step in list(self._active):
            step.cancel(CancelledError("the session was closed while this step ran"))
        for handle, run in list(self._partial.items()):
            if not run.is_running:  # a running one ends itself when it notices the cancellation
                self._end_partial(handle, "the session was closed before the end of this partial run")
        clock = self._target.clock
        until = clock.monotonic() + CLOSE_SECONDS
        with contextlib.suppress(queue.Empty):
            while self._active:
                clock.take(self._ended, until - clock.monotonic())
        self._target.close()

    def _forked(self) -> None:
        """Makes the session usable in a forked child (see `forking`).

        Variables keep their values. A step that was running cannot be finished in the child, so the session is then
        closed.
        """
        self._lock = threading.Lock()
        self._ended = queue.SimpleQueue()
        if self._active and not self._closed:
            self._closed = (
                "this session had a step under way when the process was forked, which only the parent can end. Make a "
                "new Session in the child, fork while no step runs, or start the process by multiprocessing's 'spawn'"
            )
            self._target.discard_resources()
            self._active.clear()
            self._partial.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Session cannot be pickled or copied; make one from the graph (as_graph_def) where it is needed"
        )

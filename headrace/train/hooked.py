"""A session with its hooks and coordinator, which a monitored session replaces after an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from headrace import step_events
from headrace.metadata import RunMetadata
from headrace.metadata.run import options_of
from headrace.train.coordinator import Coordinator
from headrace.train.hooks.base import SessionRunArgs, SessionRunContext, SessionRunValues, blame, name_of
from headrace.train.recovery import PREEMPTION


class HookedSession:
    """Session that runs steps with the additional fetches and feeds of its hooks.

    Args:
      session: the session that runs the steps.
      hooks: the hooks, in the order of their calls.
      coord: coordinator of the session's threads.
      grace_secs: longest wait in seconds of `close` for the threads.

    Attributes:
      session: the session that runs the steps.
      coord: coordinator of the session's threads.
    """

    def __init__(self, session: Any, hooks: Sequence[Any], coord: Coordinator, grace_secs: float) -> None:
        self.session = session
        self.coord = coord
        self._hooks = hooks
        self._grace = grace_secs
        self._stops = False
        self._no_metadata = RunMetadata()

    def should_stop(self) -> bool:
        """Whether a hook or the coordinator has requested a stop.

        Raises:
          Exception: the error of a thread that failed.
        """
        self.coord.raise_requested_exception()
        return self._stops or self.coord.should_stop()

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs a step with the hooks.

        Args:
          fetches, feed_dict, options, run_metadata: see `Session.run`.

        Raises:
          RuntimeError: a hook has requested a stop before; or a tensor is fed twice.
        """
        if self._stops:
            raise RuntimeError("Run called even after should_stop requested.")
        try:
            return self._run(fetches, feed_dict, options, run_metadata)
        except PREEMPTION:
            raise
        except Exception as e:
            # a thread may have failed first, and this error may be a consequence
            try:
                self.coord.raise_requested_exception()
            except PREEMPTION as root:
                raise root from e
            except Exception as other:
                if other is not e:
                    e.add_note(f"(a thread had failed with {type(other).__name__}: {other})")
            raise

    def _run(self, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        if not self._hooks:
            return self.session.run(fetches, feed_dict, options, run_metadata)
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self.session)
        watch = watch_of(options)
        watches: list[tuple[Any, ...]] = []
        wanted, places, feeds, options = self._before(context, fetches, options, watches)
        if feed_dict:
            _check_apart(feeds, feed_dict, "fed by a hook and by the user")
            feeds.update(feed_dict)
        # filling metadata costs time: without `run_metadata` and trace the hooks receive an empty object
        metadata, is_filled = run_metadata, run_metadata is not None
        if metadata is None:
            is_filled = options is not None and bool(options.trace_level or options.output_partition_graphs)
            metadata = RunMetadata() if is_filled else self._no_metadata
        results = self.session.run(wanted, feeds or None, options, metadata if is_filled else None)
        watched: Any = None
        if watch_of(options):
            results, watched = results
        hook = None
        try:
            for hook, place, mine in zip(self._hooks, places, watches, strict=True):
                seen = watched.of(mine) if mine else None
                values = SessionRunValues(None if place < 0 else results[place], options, metadata, seen)
                hook.after_run(context, values)
        except BaseException as e:
            blame(e, hook, "after_run")
            raise
        self._stops = self._stops or context.stop_requested
        return (results[0], watched.of(watch)) if watch else results[0]

    def _before(
        self, context: SessionRunContext, fetches: Any, options: Any, watches: list[tuple[Any, ...]]
    ) -> tuple[list[Any], list[int], dict[Any, Any], Any]:
        """Calls `before_run` of the hooks, and merges their requests.

        Args:
          context: the description of the step.
          fetches: the fetches of the caller.
          options: the options of the caller.
          watches: receives the specifications of each hook.

        Returns:
          The list of all fetches; for each hook the position of its fetches in this list (-1: none); the feeds of the
          hooks; and the merged options.
        """
        wanted: list[Any] = [fetches]
        places: list[int] = []
        feeds: dict[Any, Any] = {}
        hook = None
        try:
            for hook in self._hooks:
                asked = hook.before_run(context)
                watches.append(() if asked is None else watch_of(asked.options))
                if asked is None:
                    places.append(-1)
                    continue
                places.append(-1 if asked.fetches is None else len(wanted))
                if asked.fetches is not None:
                    wanted.append(asked.fetches)
                if asked.feed_dict:
                    _check_apart(feeds, asked.feed_dict, f"fed by two hooks, one of them {name_of(hook)}")
                    feeds.update(asked.feed_dict)
                if asked.options is not None:
                    options = merged(options, asked.options)
        except BaseException as e:
            blame(e, hook, "before_run")
            raise
        return wanted, places, feeds, options

    def close(self) -> None:
        """Stops the threads and closes the session.

        Raises:
          Exception: the error of a thread that failed.
        """
        self.coord.request_stop()
        try:
            self.coord.join(stop_grace_period_secs=self._grace, ignore_live_threads=True)
        finally:
            self.session.close()


def _check_apart(feeds: Any, more: Any, how: str) -> None:
    both = [getattr(k, "name", k) for k in more if k in feeds]
    if both:
        raise RuntimeError(f"Same tensor is {how}. Conflict(s): {both}")


def merged(options: Any, more: Any) -> Any:
    """Returns `RunOptions` for a step that has two.

    The result has the longer time limit, the higher trace level, both listeners, all breakpoints and all watches. Of
    two checks of numbers it has the first.

    Args:
      options: `RunOptions` (or a message of that name), or None.
      more: the other, never None.

    Raises:
      ValueError: both have `ready`, which decides the order in which operations fire.
    """
    more = options_of(more)
    if options is None:
        return more
    options = options_of(options)
    listener = options.listener or more.listener
    if options.listener is not None and more.listener is not None:
        listener = step_events.Both(options.listener, more.listener)
    if options.ready is not None and more.ready is not None:
        raise ValueError("two RunOptions of one step have `ready`: only one can decide the order")
    return dataclasses.replace(
        options,
        timeout_in_ms=max(options.timeout_in_ms, more.timeout_in_ms),
        trace_level=max(options.trace_level, more.trace_level),
        listener=listener,
        ready=options.ready if options.ready is not None else more.ready,
        check_numerics=options.check_numerics or more.check_numerics,
        breakpoints=(*options.breakpoints, *more.breakpoints),
        output_partition_graphs=options.output_partition_graphs or more.output_partition_graphs,
        profile=options.profile if options.profile is not None else more.profile,
        watch=tuple(dict.fromkeys((*watch_of(options), *watch_of(more)))) or None,
    )


def watch_of(options: Any) -> tuple[Any, ...]:
    """Returns the specifications of watched values in `RunOptions`, or in None."""
    watch = None if options is None else getattr(options, "watch", None)  # the options may be TensorFlow's
    return () if watch is None else tuple(watch) if isinstance(watch, (list, tuple)) else (watch,)

"""Page of breakpoints: inspects a paused step in the browser.

    with hr.breakpoint_page() as page, hr.breakpoint_when("while/h", on_pause=page):
        session.run(y)

A `BreakpointPage` is the handler of breakpoints, as the prompt is (`observe.prompt`). The page is that of a recording
(`headrace view`): the step is recorded while it runs, and the recording up to a pause is the page's document. At a
pause, the thread of the step answers the questions that the threads of the server put into a queue, so that no other
thread touches live frames. An answer that lets the step go on ends the pause.

**State.** The server counts the changes of its state. A page asks for the state after the one that it knows, and the
answer waits for a change. A question has the number of its pause, so that an old page cannot act on a new one.

**Absence.** A pause lasts as long as a page asks for its state. Without any, the terminal has a line with the address,
and the step is cancelled after `thresholds.PAGE_PATIENCE` seconds. Ctrl-C ends a pause at once.

**Safety.** The server listens on the loopback interface only (`view.server`). Each path begins with a random token, so
other users of the machine cannot read values or act.
"""

from __future__ import annotations

import json
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from headrace import notices, thresholds
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.observe.live_recording import LiveRecording
from headrace.observe.pause_document import clipped, document_of_pause
from headrace.observe.value_text import value_text
from headrace.view.page import assemble
from headrace.view.server import HTML, JSON, Answer, LoopbackServer

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.observe.paused import Paused
    from headrace.observe.step_log import StepLog

_POLL: Final = 5.0  # seconds for which the answer about a state waits for a change
_ANSWER: Final = 60.0  # ... for which a request waits for the thread of the step
_BEAT: Final = 0.5  # ... between two looks for a page
_LAST: Final = 3.0  # ... for which the end of the block waits for a page to read the last recording
_AWAY: Final = 15.0  # ... without a request after which a page counts as closed

#: Commands that let the step go on.
_GOING_ON: Final[Mapping[str, Callable[[Paused], object]]] = {
    "step": lambda p: p.step(),
    "stepi": lambda p: p.step(every=True),
    "next": lambda p: p.next(),
    "continue": lambda p: p.proceed(),
    "run": lambda p: p.run(),
    "quit": lambda p: p.quit(),
}


class _Question:
    """Question to a paused step; its thread sets the answer.

    Args:
      about: the question, as the page sent it.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = about
        self.is_answered = threading.Event()
        self.answer: Any = None

    def set(self, answer: Any) -> None:
        self.answer = answer
        self.is_answered.set()


class BreakpointPage:
    """Handler of pauses that serves a page in its `with` block. `hr.breakpoint_page` makes it.

    Args:
      port: the port on 127.0.0.1; 0: a free one.
      patience: seconds that a pause lasts without a browser that shows the page.

    Attributes:
      url: the address of the page; "" outside of the block.
    """

    def __init__(self, port: int, patience: float) -> None:
        self.url = ""
        self._port = port
        self._patience = patience
        self._recording = LiveRecording(self._ended)
        self._server: LoopbackServer | None = None
        self._changed = threading.Condition()
        self._number = 0  # of the state
        self._known = 0  # number of the state that a page has shown
        self._state: dict[str, Any] = {"kind": "idle"}
        self._questions: queue.SimpleQueue[_Question] | None = None  # of the current pause
        self._pausing = threading.Lock()  # one pause at a time
        self._last: StepLog | None = None  # of the last step that paused and has ended
        self._paused_steps: set[int] = set()
        self._seen = -math.inf  # time of the last request

    def __enter__(self) -> BreakpointPage:
        if self._server is not None:
            raise FailedPreconditionError("this page is open already")
        root = f"/{secrets.token_urlsafe(24)}/"
        server = LoopbackServer(lambda path: self._get(path, root), self._port, self._act_at(root), root)
        self._recording.__enter__()
        self._server = server.__enter__()
        self._set({"kind": "idle"})
        self.url = server.url
        _say(f"breakpoints: {self.url}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None, "`with` calls __enter__ first"
        if kind is None or issubclass(kind, Exception):
            self._wait_for_reader()
        self._set({"kind": "closed"})
        self._recording.__exit__(kind, error, trace)
        self._server.__exit__(kind, error, trace)
        self._server, self._last, self.url = None, None, ""

    def _wait_for_reader(self) -> None:
        """Waits shortly until an open page has read the recording of an ended step."""
        with self._changed:
            if self._state["kind"] == "ended" and self.seconds_unseen() < _AWAY:
                self._changed.wait_for(lambda: self._known == self._number, _LAST)

    # *** the thread of the step ***

    def __call__(self, paused: Paused) -> None:
        """Answers the questions of the page until the step goes on.

        Raises:
          FailedPreconditionError: the page is not open, or the run does not belong to its block.
        """
        step = paused.machine.step.whole.id
        log = self._recording.running(step)
        if self._server is None or log is None:
            raise FailedPreconditionError(
                "a breakpoint has a page that is not open for this run: run it inside `with hr.breakpoint_page() as "
                "page`, in the same thread"
            )
        if not self._pausing.acquire(timeout=self._patience):
            raise FailedPreconditionError("another step has been paused at the same page for too long")
        began = time.perf_counter_ns()
        try:
            self._paused_steps.add(step)
            self._pause(paused, log, began)
        finally:
            self._recording.skip(step, time.perf_counter_ns() - began)
            self._pausing.release()

    def _pause(self, paused: Paused, log: StepLog, began: int) -> None:
        questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        about = document_of_pause(paused)
        with self._changed:
            self._questions = questions
        number = self._set({"kind": "paused", "step": log.number, "pause": about})
        try:
            alarm = _Alarm(self, self._patience, about)
            is_over = False
            while not is_over:
                try:
                    question = questions.get(timeout=_BEAT)  # with a limit, so that Python handles signals in between
                except queue.Empty:
                    is_over = paused.machine.step.whole.cancelled is not None or alarm.rings()
                    if is_over:
                        paused.quit()
                    continue
                if question.about.get("state") != number:
                    question.set(None)
                elif question.about.get("do") == "document":
                    question.set(_document(log, began))
                else:
                    answer, is_over = _answered(paused, question.about)
                    question.set(answer)
        finally:
            with self._changed:
                self._questions = None
            self._set({"kind": "running", "step": log.number})
            while not questions.empty():
                questions.get().set(None)

    def _ended(self, log: StepLog) -> None:
        """Receives the log of a step that has ended."""
        if log.number not in self._paused_steps:
            return
        self._paused_steps.discard(log.number)
        self._last = log
        self._set({"kind": "ended", "step": log.number, "error": clipped(log.error)})

    # *** the threads of the server ***

    def _set(self, state: dict[str, Any]) -> int:
        """Changes the state; returns its number."""
        with self._changed:
            self._number += 1
            self._state = {**state, "state": self._number}
            self._changed.notify_all()
            return self._number

    def seconds_unseen(self) -> float:
        """Returns the seconds since the last request of a page."""
        return time.monotonic() - self._seen

    def _get(self, path: str, root: str) -> Answer | None:
        if not _is_under(path, root):
            return None
        self._seen = time.monotonic()
        rest = path[len(root) :]
        if rest == "":
            return Answer(HTML, assemble(None, is_live=True).encode())
        what, _, number = rest.partition("/")
        if not (number.isascii() and number.isdecimal() and len(number) < 16):
            return None
        if what == "state":
            return _json(self._state_after(int(number)))
        return self._recorded(int(number)) if what == "recording" else None

    def _state_after(self, number: int) -> dict[str, Any]:
        with self._changed:
            self._known = number
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._number > number, _POLL)
            self._seen = time.monotonic()
            return self._state

    def _recorded(self, number: int) -> Answer:
        """The recording of the state with a number."""
        with self._changed:
            state, last = self._state, self._last
        if state["state"] == number and state["kind"] == "ended" and last is not None:
            return Answer(JSON, _document(last))
        found = self._ask({"do": "document", "state": number})
        return _gone() if found is None else Answer(JSON, found)

    def _act_at(self, root: str) -> Callable[[str, bytes], Answer | None]:
        def act(path: str, body: bytes) -> Answer | None:
            if not _is_under(path, root) or path[len(root) :] != "do":
                return None
            self._seen = time.monotonic()
            try:
                about = json.loads(body)
            except (ValueError, RecursionError):
                about = None
            if not isinstance(about, dict) or about.get("do") == "document":
                return Answer(JSON, b'{"problem": "expected a command"}', HTTPStatus.BAD_REQUEST)
            found = self._ask(about)
            return _gone() if found is None else _json(found)

        return act

    def _ask(self, about: Mapping[str, Any]) -> Any:
        """Returns the answer of the paused step; None: it has gone on."""
        question = _Question(about)
        with self._changed:
            if self._questions is None:
                return None
            self._questions.put(question)
        question.is_answered.wait(_ANSWER)
        return question.answer


class _Alarm:
    """Watch over a pause that no browser shows.

    Args:
      page: the page.
      patience: seconds that a pause lasts without a page.
      about: the pause as data.
    """

    def __init__(self, page: BreakpointPage, patience: float, about: Mapping[str, Any]) -> None:
        self._page, self._patience = page, patience
        self._at = f"paused at '{about['op']}' ({about['type']}), made at {about['source'] or 'an unknown line'}"
        self._began = time.monotonic()
        self._next = 0.0  # seconds without a page at which the terminal has a line

    def rings(self) -> bool:
        """Whether no page was open for too long; the terminal has lines about it before."""
        alone = min(self._page.seconds_unseen(), time.monotonic() - self._began)
        if self._page.seconds_unseen() < _AWAY:
            self._next = _AWAY
        elif alone >= self._patience:
            _say(f"{self._at}: no browser has shown the page for {self._patience:g} s, so the step is cancelled")
            return True
        elif alone >= self._next:
            self._next = alone + thresholds.PAGE_SILENCE
            _say(f"{self._at}: open {self._page.url}, or press Ctrl-C to end the run")
        return False


def breakpoint_page(port: int = 0, *, patience: float | None = None) -> BreakpointPage:
    """Creates a page that inspects steps paused at breakpoints in the browser.

    The result is a context manager, which serves the page on 127.0.0.1 and prints its address on standard error, and
    the `on_pause` of breakpoints. The page draws the graph as `headrace view` does, with the tokens up to the pause. It
    shows the live frames, the ready and waiting nodes and the values of tensors, and lets the step go on. Runs of the
    block are recorded, so they are interpreted operation by operation.

    Args:
      port: the port; 0: a free one.
      patience: seconds that a pause lasts without a browser that shows the page; then the step is cancelled. None: an
        hour.

    Returns:
      The page. Its attribute `url` is the address, with a random token that gives access to the values of the step.

    Raises:
      ValueError: `patience` is not positive.
      OSError: at the beginning of the block: the port is in use, or may not be used.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.while_loop(lambda h: h < 9.0, lambda h: hr.multiply(h, 2.0, name="h"), [1.0], name="loop")[0]
      >>> with hr.breakpoint_page() as page, hr.breakpoint_when("loop/h", lambda v: v > 20.0, on_pause=page):
      ...     hr.Session(graph=g).run(y)  # does not pause: no value is above 20
      np.float32(16.0)
    """
    seconds = thresholds.PAGE_PATIENCE if patience is None else patience
    if not seconds > 0:
        raise ValueError(f"patience is a positive number of seconds, got {patience!r}")
    return BreakpointPage(port, seconds)


def _answered(paused: Paused, about: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Returns the answer to a question, and whether the step goes on."""
    what, name = about.get("do"), about.get("name")
    try:
        if isinstance(what, str) and what in _GOING_ON:
            _GOING_ON[what](paused)
            return {}, True
        if what not in ("value", "break") or not isinstance(name, str):
            raise InvalidArgumentError(f"{what!r:.40} is no command, or needs the name of a tensor")
        if what == "break":
            paused.break_at(name)
            return {}, False
        found, tag, value = paused.value(name, _whole(about, "iteration"), _whole(about, "level") or 0)
        return {"name": found, "tag": tag, "text": clipped(value_text(value, whole=True))}, False
    except (LookupError, ValueError, InvalidArgumentError) as e:
        return {"problem": clipped(str(e.args[0] if isinstance(e, LookupError) and e.args else e))}, False


def _is_under(path: str, root: str) -> bool:
    return secrets.compare_digest(path[: len(root)].encode("utf-8", "replace"), root.encode())


def _whole(about: Mapping[str, Any], field: str) -> int | None:
    value = about.get(field)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise InvalidArgumentError(f"{field}: expected an integer from 0 on")
    return value


def _document(log: StepLog, now: int = 0) -> bytes:
    from headrace.observe.assembly import document_of_step  # here: it imports the stages and the inspector

    return json.dumps(document_of_step(log, now), allow_nan=False, separators=(",", ":")).encode("ascii")


def _json(value: Any) -> Answer:
    return Answer(JSON, json.dumps(value, separators=(",", ":")).encode("ascii"))


def _gone() -> Answer:
    return Answer(JSON, b'{"problem": "the step has gone on"}', HTTPStatus.CONFLICT)


def _say(text: str) -> None:
    notices.inform("breakpoints", [f"headrace: {text}"], asked=True)

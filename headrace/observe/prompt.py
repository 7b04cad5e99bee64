"""Prompt of a breakpoint: inspects a paused step in the terminal, or in given streams.

`Terminal` is the default handler of a breakpoint. It prints the place of each pause and the watched values, then reads
commands until one of them lets the step go on. The end of the input cancels the step.
"""

from __future__ import annotations

import cmd
import sys
from typing import IO, TYPE_CHECKING, Final

from headrace.errors import InvalidArgumentError
from headrace.observe.value_text import value_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.observe.paused import Entry, Paused

_LISTED: Final = 20  # entries of a list


class Terminal:
    """Handler of pauses that reads commands.

    Args:
      stdin: the input; None: that of the process, with the editing of lines.
      stdout: the output; None: that of the process.

    Attributes:
      watched: names of the tensors whose values are shown at each pause.
    """

    def __init__(self, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        self._stdin, self._stdout = stdin, stdout
        self.watched: dict[str, None] = {}

    def __call__(self, paused: Paused) -> None:
        """Reads commands until the step goes on."""
        Prompt(paused, self.watched, self._stdin, self._stdout).cmdloop()


class Prompt(cmd.Cmd):
    """Commands at one pause.

    Args:
      paused: the paused step.
      watched: names of the tensors whose values are shown at each pause; the commands change it.
      stdin: the input; None: that of the process.
      stdout: the output; None: that of the process.
    """

    prompt = "(headrace) "
    doc_header = "Commands (help COMMAND describes one):"

    def __init__(
        self, paused: Paused, watched: dict[str, None], stdin: IO[str] | None = None, stdout: IO[str] | None = None
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None and sys.stdin.isatty()
        self._paused = paused
        self._watched = watched
        self._level = 0
        if not self.use_rawinput:
            self.prompt = ""

    def _say(self, text: str) -> None:
        self.stdout.write(f"{text}\n")

    # *** the loop of commands ***

    def preloop(self) -> None:
        """Prints the place of the pause and the watched values."""
        p = self._paused
        value = f": {value_text(p.values[0])}" if len(p.values) == 1 else ""
        name = f"'{p.reason}' ({p.op.type})" if p.reason else f"'{p.op.name}' ({p.op.type})"
        verb = "paused at" if p.reason else "fired:"
        self._say(f"{verb} {name}, made at {p.op.source or 'an unknown line'}{value}")
        if (at := p.levels()[0].where) != "":
            self._say(f"in {at}")
        self._show_lines(1)
        for watched in self._watched:
            self.onecmd(f"print {watched}")

    def onecmd(self, line: str) -> bool:
        """Carries out one command; an unsuitable argument is reported and ends nothing."""
        try:
            return bool(super().onecmd(line))
        except (LookupError, ValueError, InvalidArgumentError) as e:
            self._say(f"*** {e.args[0] if isinstance(e, LookupError) and e.args else e}")
            return False

    def emptyline(self) -> bool:
        """Does nothing: an empty line does not repeat the last command."""
        return False

    def default(self, line: str) -> None:
        """Reports an unknown command."""
        if line == "EOF":
            return
        self._say(f"*** no command {line.split()[0]!r}; help lists the commands")

    def do_EOF(self, arg: str) -> bool:
        """EOF: the end of the input cancels the step."""
        self._say("end of the input: the step is cancelled")
        self._paused.quit()
        return True

    # *** the place ***

    def do_where(self, arg: str) -> None:
        """where: the frames and iterations around the firing, and the user's lines."""
        for n, level in enumerate(self._paused.levels()):
            mark = "->" if n == self._level else "  "
            title = "the step" if level.kind == "step" else f"{level.kind} '{level.name}'"
            if level.kind == "loop":
                title += f", iteration {level.iteration}"
            self._say(f"{mark} {n}  {title}: at {level.op}")
        tag = self._paused.levels()[self._level].tag
        if tag:
            self._say(f"tag: {tag}")
        self._show_lines(3)

    def do_list(self, arg: str) -> None:
        """list [N]: N of the user's lines before and after the current one (5)."""
        self._show_lines(int(arg or 5))

    def _show_lines(self, around: int) -> None:
        at = self._paused.source(self._level)
        if at is None:
            return
        for n, text in self._paused.lines(self._level, around):
            self._say(f"{'->' if n == at.line else '  '} {n:5}  {text}")

    def do_up(self, arg: str) -> None:
        """up: selects the frame around the selected one, for where, list and print."""
        self._select(self._level + 1)

    def do_down(self, arg: str) -> None:
        """down: selects the frame inside the selected one."""
        self._select(self._level - 1)

    def _select(self, level: int) -> None:
        if not 0 <= level < len(self._paused.levels()):
            raise LookupError("there is no further frame " + ("outside" if level > 0 else "inside"))
        self._level = level
        self.do_where("")

    # *** values ***

    def do_print(self, arg: str) -> None:
        """print NAME[@ITERATION]: the value of a tensor, in the current iteration or in another one."""
        if not arg:
            raise ValueError("print needs the name of a tensor, such as: print while/h, print h@0")
        text, _, iteration = arg.partition("@")
        name, tag, value = self._paused.value(text.strip(), int(iteration) if iteration else None, self._level)
        at = f" in {tag}" if iteration or ("#" in tag and tag != self._tag) else ""
        self._say(f"{name}{at} = {value_text(value, True)}")

    @property
    def _tag(self) -> str:
        return self._paused.levels()[self._level].tag

    def do_watch(self, arg: str) -> None:
        """watch [NAME[@ITERATION]]: shows a value at each pause; without a name: lists the names."""
        if not arg:
            self._say(", ".join(self._watched) or "nothing is watched")
            return
        self._watched[arg] = None
        self.do_print(arg)

    def do_unwatch(self, arg: str) -> None:
        """unwatch NAME: ends watch NAME."""
        if arg not in self._watched:
            raise LookupError(f"'{arg}' is not watched")
        del self._watched[arg]

    # *** the state of the machine ***

    def do_frames(self, arg: str) -> None:
        """frames: open frames with their iterations in flight."""
        for f in self._paused.frames():
            title = "the step" if f.kind == "step" else f"{f.kind} '{f.tag}'"
            its = ", ".join(f"{i} ({left} nodes left)" for i, left in f.iterations)
            more = f"; at most {f.limit} at a time" if f.kind == "loop" else ""
            held = f"; {f.held} tokens wait for the oldest to end" if f.held else ""
            on = f" on {f.device}" if f.device else ""
            of = "iterations " if f.kind == "loop" else ""
            self._say(f"{title}{on}: {of}{its}{more}{held}" if of else f"{title}{on}: {f.iterations[0][1]} nodes left")

    def do_ready(self, arg: str) -> None:
        """ready: nodes that are ready, in the order in which they will fire."""
        self._list(self._paused.ready(), "no node is ready")

    def do_waiting(self, arg: str) -> None:
        """waiting: nodes that wait for inputs, and operations that were started and have not completed."""
        self._list(self._paused.started(), "", "started: ")
        self._list(self._paused.waiting(), "no node has received only some of its inputs")

    def _list(self, entries: Iterable[Entry], none: str, before: str = "") -> None:
        entries = list(entries)
        for e in entries[:_LISTED]:
            parts = [f"{before}'{e.op.name}' ({e.op.type})"]
            if e.tag:
                parts.append(f"in {e.tag}")
            if e.device:
                parts.append(f"on {e.device}")
            if e.is_dead:
                parts.append("dead")
            if e.missing:
                parts.append(f"waits for {', '.join(e.missing)}")
            self._say("  " + ", ".join(parts))
        if len(entries) > _LISTED:
            self._say(f"  ... and {len(entries) - _LISTED} more")
        if not entries and none:
            self._say(none)

    # *** going on ***

    def do_step(self, arg: str) -> bool:
        """step [N]: goes on by N firings of operations other than primitives (1)."""
        self._paused.step(_count(arg))
        return True

    def do_stepi(self, arg: str) -> bool:
        """stepi [N]: goes on by N live firings of any node (1)."""
        self._paused.step(_count(arg), every=True)
        return True

    def do_next(self, arg: str) -> bool:
        """next: goes on to the next iteration of the innermost loop, or out of it."""
        self._paused.next()
        return True

    def do_break(self, arg: str) -> None:
        """break NAME: adds a breakpoint at a tensor, for the rest of this run."""
        if not arg:
            raise ValueError("break needs the name of a tensor")
        self._paused.break_at(arg)

    def do_continue(self, arg: str) -> bool:
        """continue: goes on to the next breakpoint."""
        self._paused.proceed()
        return True

    def do_run(self, arg: str) -> bool:
        """run: goes on to the end of the step without further pauses."""
        self._paused.run()
        return True

    def do_quit(self, arg: str) -> bool:
        """quit: cancels the step, which fails with CancelledError."""
        self._paused.quit()
        return True

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: lists the commands, or describes one."""
        if arg:
            super().do_help(arg)
            return
        for name in self.get_names():
            doc = getattr(self, name).__doc__ or ""
            if name.startswith("do_") and doc.startswith((f"{name[3:]}:", f"{name[3:]} ")) and name != "do_EOF":
                self._say(f"  {doc}")

    do_w, do_l, do_p, do_s, do_si = do_where, do_list, do_print, do_step, do_stepi
    do_n, do_b, do_c, do_q, do_u, do_d = do_next, do_break, do_continue, do_quit, do_up, do_down


def _count(arg: str) -> int:
    n = int(arg or 1)
    if n < 1:
        raise ValueError(f"expected a number of firings of at least 1, got {n}")
    return n

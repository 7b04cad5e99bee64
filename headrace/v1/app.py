"""TensorFlow 1's `tf.app`: starts a program whose flags the library absl parses, see `headrace.v1.flags`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.v1 import flags as flags


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> None:
    """Parses the flags, and runs `main` with the other arguments as the program.

    Flags that the program does not define are among these arguments. The result of `main` ends the process.

    Args:
      main: the function; None: `main` of the module `__main__`.
      argv: the command line, beginning with the name of the program; None: that of the process.

    Raises:
      ImportError: absl is not installed.
      SystemExit: always otherwise.

    Source: TensorFlow's `tf.app.run`.
    """

    def parse(args: Sequence[str]) -> list[str]:
        return flags.FLAGS(args, known_only=True)

    found: Any = sys.modules["__main__"]
    flags.absl("app").run(main=main or found.main, argv=argv, flags_parser=parse)


# fmt: off
__all__ = ["flags", "run"]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)

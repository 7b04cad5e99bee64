"""TensorFlow 1's `tf.flags`, flags of the command line, which are those of the library absl.

absl is an optional library: `pip install headrace[flags]`. The module has all public names of `absl.flags`. Differences
are TensorFlow's: `DEFINE_string` and its kind take the older names of arguments, and `FLAGS` parses the command line at
the first access to a flag.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headrace import public_names

# Names of arguments in TensorFlow 1 -> in absl.
_RENAMED: Final = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def absl(module: str = "flags") -> Any:
    """Returns a module of absl.

    Raises:
      ImportError: absl is not installed.
    """
    try:
        return importlib.import_module(f"absl.{module}")
    except ImportError as e:
        raise ImportError(
            "tf.flags and tf.app need the library absl: `pip install absl-py` or `pip install headrace[flags]`"
        ) from e


class _Needed:
    """Name of absl where absl is not installed: each use is an ImportError."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _why()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python and its tools ask for these
        raise _why()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise _why()


def _why() -> ImportError:
    try:
        absl()
    except ImportError as e:
        return e
    raise AssertionError("absl was missing when the name was looked up, and is there now")


class _ParsedFlags:
    """Flags of the program, parsed from the command line at the first access."""

    def _parsed(self) -> Any:
        flags = absl().FLAGS
        if not flags.is_parsed():
            flags(sys.argv)
        return flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._parsed(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parsed(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._parsed(), name)

    def __getitem__(self, name: str) -> Any:
        return absl().FLAGS[name]

    def __setitem__(self, name: str, flag: Any) -> None:
        absl().FLAGS[name] = flag

    def __contains__(self, name: str) -> bool:
        return name in absl().FLAGS

    def __iter__(self) -> Iterator[str]:
        return iter(absl().FLAGS)

    def __len__(self) -> int:
        return len(absl().FLAGS)

    def __call__(self, argv: Any, known_only: bool = False) -> list[str]:
        left: list[str] = absl().FLAGS(argv, known_only=known_only)
        return left


def _renaming(define: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of absl that takes TensorFlow 1's names of arguments, too."""

    @functools.wraps(define)
    def defined(*args: Any, **kwargs: Any) -> Any:
        given = {_RENAMED.get(name, name): value for name, value in kwargs.items()}
        if isinstance(given.get("flag_values"), _ParsedFlags):
            del given["flag_values"]  # the default
        return define(*args, **given)

    return defined


FLAGS = _ParsedFlags()

# fmt: off
_NAMES: Final = (
    "DEFINE", "ArgumentParser", "ArgumentSerializer", "BaseListParser", "BooleanFlag", "BooleanParser",
    "CantOpenFlagFileError", "CsvListSerializer", "DEFINE_alias", "DEFINE_bool", "DEFINE_boolean", "DEFINE_enum",
    "DEFINE_enum_class", "DEFINE_flag", "DEFINE_float", "DEFINE_integer", "DEFINE_list", "DEFINE_multi",
    "DEFINE_multi_enum", "DEFINE_multi_enum_class", "DEFINE_multi_float", "DEFINE_multi_integer", "DEFINE_multi_string",
    "DEFINE_spaceseplist", "DEFINE_string", "DuplicateFlagError", "EnumClassFlag", "EnumClassListSerializer",
    "EnumClassParser", "EnumClassSerializer", "EnumFlag", "EnumParser", "Error", "Flag", "FlagHolder",
    "FlagNameConflictsWithMethodError", "FlagValues", "FloatParser", "IllegalFlagValueError", "IntegerParser",
    "ListParser", "ListSerializer", "MultiEnumClassFlag", "MultiFlag", "UnparsedFlagAccessError",
    "UnrecognizedFlagError", "ValidationError", "WhitespaceSeparatedListParser", "adopt_module_key_flags",
    "declare_key_flag", "disclaim_key_flags", "doc_to_help", "flag_dict_to_args", "get_help_width",
    "mark_bool_flags_as_mutual_exclusive", "mark_flag_as_required", "mark_flags_as_mutual_exclusive",
    "mark_flags_as_required", "multi_flags_validator", "override_value", "register_multi_flags_validator",
    "register_validator", "set_default", "text_wrap", "validator",
)
# fmt: on

__all__ = ["FLAGS", *_NAMES]


def _of_absl(name: str) -> Any:
    if name not in _NAMES:
        raise public_names.MissingName(__name__, name)
    try:
        found = getattr(absl(), name)
    except ImportError:
        return _Needed()
    return _renaming(found) if name in _RENAMING else found


_RENAMING: Final = frozenset(
    f"DEFINE_{kind}" for kind in ("bool", "boolean", "enum", "float", "integer", "list", "string")
)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
else:
    __getattr__ = _of_absl
    _, __dir__ = public_names.of(__name__, __all__)

"""Signatures of calls: which arguments are tensors, and the key that identifies a trace.

Tensors count by dtype and shape, all other arguments by their values. A call is flattened once; its leaves and its key
serve both the look-up of a trace and a new trace.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from headrace import nest, shapes
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import SignatureError

NUMBERS: Final = (int, float, complex)


class Parameters:
    """Parameters of a Python function, to give keyword arguments their positions.

    Args:
      fn: the function.

    Example:
      >>> Parameters(lambda x, y=1, *, z=2: 0).bound((1,), {"z": 3, "y": 2})
      ((1, 2), {'z': 3})
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):  # a builtin function
            self._signature = None
        named = [] if self._signature is None else list(self._signature.parameters.values())
        self.names = [p.name for p in named if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    def bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns equivalent arguments, as many as possible by position.

        Raises:
          TypeError: the arguments do not fit the parameters.
        """
        if not kwargs or self._signature is None:
            return tuple(args), kwargs
        found = self._signature.bind(*args, **kwargs)
        return found.args, found.kwargs

    def positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Returns all arguments by position, if the keywords continue the positions; else None."""
        names = self.names[len(args) : len(args) + len(kwargs)]
        if len(names) < len(kwargs):
            return None
        try:
            return (*args, *[kwargs[name] for name in names])
        except KeyError:
            return None

    def name(self, path: str) -> str:
        """Returns a name for the placeholder of an argument; see `label`."""
        found = re.findall(r"\w+", path)
        if found[0] == "0" and int(found[1]) < len(self.names):
            found[1] = self.names[int(found[1])]
        name = "_".join(found[1:])
        return name if name[:1].isalpha() else f"arg_{name}"

    def label(self, path: str) -> str:
        """Returns the description of an argument, for messages.

        Args:
          path: the access to it in the tuple (args, kwargs), such as "[0][1]['w']".
        """
        which, _, rest = path.removeprefix("[").partition("]")
        first, _, rest = rest.removeprefix("[").partition("]")
        if which == "0" and int(first) < len(self.names):
            return f"argument {(self.names[int(first)] + rest)!r}"
        return f"argument {first}{rest}"


def python_key(leaf: Any) -> Hashable:
    """Returns the part of a key for an argument that is not a tensor.

    Equal keys belong to values that a function cannot tell apart: 1, 1.0 and True differ, and so do 0.0 and -0.0. A key
    may have the identity of the argument only, so a trace keeps its arguments.
    """
    if isinstance(leaf, NUMBERS) and not leaf:
        return type(leaf), repr(leaf)
    if isinstance(leaf, float) and math.isnan(leaf):
        return type(leaf), "nan"
    if not hasattr(type(leaf), "as_tensor"):
        try:
            hash(leaf)
            return type(leaf), leaf
        except TypeError:
            pass
    return type(leaf), id(leaf)


class Static:
    """Argument that is part of the signature as a whole (`static_argnums`).

    Args:
      value: the argument.
      label: its description for messages.

    Raises:
      SignatureError: it has no hash.
    """

    __slots__ = ("value",)

    @classmethod
    def wrapped(
        cls, args: Sequence[Any], positions: frozenset[int], parameters: Parameters, title: str
    ) -> tuple[Any, ...]:
        """Returns the arguments with those at `positions` wrapped."""
        if not positions:
            return tuple(args)
        return tuple(
            cls(a, f"{parameters.label(f'[0][{i}]')} of {title}") if i in positions else a for i, a in enumerate(args)
        )

    @staticmethod
    def unwrapped(leaf: Any) -> Any:
        """Returns the argument of a leaf that may be wrapped."""
        return leaf.value if isinstance(leaf, Static) else leaf

    def __init__(self, value: Any, label: str) -> None:
        try:
            hash(value)
        except TypeError as e:
            raise SignatureError(
                f"{label} is static, so it must be hashable, got {nest.describe(value)}; give a tuple, a number, text "
                f"or a frozen dataclass ({e})"
            ) from e
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and type(self.value) is type(other.value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def fitted(signature: Any, args: Sequence[Any], b: Any, parameters: Parameters, title: str) -> Any:
    """Returns the arguments as tensors that fit an input signature.

    Args:
      signature: a tuple of structures of TensorSpecs; an object of several tensors has TensorSpecs in their place.
      args: the arguments; a TensorSpec stands for a tensor.
      b: the builder that converts them.
      parameters: the parameters of the function.
      title: the description of the function in messages.

    Raises:
      SignatureError: an argument has another structure, dtype or shape.
    """
    try:
        wholes = nest.flatten_up_to(signature, tuple(args), expand=False)
        leaves: list[Any] = []
        for wanted, given in zip(nest.flatten(signature, expand=False), wholes, strict=True):
            if nest.is_composite(wanted):
                differs = nest.mismatch(wanted, given)
                if differs is not None:
                    raise ValueError(f"{differs.second} where {differs.first} was expected")
            leaves += nest.flatten(given) if nest.is_composite(wanted) else [given]
    except ValueError as e:
        raise SignatureError(f"the arguments of {title} do not have the structure of its input_signature: {e}") from e
    out = []
    for (path, spec), leaf in zip(nest.flatten_with_paths(signature), leaves, strict=True):
        label = f"{parameters.label('[0]' + path)} of {title}"
        try:
            t = leaf if isinstance(leaf, TensorSpec) and leaf.dtype is spec.dtype else b.tensor(leaf, spec.dtype)
        except TypeError as e:
            raise SignatureError(f"{label} must be {spec}, got {nest.describe(leaf)}: {e}") from e
        if not shapes.covers(spec.shape, t.shape):
            raise SignatureError(f"{label} must be {spec}, got {nest.describe(leaf)} of shape {shapes.show(t.shape)}")
        out.append(t)
    return nest.pack(signature, out)

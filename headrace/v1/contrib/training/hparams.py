"""`HParams`: hyperparameters with names and types, read from text."""

from __future__ import annotations

import json
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

# NAME=VALUE, NAME[INDEX]=VALUE, NAME=[VALUE, ...]
_ASSIGNMENT: Final = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(?P<index>\[\s*\d+\s*\])?\s*=\s*(?:(?P<value>[^,\[]*)|\[(?P<values>[^\]]*)\])(?:$|,\s*)"
)


def _text(value: str) -> str:
    return value


def _bool(text: str) -> bool:
    known = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
    if text not in known:
        raise ValueError(text)
    return known[text]


def _int(text: str) -> int:
    if float(text) != int(float(text)):
        raise ValueError(text)
    return int(float(text)) if not re.fullmatch(r"[+-]?\d+", text) else int(text)


def _read(text: str, kind: type, name: str, whole: str) -> Any:
    readers: dict[type, Any] = {bool: _bool, int: _int, float: float, str: _text}
    try:
        return readers.get(kind, kind)(text)
    except ValueError:
        raise ValueError(
            f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}' in {whole}"
        ) from None


def parse_values(values: str, type_map: Mapping[str, type], ignore_unknown: bool = False) -> dict[str, Any]:
    """Returns the values of hyperparameters in a text: "a=1,b=0.5,c=[1,2],d[3]=4".

    Args:
      values: the text.
      type_map: the type of each hyperparameter, for a list that of its elements.
      ignore_unknown: whether other names are skipped.

    Returns:
      The values by name; for an assignment to an element a dict from index to value.

    Raises:
      ValueError: the text is malformed, a name is unknown or assigned twice, or a value has another type.

    Source: TensorFlow's `tf.contrib.training.parse_values`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.contrib.training.parse_values("rate=0.5,units=[3,4]", {"rate": float, "units": int})
      {'rate': 0.5, 'units': [3, 4]}
    """
    found: dict[str, Any] = {}
    at = 0
    while at < len(values):
        m = _ASSIGNMENT.match(values, at)
        if m is None:
            raise ValueError(f"Malformed hyperparameter value: {values[at:]}")
        at = m.end()
        name = m["name"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}")
        kind = type_map[name]
        if m["values"] is not None:
            if m["index"]:
                raise ValueError(f"Assignment of a list to a list index: {m[0]}")
            new: Any = [_read(x.strip(), kind, name, values) for x in re.split(r"[ ,]+", m["values"].strip()) if x]
        else:
            new = _read(m["value"].strip(), kind, name, values)
        if m["index"]:
            part = found.setdefault(name, {})
            index = int(m["index"].strip("[] "))
            if not isinstance(part, dict) or index in part:
                raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
            part[index] = new
        elif name in found:
            raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
        else:
            found[name] = new
    return found


class HParams:
    """Hyperparameters: attributes with a type each.

    Args:
      hparam_def: not supported; None.
      model_structure: any object, which `get_model_structure` returns.
      **kwargs: names and values. The type of a value is that of the hyperparameter; of a list, that of its elements.

    Raises:
      ValueError: a name is that of a method, or a list is empty.

    Source: TensorFlow's `tf.contrib.training.HParams`.

    Example:
      >>> import headrace.v1 as tf
      >>> hparams = tf.contrib.training.HParams(rate=0.1, units=[3, 4], name="net")
      >>> _ = hparams.parse("rate=0.5,units[1]=7")
      >>> hparams.rate, hparams.units, hparams.values()["name"]
      (0.5, [3, 7], 'net')
    """

    def __init__(self, hparam_def: None = None, model_structure: Any = None, **kwargs: Any) -> None:
        if hparam_def is not None:
            raise ValueError("HParams takes names and values; the message HParamDef is not supported: give None")
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter.

        Args:
          name: the name.
          value: the value, or a list of values.

        Raises:
          ValueError: the name is taken, or the list is empty.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Sets a hyperparameter; the value is converted to its type.

        Args:
          name: the name.
          value: the value, or a list of values.

        Raises:
          KeyError: there is no such hyperparameter.
          ValueError: the value has another type, or is a list where none is, or the reverse.
        """
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list) != is_list:
            have, got = ("multi-valued", "not a list") if is_list else ("not multi-valued", "a list")
            raise ValueError(f"Must not pass {got} for {have} parameter: {name}")
        setattr(self, name, [_cast(name, kind, x) for x in value] if is_list else _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter; no effect if there is none."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Sets hyperparameters by a text, and returns the object. See `parse_values`."""
        kinds = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, kinds))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Sets hyperparameters by name, and returns the object.

        Args:
          values_dict: values by name; for elements of a list a dict from index to value.
        """
        for name, value in values_dict.items():
            if isinstance(value, dict) and self._hparam_types.get(name, (None, False))[1]:
                whole = list(getattr(self, name))
                for index, element in value.items():
                    whole[index] = element
                self.set_hparam(name, whole)
            else:
                self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: Mapping[str, Any]) -> HParams:
        """`override_from_dict` under an older name."""
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> HParams:
        """Sets hyperparameters by a JSON object, and returns the object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(
        self, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
    ) -> str:
        """Returns the hyperparameters as a JSON object.

        Args:
          indent, separators, sort_keys: see `json.dumps`.
        """
        return json.dumps(
            {k: v for k, v in self.values().items() if not callable(v)}, indent=indent, separators=separators,
            sort_keys=sort_keys,
        )  # fmt: skip

    def values(self) -> dict[str, Any]:
        """Returns the values by name."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a hyperparameter.

        Args:
          key: the name.
          default: the result if there is no such hyperparameter, of the type that it has.
        """
        return getattr(self, key) if key in self._hparam_types else default

    def get_model_structure(self) -> Any:
        """Returns the argument `model_structure`."""
        return self._model_structure

    def set_model_structure(self, model_structure: Any) -> None:
        """Sets the result of `get_model_structure`."""
        self._model_structure = model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({self})"


def _cast(name: str, kind: type, value: Any) -> Any:
    """Returns a value in the type of its hyperparameter, if that keeps its meaning."""
    if isinstance(value, kind) and (kind is bool) == isinstance(value, bool):
        return value
    fails = f"Could not cast hparam '{name}' of type '{kind.__name__}' from value {value!r}"
    if kind is type(None):
        return value
    is_text = issubclass(kind, str)
    is_misfit = is_text != isinstance(value, str) or (kind is bool) != isinstance(value, bool)
    is_fraction = issubclass(kind, numbers.Integral) and not isinstance(value, numbers.Integral)
    if is_misfit or is_fraction or (isinstance(value, Sequence) and not is_text):
        raise ValueError(fails)
    return kind(value)

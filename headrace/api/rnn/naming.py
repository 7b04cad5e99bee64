"""Scopes that recurrent networks open for their operations and variables.

The networks of this package are the same for `hr` and for TensorFlow 1's API, with one difference: TensorFlow 1's API
opens variable scopes (`headrace.v1.rnn`), because they determine the names of variables.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace.api import scopes


class Naming:
    """Name scopes."""

    def enter(self, scope: Any, default: str, values: Any = None) -> AbstractContextManager[Any]:
        """A scope to be entered with `with`, which gives what enters it again.

        Args:
          scope: a name, or what such a scope gave; None: `default`, made unique.
          default: a name.
          values: tensors, of whose graph it is where none has been entered.
        """
        return scopes.name_scope(scope, default, values)

    def reuse(self, scope: Any) -> None:
        """From now on what is asked for in a scope are the variables that are there."""


NAME_SCOPES = Naming()

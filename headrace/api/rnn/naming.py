"""How recurrent networks open the scopes in which their operations and variables stand.

The networks of this package are the same for `hr` and for TensorFlow 1's API, but for this: there it is variable scopes
that are opened (`headrace.v1.rnn`), for they name the variables.
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

"""Scopes that recurrent networks open for their operations and variables.

The networks of this package are the same for `hr` and for TensorFlow 1's API, with one difference: TensorFlow 1's API
opens variable scopes (`headrace.v1.rnn`), because they determine the names of variables.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace.api import scopes


class Naming:
    """Opens name scopes for recurrent networks."""

    def enter(self, scope: Any, default: str, values: Any = None) -> AbstractContextManager[Any]:
        """Returns a context manager that enters a scope; its value can enter the scope again.

        Args:
          scope: a name, or the value of an entered scope; None: `default`, made unique.
          default: the name if `scope` is None.
          values: tensors; outside of a graph context, the scope is one of their graph.
        """
        return scopes.name_scope(scope, default, values)

    def reuse(self, scope: Any) -> None:
        """Makes later requests for variables in a scope return the existing variables; no effect here."""


NAME_SCOPES = Naming()

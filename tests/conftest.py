"""What holds for every test: graphs are verified after each pass, and hypothesis is repeatable in CI."""

from __future__ import annotations

import gc
import os
import signal

# Read when headrace is imported, so set before any test module can do that.
os.environ.setdefault("HEADRACE_VERIFY", "2")

import hypothesis
import pytest

# No deadline: the first example of a test pays for imports, and a machine may be busy. The timeout of pytest bounds
# the whole test.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")


# What a shell starts in the background ignores Ctrl-C, and so does all that it starts in turn; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collecting made stays to the end: it need not be looked through at every collection of garbage. Graphs are
    many small objects, so garbage is collected less often, too: that is an eighth of the time of the tests."""
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)

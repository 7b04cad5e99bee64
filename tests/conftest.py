"""What holds for every test: graphs are verified after each pass, and hypothesis is repeatable in CI."""

import os

# Read when headrace is imported, so set before any test module can do that.
os.environ.setdefault("HEADRACE_VERIFY", "2")

import hypothesis

# No deadline: the first example of a test pays for imports, and a machine may be busy. The timeout of pytest bounds
# the whole test.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")

"""Runs the applications and writes docs/applications.md: `python -m examples.applications`.

They run one after the other, each in a process of its own. The last is the comparison with TensorFlow and PyTorch
(`benchmarks.applications`), if TensorFlow is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time

from examples.applications import page

LONGEST = 600  # seconds of one program
MODULES = {name: f"examples.applications.{name}" for name in page.PROGRAMS} | {page.SPEED: "benchmarks.applications"}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"default: all of {', '.join(MODULES)}")
    parser.add_argument("--page", action="store_true", help="write the page from the records, without a run")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MODULES]
    if unknown:
        parser.error(f"no application is called {unknown[0]!r}; there are {', '.join(MODULES)}")
    failed, begun = [], time.perf_counter()
    for name in [] if options.page else options.names or MODULES:
        if name == page.SPEED and importlib.util.find_spec("tensorflow") is None:
            print("steps a second are not compared: TensorFlow is not installed")
            continue
        command = [sys.executable, "-m", MODULES[name], "--record", str(page.RECORDS / f"{name}.json")]
        try:
            status = subprocess.run(command, cwd=page.ROOT, timeout=LONGEST, check=False).returncode
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {LONGEST} s", file=sys.stderr)
            status = 124
        failed += [name] if status else []
        print(flush=True)
    page.write()
    print(f"{page.PAGE.relative_to(page.ROOT)}; {time.perf_counter() - begun:.0f} s")
    if failed:
        print(f"failed, or with a figure out of its bounds: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

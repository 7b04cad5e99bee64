"""Runs the applications, one after the other, and writes docs/applications.md: `python -m examples.applications`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from examples.applications import page

LONGEST = 600  # seconds of one program


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"default: all of {', '.join(page.PROGRAMS)}")
    parser.add_argument("--page", action="store_true", help="write the page from the records, without a run")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in page.PROGRAMS]
    if unknown:
        parser.error(f"no application is called {unknown[0]!r}; there are {', '.join(page.PROGRAMS)}")
    failed, begun = [], time.perf_counter()
    for name in [] if options.page else options.names or page.PROGRAMS:
        command = [
            sys.executable,
            "-m",
            f"examples.applications.{name}",
            "--record",
            str(page.RECORDS / f"{name}.json"),
        ]
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

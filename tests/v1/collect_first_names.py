"""Writes `first_names.txt`: the public names of TensorFlow 1.15, the last version 1.

    pip download --no-deps --only-binary :all: --python-version 3.7 --abi cp37m \\
        --platform manylinux2010_x86_64 tensorflow==1.15.5
    python tests/v1/collect_first_names.py tensorflow-1.15.5-*.whl

The names are read from the modules of its interface in the wheel, which runs on no Python of today.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parent / "first_names.txt"
ROOT = "tensorflow_core/_api/v1/"
AGAIN = ("compat.v1", "compat.v2")  # TensorFlow itself


def names(wheel: str) -> Iterator[str]:
    """Iterates over the dotted names below `tf`, some of them twice."""
    with zipfile.ZipFile(wheel) as archive:
        for file in archive.namelist():
            folder, _, module = file.removeprefix(ROOT).rpartition("/")
            path = folder.replace("/", ".")
            if file.startswith(ROOT) and module in ("__init__.py", "v1.py") and not path.startswith(AGAIN):
                for node in ast.walk(ast.parse(archive.read(file))):
                    for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                        name = alias.asname or alias.name
                        if not name.startswith("_"):
                            yield f"{path}.{name}".lstrip(".")


def main(wheel: str) -> None:
    found = sorted(set(names(wheel)))
    OUT.write_text("\n".join(found) + "\n", encoding="utf-8")
    print(len(found), "names")


if __name__ == "__main__":
    main(sys.argv[1])

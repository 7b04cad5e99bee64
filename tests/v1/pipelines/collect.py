"""Writes `recorded.json`: the elements that TensorFlow gives for each pipeline.

Run by a Python with TensorFlow, in the root of the project: `python -m tests.v1.pipelines.collect`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).parent / "recorded.json"


def main() -> None:
    """Runs all pipelines."""
    import tensorflow.compat.v1 as tf

    from tests.v1.pipelines.pipelines import PIPELINES, write_files
    from tests.v1.pipelines.running import elements

    tf.disable_eager_execution()

    def write(path: str, records: list[bytes]) -> None:
        with tf.python_io.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)

    out = {}
    for name in PIPELINES:
        with tempfile.TemporaryDirectory() as folder:
            write_files(folder, write)
            out[name] = elements(tf, name, folder)
    lines = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items())
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(out)} pipelines of TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main()

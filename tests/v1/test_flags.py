"""Flags of the command line: those of absl, or an error that names it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

PROGRAM = """
import headrace.v1 as tf
flags = tf.app.flags
flags.DEFINE_string("name", "none", "A name.")
flags.DEFINE_integer(flag_name="steps", default_value=3, docstring="Steps.")
flags.DEFINE_boolean("fast", False, "Whether fast.")
FLAGS = tf.flags.FLAGS

def main(argv):
    print(argv[1:], FLAGS.name, FLAGS.steps + 1, FLAGS.fast, "name" in FLAGS)
    FLAGS.steps = 9
    print(FLAGS.steps, sorted(set(FLAGS) & {"name", "fast"}))
    return 4

if __name__ == "__main__":
    tf.app.run()
"""

HAS_ABSL = importlib.util.find_spec("absl") is not None


def ran(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=60)


@pytest.mark.system
def test_a_program_with_flags() -> None:
    done = ran(PROGRAM, "--name=x", "--steps", "5", "--fast", "left")
    if HAS_ABSL:
        assert done.returncode == 4, done.stderr
        assert done.stdout.splitlines() == ["['left'] x 6 True True", "9 ['fast', 'name']"]
    else:
        assert done.returncode == 1
        assert "ImportError: tf.flags and tf.app need the library absl: `pip install absl-py`" in done.stderr


@pytest.mark.system
def test_flags_are_parsed_at_the_first_access() -> None:
    program = "import headrace.v1 as tf\ntf.flags.DEFINE_float('rate', 0.5, 'Rate.')\nprint(tf.flags.FLAGS.rate)"
    done = ran(program, "--rate=0.25")
    assert done.stdout == ("0.25\n" if HAS_ABSL else "")
    assert HAS_ABSL or "pip install headrace[flags]" in done.stderr


def test_without_absl_the_names_are_there_and_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import headrace.v1 as tf

    for name in [m for m in sys.modules if m.partition(".")[0] == "absl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "absl", None)
    uses = (
        lambda: tf.flags.DEFINE_string("a", "b", "c"),
        lambda: tf.flags.FLAGS.a,
        lambda: tf.app.run(print),
        lambda: tf.flags.Flag.parse,
    )
    for use in uses:
        with pytest.raises(ImportError, match="absl-py"):
            use()
    with pytest.raises(ImportError, match="absl-py"):

        class Mine(tf.flags.Flag):
            pass

    with pytest.raises(AttributeError, match="DEFINE_strin"):
        tf.flags.DEFINE_strin
    assert "DEFINE_string" in dir(tf.flags)

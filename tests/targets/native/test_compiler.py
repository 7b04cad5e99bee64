from unittest import mock

import pytest

pytest.importorskip("llvmlite")

from headrace.errors import HeadraceInternalError
from headrace.targets.native import compiler

_TEXT = """\
define i32 @one() {
entry:
  ret i32 1
}
"""


def test_a_module_that_optimization_made_invalid_is_optimized_without_the_vectorizer_of_blocks() -> None:
    made = compiler.compiler()
    runs: list[bool] = []
    usual = made._run_passes

    def run(module: object, text: str, *, vectorizes_blocks: bool) -> None:
        runs.append(vectorizes_blocks)
        usual(module, text, vectorizes_blocks=vectorizes_blocks)

    with mock.patch.object(made, "_run_passes", run), mock.patch.object(compiler, "_is_valid", return_value=False):
        code = made.compile(_TEXT)
    assert runs == [True, False]
    assert code == made.compile(_TEXT)


def test_an_invalid_module_is_an_error() -> None:
    text = _TEXT.replace("ret i32 1", "%x = add i32 %y, 1\n  %y = add i32 1, 1\n  ret i32 %x")
    with pytest.raises(HeadraceInternalError, match="does not dominate all uses"):
        compiler.compiler().compile(text)

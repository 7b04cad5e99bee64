"""`hr.explain` of steps that are machine code."""

from __future__ import annotations

import re

import headrace as hr


def test_machine_code_is_explained_by_its_instructions_with_operations_and_lines() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (4, 16), name="x")
        _, y = hr.while_loop(lambda i, h: i < 10, lambda i, h: (i + 1, hr.tanh(h, name="t") * 2.0), (0, x), name="loop")
        total = hr.reduce_sum(y)
    found = hr.Session(graph=g).explain(total, [x])
    text = str(found)
    assert text.startswith(found.listing)
    code, _, reasons = text.partition("\nengine: compiled\n")
    section = code[code.index("# instructions, of which each section is machine code:\n") :]
    assert re.search(r" = section \(%0\)  # loop, test_explanation\.py:\d+\n", section)
    assert re.search(r" = map tanh\(\$0\) .*  # loop/t, test_explanation\.py:\d+\n", section)
    assert "native code: 4 of 4 instructions" in reasons

"""Makes docs/reference/ops.md, the list of op types, from the registry.

python -m tests.ops.page
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Iterable
from pathlib import Path

import headrace.ops
from headrace import dtypes
from headrace.dtypes import DType
from headrace.ir.opdef import Missing, NotDifferentiable, OpDef, op_registry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ops.md"
PACKAGE = Path(headrace.ops.__file__).parent

# Sets of dtypes that have a name, the ones to prefer first.
GROUPS = {
    "any": dtypes.ALL,
    "numeric": dtypes.NUMERIC,
    "real": dtypes.REAL,
    "floating, complex": dtypes.INEXACT,
    "floating": dtypes.FLOATING,
    "integer": dtypes.INTEGER,
    "signed": dtypes.SIGNED,
    "unsigned": dtypes.UNSIGNED,
    "complex": dtypes.COMPLEX,
}

HEAD = """# Op types

headrace has {count} of TensorFlow's op types and {own} of its own (their names begin with an underscore). This page
is generated from their records ([adding_ops.md](../how-to/adding_ops.md)) by `python -m tests.ops.page`. Every op
type can be called as `hr.raw_ops.<Type>(...)`, with TensorFlow's argument and attribute names.

The groups of dtypes are *floating*: {floating}; *complex*: {complex}; *signed*: {signed}; *unsigned*: {unsigned}.
*Integer* is signed and unsigned, *real* is integer and floating, *numeric* is real and complex; *any* is numeric,
bool, string, resource and variant.

In the column "gradient", *rule* means that the op has a gradient of any order, and *stops* that it is not
differentiable by its nature (nor is it in TensorFlow). Of the {count} types {rules} have a rule, {stops} stop
gradients, and {missing} have no rule although one could exist; for these the column gives the reason.
"""


def family(record: OpDef) -> str:
    """The module that has the record: `nn/conv`."""
    path = Path(op_registry.where(record.type).rpartition(":")[0])
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def subject(name: str) -> str:
    """Subject of a family of ops: the first sentence of its module's docstring."""
    doc = importlib.import_module("headrace.ops." + name.replace("/", ".")).__doc__ or ""
    return " ".join(doc.partition("\n\n")[0].split())


def _listed(names: Iterable[DType]) -> str:
    return ", ".join(d.name for d in sorted(names, key=lambda d: d.number))


@functools.cache
def of_dtypes(allowed: frozenset[DType]) -> str:
    """The shortest way to say which dtypes these are."""
    ways = [_listed(allowed)]
    for name, group in GROUPS.items():
        more, less = allowed - group, group - allowed
        if len(less) < len(group):
            text = name + (f" but {_listed(less)}" if less else "")
            ways.append(text + (f", {_listed(more)}" if more else ""))
    return min(ways, key=len)


def column_of_dtypes(record: OpDef) -> str:
    """The dtypes of each type attribute that leaves a choice."""
    parts = []
    for name, spec in record.attrs.items():
        if spec.kind == "type" and (spec.allowed is None or len(spec.allowed) > 1):
            parts.append(f"{name}: {of_dtypes(frozenset(dtypes.ALL if spec.allowed is None else spec.allowed))}")
    return "; ".join(parts)


def column_of_gradient(record: OpDef) -> str:
    if isinstance(record.grad, Missing):
        return f"none: {record.grad.why}"
    return "stops" if isinstance(record.grad, NotDifferentiable) else "rule"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """The whole page."""
    records = sorted((op_registry.get(name) for name in op_registry), key=lambda r: r.type)
    theirs = [r for r in records if not r.type.startswith("_")]
    gradients: Collection[str] = [column_of_gradient(r).split(":")[0] for r in theirs]
    groups = {"floating": dtypes.FLOATING, "complex": dtypes.COMPLEX, "signed": dtypes.SIGNED}
    out = [
        HEAD.format(
            count=len(theirs),
            own=len(records) - len(theirs),
            rules=sum(g == "rule" for g in gradients),
            stops=sum(g == "stops" for g in gradients),
            missing=sum(g == "none" for g in gradients),
            unsigned=_listed(dtypes.UNSIGNED),
            **{name: _listed(group) for name, group in groups.items()},
        )
    ]
    families: dict[str, list[OpDef]] = {}
    for r in records:
        families.setdefault(family(r), []).append(r)
    for name in sorted(families, key=lambda f: (f.count("/"), f)):
        out += [f"## {name}\n", f"{subject(name)}\n"]
        out += ["| op | dtypes | gradient | differs from TensorFlow's |", "|---|---|---|---|"]
        for r in families[name]:
            columns = (f"`{r.type}`", column_of_dtypes(r), column_of_gradient(r), r.differs)
            out.append("| " + " | ".join(map(cell, columns)) + " |")
        out.append("")
    return "\n".join(out).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Public names of modules: the list of `dir(module)`, and suggestions for wrong names.

Each public module ends with its `__all__` and

    if not TYPE_CHECKING:
        __getattr__, __dir__ = public_names.of(__name__, __all__)

A missing name raises `MissingName`, an AttributeError. Its text has near names of the module and of the other public
modules, and headrace's names for those of other libraries (`hr.sum` is `hr.reduce_sum`). For a name of TensorFlow's
that `headrace.v1` lacks by intent it has the reason (`headrace.v1.absent`). The search takes place when
the text is read: `hasattr`, and imports of submodules, ask for missing names often.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from headrace.documentation import cite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Packages with public modules -> the name under which programs import them, the page that lists the public names, and
# the module whose `reason` tells why a name is absent by intent.
_ROOTS: Final = {
    "headrace": ("hr", "", ""),
    "headrace.v1": ("tf", cite("reference/v1"), "headrace.v1.absent"),
}

# Names of other libraries -> headrace's names.
_ELSEWHERE: Final = {
    **{name: f"reduce_{name}" for name in "sum mean max min prod any all std logsumexp".split()},
    **dict.fromkeys(("amax", "nanmax"), "reduce_max"),
    **dict.fromkeys(("amin", "nanmin"), "reduce_min"),
    **dict.fromkeys(("array", "asarray", "tensor", "from_numpy"), "constant"),
    **dict.fromkeys(("average", "nanmean"), "reduce_mean"),
    **dict.fromkeys(("cat", "concatenate", "hstack", "vstack"), "concat"),
    **dict.fromkeys(("clamp", "clip"), "clip_by_value"),
    **dict.fromkeys(("double", "float"), "float64"),
    **dict.fromkeys(("dstack", "column_stack"), "stack"),
    **dict.fromkeys(("fabs", "absolute"), "abs"),
    **dict.fromkeys(("flatten", "ravel", "view"), "reshape"),
    **dict.fromkeys(("jacfwd", "jacrev"), "jacobian"),
    **dict.fromkeys(("map_structure", "tree_map"), "tree.map"),
    **dict.fromkeys(("flip", "fliplr", "flipud"), "reverse"),
    **dict.fromkeys(("fori_loop", "for_loop"), "while_loop"),
    **dict.fromkeys(("get_variable", "Parameter"), "Variable"),
    **dict.fromkeys(("global_variables_initializer", "initialize_all_variables"), "variables_initializer"),
    **dict.fromkeys(("index_select", "take", "take_along_axis"), "gather"),
    **dict.fromkeys(("masked_select", "compress"), "boolean_mask"),
    **dict.fromkeys(("movedim", "moveaxis", "permute", "permute_dims", "swapaxes"), "transpose"),
    **dict.fromkeys(("no_grad", "detach"), "stop_gradient"),
    **dict.fromkeys(("nonzero", "argwhere", "flatnonzero"), "where"),
    **dict.fromkeys(("rand", "random_uniform", "random_sample"), "random.uniform"),
    **dict.fromkeys(("randint", "integers"), "random.uniform"),
    **dict.fromkeys(("randn", "random_normal", "standard_normal"), "random.normal"),
    **dict.fromkeys(("tril", "triu"), "linalg.band_part"),
    "arange": "range",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "atleast_1d": "reshape",
    "binary_cross_entropy": "nn.sigmoid_cross_entropy_with_logits",
    "bool_": "bool",
    "checkpoint": "recompute_grad",
    "chunk": "split",
    "array_split": "split",
    "cross_entropy": "nn.softmax_cross_entropy_with_logits",
    "dot": "tensordot",
    "empty": "zeros",
    "empty_like": "zeros_like",
    "floor_divide": "floordiv",
    "full": "fill",
    "inner": "tensordot",
    "int": "int32",
    "keras": "layers",
    "long": "int64",
    "mm": "matmul",
    "ndim": "rank",
    "outer": "einsum",
    "permutation": "random.shuffle",
    "remainder": "floormod",
    "softmax_cross_entropy": "nn.softmax_cross_entropy_with_logits",
    "true_divide": "truediv",
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
    "var": "reduce_variance",
}

_CUTOFF: Final = 0.75  # the similarity of a suggestion, of 1


class MissingName(AttributeError):
    """A public module has no such name; the text suggests others.

    Args:
      module: the `__name__` of the module.
      name: the name.
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(module, name)
        self.name = name  # without `obj`, for which Python would add suggestions of its own

    def __str__(self) -> str:
        module, name = self.args
        _, page, absent = _ROOTS[_root(module)]
        full = f"{_path(module)}.{name}".removeprefix(".")
        reason = importlib.import_module(absent).reason(full) if absent else ""
        near = [] if reason else suggestions(module, name)
        hint = ""
        if reason:
            hint = f"; {reason} ({page})"
        elif near:
            hint = f"; did you mean {' or '.join(near)}?"
        elif page:
            hint = f"; {page} lists what it has of TensorFlow 1's names"
        return f"module {module!r} has no attribute {name!r}{hint}"


def of(
    module: str, names: Iterable[str], later: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a public module.

    Args:
      module: the `__name__` of the module.
      names: its public names.
      later: names that are imported on first use -> "module", or "module:name in it".
    """

    def getattr_(name: str) -> Any:
        if later is None or name not in later:
            raise MissingName(module, name)
        home, _, inside = later[name].partition(":")
        found = importlib.import_module(home)
        return getattr(found, inside) if inside else found

    def dir_() -> list[str]:
        return sorted(names)

    return getattr_, dir_


def suggestions(module: str, name: str) -> list[str]:
    """Returns public names that may be meant by `name`, the best first.

    Args:
      module: the `__name__` of the public module that was asked.
      name: a name that it does not have.

    >>> import headrace
    >>> suggestions("headrace", "sum"), suggestions("headrace", "relu"), suggestions("headrace.api.nn", "sigmoidd")
    (['hr.reduce_sum'], ['hr.nn.relu'], ['hr.nn.sigmoid'])
    """
    import difflib  # a slow import, needed only here

    top = _root(module)
    alias, names = _ROOTS[top][0], _public(top)
    here = _path(module)
    known = [path for path in (_ELSEWHERE.get(name, ""), name) if path in names]
    known += [path for path in names if path.endswith(f".{name}")]
    if known:
        return [f"{alias}.{path}" for path in known[:1]]
    mine = {path.rpartition(".")[2]: path for path in names if path.rpartition(".")[0] == here}
    all_ = {path.rpartition(".")[2]: path for path in reversed(names)} | mine
    for among in (mine, all_):
        near = difflib.get_close_matches(name, among, cutoff=_CUTOFF)
        if near:
            return [f"{alias}.{among[n]}" for n in near]
    return []


def _root(module: str) -> str:
    """Returns the package with the public module `module`."""
    return next(root for root in reversed(_ROOTS) if f"{module}.".startswith(f"{root}."))


def _path(module: str) -> str:
    """Returns the public path of a module: "nn.rnn_cell", or "" for a root."""
    top = _root(module)
    found = (path for path, x in _public(top).items() if isinstance(x, types.ModuleType) and x.__name__ == module)
    return next(found, module.removeprefix(top).removeprefix("."))


def _public(top: str) -> dict[str, object]:
    """Returns the paths "name" and "module.name" of public objects -> the objects of the root."""
    root = sys.modules[top]
    own = {n: getattr(root, n) for n in root.__all__}
    modules = {n: m for n, m in own.items() if isinstance(m, types.ModuleType)}
    return own | {f"{n}.{name}": None for n, m in modules.items() for name in getattr(m, "__all__", ())}

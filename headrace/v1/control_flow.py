"""Conditionals and loops with TensorFlow 1's argument names and results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from headrace import nest
from headrace.api import cond as conditionals
from headrace.api import functional, tensors
from headrace.api import while_loop as loops
from headrace.errors import SignatureError
from headrace.v1.graph import in_default_graph
from headrace.vmap.mapping import vmap

Branch = Callable[[], Any]


def _single(value: Any, strict: bool) -> Any:
    """Returns the only element of a list or tuple, as TensorFlow 1 does unless `strict`."""
    if not strict and isinstance(value, (list, tuple)) and len(value) == 1 and not hasattr(value, "_fields"):
        return value[0]
    return value


@in_default_graph
def cond(
    pred: Any,
    true_fn: Branch | None = None,
    false_fn: Branch | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Branch | None = None,
    fn2: Branch | None = None,
) -> Any:
    """Returns `true_fn()` if `pred` is true in the run, else `false_fn()`. See `headrace.cond`.

    Args:
      pred: a boolean scalar tensor.
      true_fn, false_fn: functions without arguments that return tensors, or structures of them, alike in both.
      strict: whether a list or tuple with one element is returned as such. Otherwise its element is returned.
      name: name of the scope.
      fn1, fn2: older names of `true_fn` and `false_fn`.

    Returns:
      The result, in the structure of the branches. Its name is TensorFlow 1's, "cond/Merge:0".

    Raises:
      TypeError: `pred` is a Python bool; or a function is missing, or given twice.
      SignatureError (a ValueError and a TypeError): `pred` is None, or a function returns None, nothing, or a structure
        with None in it.

    Source: TensorFlow's `tf.cond`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, [])
      ...     y = tf.cond(x > 0.0, lambda: x, lambda: -x)
      ...     y.name, sess.run(y, {x: -2.0})
      ('cond/Merge:0', np.float32(2.0))
    """
    true_fn, false_fn = _renamed("cond", true_fn=(true_fn, fn1), false_fn=(false_fn, fn2))
    if isinstance(pred, bool):
        raise TypeError(f"pred must not be a Python bool, got {pred}: write a Python `if`, or tf.constant({pred})")
    if pred is None:
        raise SignatureError("pred must be a boolean scalar tensor, got None")
    true_fn, false_fn = _with_results(true_fn, "true_fn"), _with_results(false_fn, "false_fn")
    return _single(conditionals.cond(pred, true_fn, false_fn, name=name), strict)


def _with_results(fn: Branch, which: str) -> Branch:
    """Returns a function like `fn` that refuses a result of None, as TensorFlow 1 does."""
    if not callable(fn):
        return fn  # `cond` says so

    @functools.wraps(fn)
    def branch() -> Any:
        out = fn()
        if out is None:
            raise SignatureError(f"'{which}' must have a return value.")
        if isinstance(out, (list, tuple)) and not out:
            raise SignatureError(f"'{which}' must return at least one result.")
        if _holds_none(out):
            raise SignatureError(
                f"None values not supported: '{which}' returned {out!r}; leave None out of the results"
            )
        return out

    return branch


def _holds_none(x: Any) -> bool:
    leaves = nest.flatten(x, is_leaf=lambda x: not isinstance(x, (list, tuple, Mapping)))
    return any(leaf is None for leaf in leaves)


def _renamed(who: str, **both: tuple[Any, Any]) -> list[Any]:
    """Returns the values of arguments that also have an older name."""
    out = []
    for name, (new, old) in both.items():
        if new is not None and old is not None:
            raise TypeError(f"{who} got {name!r} twice, under its new name and its old one")
        if new is None and old is None:
            raise TypeError(f"{who} needs the argument {name!r}")
        out.append(old if new is None else new)
    return out


@in_default_graph
def case(
    pred_fn_pairs: Any,
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Returns the result of the function whose predicate is the first true one.

    See `headrace.case`.

    Args:
      pred_fn_pairs: a list of pairs (predicate, function), or a dict.
      default: function that is called if no predicate is true, or None.
      exclusive: whether it is an error if several predicates are true.
      strict: see `cond`.
      name: name of the scope.

    Source: TensorFlow's `tf.case`.
    """
    return _single(conditionals.case(pred_fn_pairs, default, exclusive, name=name), strict)


@in_default_graph
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeats `body` as long as `cond` is true.

    See `headrace.while_loop`, whose parameters have another order.

    Args:
      cond, body, loop_vars, shape_invariants, parallel_iterations, back_prop, swap_memory, name, maximum_iterations:
        see `headrace.while_loop`. Shapes may be `TensorShape`s.
      return_same_structure: whether a loop with one tensor returns a list with one element. Otherwise it returns the
        tensor.

    Returns:
      The final values, in the structure of `loop_vars`, as a list or tuple like the result of `body`. The names are
      TensorFlow 1's, such as "while/Exit:0".

    Source: TensorFlow's `tf.while_loop`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     i = tf.while_loop(lambda i: i < 10, lambda i: i + 3, [tf.constant(0)])
      ...     i.name, sess.run(i)
      ('while/Exit:0', np.int32(12))
    """
    kinds: list[type] = []

    @functools.wraps(body)
    def noted(*variables: Any) -> Any:
        value = body(*variables)
        kinds.append(type(value))
        return value

    results = loops.while_loop(
        cond, noted if callable(body) else body, loop_vars, shape_invariants, parallel_iterations, maximum_iterations,
        name, back_prop, swap_memory,
    )  # fmt: skip
    if not isinstance(loop_vars, (list, tuple)):
        return results
    if not return_same_structure and len(nest.flatten(results)) == 1:
        return results[0]
    return kinds[-1](results) if kinds and kinds[-1] in (list, tuple) else results


switch_case = in_default_graph(conditionals.switch_case)


@in_default_graph
@functools.wraps(functional.map_fn)
def map_fn(
    fn: Any,
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    signature = dtype if fn_output_signature is None else fn_output_signature
    parts = nest.flatten((elems, signature), expand=False)
    if not any(hasattr(type(x), "_encoding") for x in parts):
        return functional.map_fn(
            fn, elems, dtype, parallel_iterations, back_prop, swap_memory, infer_shape, name, fn_output_signature
        )
    from headrace.v1.extension_types import mapping  # here: few programs have extension types

    options = {"back_prop": back_prop, "swap_memory": swap_memory, "infer_shape": infer_shape, "name": name}
    return mapping.map_encoded(fn, elems, signature, parallel_iterations=parallel_iterations, **options)


scan = in_default_graph(functional.scan)
foldl = in_default_graph(functional.foldl)
foldr = in_default_graph(functional.foldr)


@in_default_graph
def vectorized_map(fn: Any, elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """Returns the results of a function of each element, computed together; see `headrace.vmap`.

    Args:
      fn: a function of an element of `elems`, which returns a structure of tensors.
      elems: a structure of tensors whose first axis has the elements.
      fallback_to_while_loop, warn: accepted as in TensorFlow, without effect: an operation without a batching rule runs
        in a loop, with a warning.

    Source: TensorFlow's `tf.vectorized_map`.
    """
    return vmap(fn)(nest.map_leaves(tensors.convert_to_tensor, elems))

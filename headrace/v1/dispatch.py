"""TensorFlow's `tf.experimental.dispatch_for_api` and its neighbours: functions of the API for classes of the user.

A *target* is a function that is called in place of functions of the API. It has signatures: annotations of parameters.
It is called if the arguments fit one of them, and one of these arguments is a composite or has one in a list.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import sys
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final

from headrace import nest
from headrace.ir.tensor_type import Tensor
from headrace.records import record
from headrace.v1 import math_ops, overrides
from headrace.v1.extension_types.extension_type import ExtensionType
from headrace.v1.graph import takes_overrides
from headrace.v1.scoping import name_scope

Api = Callable[..., Any]
Annotations = Mapping[Any, Any]

#: Elementwise functions of one tensor, below `tf`.
UNARY: Final = (
    "abs acos acosh angle as_string asin asinh atan atanh bitwise.invert cast ceil clip_by_value conj cos cosh "
    "debugging.check_numerics digamma erf erfc exp expm1 floor image.adjust_brightness image.adjust_gamma "
    "image.convert_image_dtype image.random_brightness imag io.decode_base64 io.decode_compressed io.encode_base64 "
    "is_finite is_inf is_nan lgamma log log1p log_sigmoid logical_not math.bessel_i0 math.bessel_i0e math.bessel_i1 "
    "math.bessel_i1e math.erfcinv math.erfinv math.ndtri math.nextafter math.reciprocal_no_nan "
    "math.special.bessel_j0 math.special.bessel_j1 math.special.bessel_k0 math.special.bessel_k0e "
    "math.special.bessel_k1 math.special.bessel_k1e math.special.bessel_y0 math.special.bessel_y1 "
    "math.special.dawsn math.special.expint math.special.fresnel_cos math.special.fresnel_sin math.special.spence "
    "negative nn.elu nn.leaky_relu nn.log_softmax nn.relu nn.relu6 nn.selu nn.softplus nn.softsign nn.swish "
    "ones_like real reciprocal regex_replace rint round rsqrt saturate_cast sigmoid sign sin sinh sqrt square "
    "string_to_hash_bucket string_to_number strings.length strings.lower strings.regex_full_match strings.strip "
    "strings.substr strings.to_hash_bucket strings.to_hash_bucket_fast strings.to_hash_bucket_strong "
    "strings.to_number strings.unicode_script strings.unicode_transcode strings.upper substr tan tanh to_bfloat16 "
    "to_complex128 to_complex64 to_double to_float to_int32 to_int64 zeros_like"
)

#: Elementwise functions of two tensors.
BINARY: Final = (
    "add atan2 bitwise.bitwise_and bitwise.bitwise_or bitwise.bitwise_xor bitwise.left_shift bitwise.right_shift "
    "complex div div_no_nan divide equal floor_div floordiv floormod greater greater_equal less less_equal "
    "logical_and logical_or logical_xor math.multiply_no_nan math.xdivy math.xlog1py math.xlogy maximum minimum "
    "multiply nn.sigmoid_cross_entropy_with_logits not_equal pow realdiv scalar_mul squared_difference subtract "
    "truediv truncatediv truncatemod zeta"
)

#: Elementwise assertions about two tensors.
ASSERTIONS: Final = (
    "assert_equal assert_greater assert_greater_equal assert_less assert_less_equal assert_near assert_none_equal"
)


@record(frozen=True, slots=True)
class _Target:
    """A registered function.

    Attributes:
      function: the function of the arguments of the API function; for a handler, also of the API function.
      apis: the functions of the API that it overrides.
      annotations: for each signature, the annotations of arguments by position.
      key: the description of a handler's registration; None for other functions.
    """

    function: Callable[..., Any]
    apis: frozenset[Api]
    annotations: tuple[dict[int, Any], ...]
    key: tuple[Any, ...] | None = None


_targets: Final[list[_Target]] = []


def dispatch_for_api(api: Api, *signatures: Annotations) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a function that is called in place of a function of the API.

    Args:
      api: the function of the API, such as `tf.add`.
      signatures: dicts from parameters, names or positions, to annotations: a class, `Union` or `List` of annotations.
        The function is called for arguments that fit one of the dicts. If there are none, the annotations of the
        function count. The function has the parameters of `api`; it may lack `name`, which then is the name of a scope.

    Raises:
      ValueError: `api` cannot be overridden; a parameter does not exist; an annotation is not supported; or the
        function has other parameters.
      TypeError: a signature is no dict.

    Raises (when `api` is called):
      ValueError: the arguments fit several functions.

    Source: TensorFlow's `tf.experimental.dispatch_for_api`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Masked(tf.experimental.ExtensionType):
      ...     values: tf.Tensor
      ...     mask: tf.Tensor
      >>> @tf.experimental.dispatch_for_api(tf.add, {"x": Masked, "y": Masked})
      ... def masked_add(x, y, name=None):
      ...     return Masked(x.values + y.values, x.mask & y.mask)
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.add(Masked([1, 2], [True, False]), Masked([10, 10], [True, True]))).mask.tolist()
      [True, False]
      >>> tf.experimental.unregister_dispatch_for(masked_add)
    """
    if not takes_overrides(api):
        raise ValueError(f"{api} does not support dispatch.")
    wanted = _parameters(api)
    annotations = tuple(_by_position(wanted, s) for s in signatures)

    def register(dispatch_target: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(dispatch_target):
            raise TypeError(f"Expected dispatch_target to be callable; got {dispatch_target!r}")
        target = _with_name(dispatch_target, wanted)
        _check_parameters(wanted, target)
        found = annotations or (_by_position(wanted, _annotations_of(target)),)
        _register(_Target(target, frozenset([api]), found))
        return target

    return register


def dispatch_for_unary_elementwise_apis(x_type: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a handler of all elementwise functions of one tensor.

    The handler is a function of two arguments: the function, with all arguments but the first, and the first argument.

    Args:
      x_type: the annotation of the first argument for which the handler is called; see `dispatch_for_api`.

    Raises:
      ValueError: there is a handler for this annotation.

    Source: TensorFlow's `tf.experimental.dispatch_for_unary_elementwise_apis`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Masked(tf.experimental.ExtensionType):
      ...     values: tf.Tensor
      ...     mask: tf.Tensor
      >>> @tf.experimental.dispatch_for_unary_elementwise_apis(Masked)
      ... def unary(api_func, x):
      ...     return Masked(api_func(x.values), x.mask)
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.abs(Masked([1, -2], [True, False]))).values.tolist()
      [1, 2]
      >>> tf.experimental.unregister_dispatch_for(unary)
    """
    return _handler("unary elementwise", UNARY, (x_type,))


def dispatch_for_binary_elementwise_apis(
    x_type: Any, y_type: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a handler of all elementwise functions of two tensors.

    The handler is a function of three arguments: the function, with all arguments but the first two, and these.

    Args:
      x_type, y_type: the annotations of the first two arguments; see `dispatch_for_api`.

    Raises:
      ValueError: there is a handler for these annotations.

    Source: TensorFlow's `tf.experimental.dispatch_for_binary_elementwise_apis`.
    """
    return _handler("binary elementwise", BINARY, (x_type, y_type))


def dispatch_for_binary_elementwise_assert_apis(
    x_type: Any, y_type: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a handler of all elementwise assertions about two tensors, such as `tf.assert_equal`.

    Args:
      x_type, y_type: see `dispatch_for_binary_elementwise_apis`.

    Raises:
      ValueError: there is a handler for these annotations.

    Source: TensorFlow's `tf.experimental.dispatch_for_binary_elementwise_assert_apis`.
    """
    return _handler("binary elementwise assert", ASSERTIONS, (x_type, y_type))


def unregister_dispatch_for(dispatch_target: Callable[..., Any]) -> None:
    """Removes a function that one of the decorators of this module has registered.

    Args:
      dispatch_target: the result of the decorator.

    Raises:
      ValueError: there is no such function.

    Source: TensorFlow's `tf.experimental.unregister_dispatch_for`.
    """
    kept = [t for t in _targets if t.function is not dispatch_target]
    if len(kept) == len(_targets):
        raise ValueError(f"Function {dispatch_target} was not registered using a `@dispatch_for_*` decorator.")
    _targets[:] = kept
    overrides.changed()


def _register(target: _Target) -> None:
    _targets.append(target)
    if len(_targets) == 1:
        _install()
    overrides.changed()


@functools.cache
def _install() -> None:
    overrides.register(lambda api: any(api in t.apis for t in _targets), _call, is_first=True)
    for name, api in _REFLECTED.items():
        setattr(ExtensionType, f"__r{name}__", _reflected(api))


def _handler(kind: str, apis: str, types: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    tf = sys.modules[__package__]
    key, found = (kind, *types), frozenset(operator.attrgetter(name)(tf) for name in apis.split())
    annotations = (dict(enumerate(types)),)
    for annotation in types:
        _fit(annotation, None)  # an annotation that is not supported is an error

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        for t in _targets:
            if t.key == key:
                shown = types[0] if len(types) == 1 else f"({', '.join(map(str, types))})"
                raise ValueError(f"A {kind} dispatch handler ({t.function}) has already been registered for {shown}.")
        _register(_Target(handler, found, annotations, key))
        return handler

    return register


# *** calls ***


def _call(api: Api, args: Any, kwargs: Any) -> Any:
    """Returns the result of the target that takes the arguments; NotImplemented if none does.

    Raises:
      ValueError: several take them.
    """
    parameters = _parameters(api)
    given = list(args[: len(parameters)])
    given += [kwargs.get(p.name, p.default) for p in parameters[len(given) :]]
    found = [t for t in _targets if api in t.apis and any(_fits(s, given) for s in t.annotations)]
    if not found:
        return NotImplemented
    if len(found) > 1:
        names = ", ".join(repr(t.function) for t in found)
        raise ValueError(f"Multiple dispatch targets that were registered with {api} match the arguments: {names}")
    (target,) = found
    if target.key is None:
        return target.function(*args, **kwargs)
    n, rest = len(target.annotations[0]), dict(kwargs)
    named = [p.name for p in parameters]
    rest |= zip(named[len(target.annotations[0]) : len(args)], args[n:], strict=False)
    for name in named[:n]:
        rest.pop(name, None)
    scope = rest.pop("name", None)
    with contextlib.nullcontext() if scope is None else name_scope(scope):
        return target.function(lambda *values: api(*values, **rest), *given[:n])


def _fits(annotations: Mapping[int, Any], given: list[Any]) -> bool:
    found = [_fit(annotation, given[i]) for i, annotation in annotations.items()]
    return None not in found and any(found)


def _fit(annotation: Any, value: Any) -> bool | None:
    """Whether a value is or has a composite; None if it does not fit.

    Raises:
      ValueError: the annotation is not supported.
    """
    if annotation is None:
        annotation = type(None)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        found = [_fit(a, value) for a in args]
        return None if found.count(None) == len(found) else any(found)
    if origin is list and args != (Any,):
        found = [_fit(args[0], x) for x in (value if isinstance(value, (list, tuple)) else ())]
        if not args or not isinstance(value, (list, tuple)) or None in found:
            return None
        return any(found)
    kind = origin if origin is not None and set(args) <= {Any, Ellipsis} else annotation
    if not isinstance(kind, type) or kind is Any:
        raise ValueError(
            f"Type annotation {annotation} is not currently supported by dispatch.  Supported annotations: type "
            "objects, List[...], and Union[...]"
        )
    return nest.is_composite(value) or hasattr(value, "nested_row_splits") if isinstance(value, kind) else None


# *** registration ***


@functools.cache
def _parameters(api: Api) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(api).parameters.values())


def _by_position(parameters: tuple[inspect.Parameter, ...], signature: Annotations) -> dict[int, Any]:
    """Returns the annotations of parameters by position.

    Raises:
      TypeError: the signature is no dict from names or positions.
      ValueError: a parameter does not exist, or an annotation is not supported.
    """
    if not isinstance(signature, dict) or not all(isinstance(k, (str, int)) for k in signature):
        raise TypeError("signatures must be dictionaries mapping parameter names to type annotations.")
    names, out = [p.name for p in parameters], {}
    for key, annotation in signature.items():
        at = names.index(key) if key in names else key
        if not isinstance(at, int) or at >= len(names):
            raise ValueError(f"signature includes annotation for unknown parameter {key!r}.")
        if parameters[at].kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise ValueError(
                "Dispatch currently only supports type annotations for positional parameters; can't handle annotation "
                f"for {parameters[at].kind!r} parameter {key}."
            )
        _fit(annotation, None)
        out[at] = annotation
    return out


def _annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        found = typing.get_type_hints(function)
    except NameError:
        found = inspect.get_annotations(function)
    found.pop("return", None)
    if not found:
        raise ValueError(
            "The dispatch_for_api decorator must be called with at least one signature, or applied to a function that "
            "has type annotations on its parameters."
        )
    return found


def _with_name(function: Callable[..., Any], parameters: tuple[inspect.Parameter, ...]) -> Callable[..., Any]:
    """Returns a function with the parameter `name`, a scope, if the API has it."""
    names = [p.name for p in parameters]
    signature = inspect.signature(function)
    own = signature.parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in own.values())
    if "name" not in names or "name" in own or takes_any:
        return function
    at = names.index("name")

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        if at < len(args):
            name, args = args[at], args[:at] + args[at + 1 :]
        else:
            name = kwargs.pop("name", None)
        if name is None:
            return function(*args, **kwargs)
        with name_scope(name):
            return function(*args, **kwargs)

    every = [*own.values()]
    every.insert(at, parameters[at].replace(annotation=inspect.Parameter.empty))
    named.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    return named


def _check_parameters(wanted: tuple[inspect.Parameter, ...], target: Callable[..., Any]) -> None:
    signature = inspect.signature(target)
    found = list(signature.parameters.values())
    kinds = [p.kind for p in found]
    if kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return
    if [(p.name, p.kind) for p in found] != [(p.name, p.kind) for p in wanted]:
        shown = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in wanted])
        raise ValueError(f"Dispatch function's signature {signature} does not match API's signature {shown}.")


# *** Python's operators ***

_REFLECTED: Final[dict[str, Api]] = {
    "add": math_ops.add,
    "sub": math_ops.subtract,
    "mul": math_ops.multiply,
    "truediv": math_ops.truediv,
    "floordiv": math_ops.floordiv,
    "mod": math_ops.floormod,
    "pow": math_ops.pow,
    "matmul": math_ops.matmul,
    "and": math_ops.logical_and,
    "or": math_ops.logical_or,
    "xor": math_ops.logical_xor,
}


def _reflected(api: Api) -> Callable[[Any, Any], Any]:
    """Returns the operator of a tensor and an extension type."""

    def apply(self: Any, other: Any) -> Any:
        return overrides.call(api, (other, self), {}) if isinstance(other, Tensor) else NotImplemented

    return apply

"""Records of ops that make datasets: scalar variants, whose elements `resources.datasets` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import dtypes, shapes
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, list_attr, op, op_registry
from headrace.opkit.shape_rules import scalars

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

Attrs = Mapping[str, Any]

#: Attributes for the elements of a dataset, and of a dataset whose inputs tell their dtypes.
ELEMENTS: Final = {"output_types": list_attr("type", minimum=1), "output_shapes": list_attr("shape", minimum=1)}
GIVEN: Final = {"Toutput_types": ELEMENTS["output_types"], "output_shapes": ELEMENTS["output_shapes"]}
#: Inputs of any shape.
_VECTORS: Final = frozenset({"filenames", "select_cols", "exclude_cols", "batch_sizes"})
METADATA: Final[Attrs] = {"metadata": ""}


def dataset_op(type: str, ins: str, attrs: Attrs, make: Callable[..., Any], doc: str) -> None:
    """Registers an op that makes a dataset.

    Args:
      type: the op type.
      ins: its inputs, as for `op`.
      attrs: its attributes, as for `op`.
      make: `make(ctx, attrs, *inputs)` returns the dataset.
      doc: its description.
    """

    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        check = _scalar_check(type, attrs)

        def kernel(*inputs: Any) -> Any:
            check(inputs)
            return make(ctx, attrs, *inputs)

        return kernel

    op(
        type,
        ins,
        "handle: variant",
        attrs,
        shape=scalars,
        stateful=factory,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(),
        doc=doc,
        depth=2,
    )


def _scalar_check(type: str, attrs: Attrs) -> Callable[[Sequence[Any]], None]:
    """Returns a function that checks the ranks of the scalars among the inputs.

    Args:
      type: the op type; all its single numbers, bools and strings are scalars, but for those of `_VECTORS`.
      attrs: its complete attributes.
    """
    record = op_registry.get(type)
    spans = record.spans(attrs)
    expected = [
        (spans[a.name].start, a.name)
        for a in record.ins
        if not a.is_list and a.name not in _VECTORS and a.dtype not in (None, dtypes.variant, dtypes.resource)
    ]

    def check(inputs: Sequence[Any]) -> None:
        for at, name in expected:
            shape = getattr(inputs[at], "shape", ())
            if shape:
                raise InvalidArgumentError(f"{type}: `{name}` must be a scalar, got shape {shapes.show(shape)}")

    return check


def options_message(data: bytes) -> Any:
    """Returns the message of the options of a dataset.

    Raises:
      DataLossError: the bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    from headrace.pb import dataset_options_pb2  # which takes time to import

    try:
        return dataset_options_pb2.Options.FromString(data)
    except DecodeError as e:
        raise DataLossError(f"these bytes are no options of a dataset: {e}") from e

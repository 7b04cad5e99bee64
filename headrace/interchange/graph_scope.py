"""The part of a MetaGraph below a name scope, with names relative to the scope.

An input from outside of the scope becomes "$unbound_inputs_NAME", for the `input_map` of an import; the collection
"unbound_inputs" lists these. Items of collections that belong to operations outside of the scope are left out.

Source: TensorFlow's `export_scoped_meta_graph`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef

_UNBOUND: Final = "unbound_inputs"
_PREFIX: Final = f"${_UNBOUND}_"
_VARIABLES: Final = ("variables", "trainable_variables", "local_variables", "model_variables",
                     "moving_average_variables", "metric_variables", "GLOBAL_STEP", "global_step")  # fmt: skip
_NAMES_OF: Final = {"queue_runners": "QueueRunnerDef", "savers": "SaverDef"} | dict.fromkeys(_VARIABLES, "VariableDef")


def narrowed(message: MetaGraphDef, scope: str) -> MetaGraphDef:
    """Returns the part of a MetaGraph below a name scope.

    Args:
      message: the MetaGraph.
      scope: the name scope, without "/" at its end.
    """
    from headrace import pb

    prefix = f"{scope}/"
    out = pb.MetaGraphDef()
    out.CopyFrom(message)
    del out.graph_def.node[:]
    unbound: dict[str, None] = {}
    for node in message.graph_def.node:
        if not node.name.startswith(prefix):
            continue
        made = out.graph_def.node.add()
        made.CopyFrom(node)
        made.name = node.name.removeprefix(prefix)
        for i, name in enumerate(node.input):
            mark = "^" if name.startswith("^") else ""
            bare = name.removeprefix("^")
            if bare.startswith(prefix):
                made.input[i] = mark + bare.removeprefix(prefix)
            else:
                made.input[i] = f"{mark}{_PREFIX}{bare}"
                unbound[made.input[i]] = None
        if "_class" in made.attr:
            groups = made.attr["_class"].list
            kept = [g.replace(b"loc:@" + prefix.encode(), b"loc:@") for g in groups.s
                    if g.startswith(b"loc:@" + prefix.encode())]  # fmt: skip
            del groups.s[:]
            groups.s.extend(kept)
            if not kept:
                del made.attr["_class"]
    _narrow_collections(out, prefix)
    if unbound:
        out.collection_def[_UNBOUND].bytes_list.value.extend(name.encode() for name in unbound)
    return out


def _narrow_collections(out: Any, prefix: str) -> None:
    from headrace import pb

    for name in list(out.collection_def):
        items = out.collection_def[name]
        kind = items.WhichOneof("kind")
        if kind == "node_list":
            kept: list[Any] = [x.removeprefix(prefix) for x in items.node_list.value if x.startswith(prefix)]
            del items.node_list.value[:]
            items.node_list.value.extend(kept)
        elif kind == "bytes_list" and name in _NAMES_OF:
            cls = getattr(pb, _NAMES_OF[name])
            kept = [made.SerializeToString() for data in items.bytes_list.value
                    if (made := _in_scope(cls.FromString(data), prefix)) is not None]  # fmt: skip
            del items.bytes_list.value[:]
            items.bytes_list.value.extend(kept)
        else:
            continue
        if not kept:
            del out.collection_def[name]


def _in_scope(message: Message, prefix: str) -> Any:
    """Returns a message with names relative to the scope.

    None if the first name is outside of the scope.
    """
    made: Any = type(message)()
    made.CopyFrom(message)
    strip: Callable[[str], str] = lambda text: text.removeprefix(prefix)
    is_inside: bool | None = None
    for field, value in message.ListFields():
        if field.type != field.TYPE_STRING:
            continue
        found = value if not isinstance(value, str) else [value]
        if is_inside is None:
            is_inside = found[0].startswith(prefix)
        if isinstance(value, str):
            setattr(made, field.name, strip(value))
        else:
            del getattr(made, field.name)[:]
            getattr(made, field.name).extend(map(strip, value))
    return made if is_inside else None

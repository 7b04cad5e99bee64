"""Options of pipelines: fields that programs set, each of one kind."""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Final

from headrace import dtypes
from headrace.errors import DataLossError
from headrace.ir.graph import Tensor
from headrace.opkit.dataset_ops import options_message


class AutoShardPolicy(enum.IntEnum):
    """Divisions of a dataset among workers by TensorFlow's strategies.

    Source: TensorFlow's `tf.data.experimental.AutoShardPolicy`.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class AutotuneAlgorithm(enum.Enum):
    """Ways in which TensorFlow tunes a pipeline. Source: `tf.data.experimental.AutotuneAlgorithm`."""

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class ExternalStatePolicy(enum.Enum):
    """Treatments of state outside of a saved pipeline. Source: `tf.data.experimental.ExternalStatePolicy`."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


class _Fields:
    """Base of groups of options: attributes of declared kinds, None until they are set.

    Raises (an assignment):
      AttributeError: there is no such option.
      TypeError: the value has another kind.
    """

    _kinds: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        kind = type(self)._kinds.get(name)
        if kind is None:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(self._kinds)}")
        made = kind() if isinstance(kind, type) and issubclass(kind, _Fields) else None
        if made is not None:
            object.__setattr__(self, name, made)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(vars(type(self)).get(name), property):  # an older name
            object.__setattr__(self, name, value)
            return
        kind = self._kinds.get(name)
        if kind is None:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(self._kinds)}")
        if not isinstance(value, kind):
            raise TypeError(f"The option {name!r} has the kind {kind.__name__}, got {value!r}")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._given() == other._given()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._given().items())})"

    def _given(self) -> dict[str, Any]:
        """Returns the options that were set."""
        return {k: v for k, v in sorted(vars(self).items()) if not isinstance(v, _Fields) or v._given()}

    def _merged(self, other: Any) -> Any:
        out = type(self)()
        for source in (self, other):
            for name, value in source._given().items():
                old = getattr(out, name)
                setattr(out, name, old._merged(value) if isinstance(old, _Fields) else value)
        return out


class AutotuneOptions(_Fields):
    """Options of TensorFlow's tuning, kept without an effect. Source: `tf.data.experimental.AutotuneOptions`."""

    _kinds: ClassVar[dict[str, Any]] = {
        "autotune_algorithm": AutotuneAlgorithm,
        "cpu_budget": int,
        "enabled": bool,
        "initial_parallelism": int,
        "min_parallelism": int,
        "ram_budget": int,
    }


class DistributeOptions(_Fields):
    """Options of TensorFlow's strategies, kept without an effect. Source: `tf.data.experimental.DistributeOptions`."""

    _kinds: ClassVar[dict[str, Any]] = {"auto_shard_policy": AutoShardPolicy, "num_devices": int}

    def __getattr__(self, name: str) -> Any:
        if name == "auto_shard_policy":
            return AutoShardPolicy.AUTO
        return super().__getattr__(name)


class OptimizationOptions(_Fields):
    """Options of TensorFlow's rewrites, kept without an effect. Source: `tf.data.experimental.OptimizationOptions`."""

    _kinds: ClassVar[dict[str, Any]] = dict.fromkeys(
        (
            *("apply_default_optimizations", "filter_fusion", "filter_parallelization", "inject_prefetch"),
            *("map_and_batch_fusion", "map_and_filter_fusion", "map_fusion", "map_parallelization"),
            *("noop_elimination", "parallel_batch", "seq_interleave_prefetch", "shuffle_and_repeat_fusion"),
        ),
        bool,
    )


class ServiceOptions(_Fields):
    """Options of TensorFlow's data service, kept without an effect. Source: `tf.data.experimental.ServiceOptions`."""

    _kinds: ClassVar[dict[str, Any]] = {"pinned": bool}


class ThreadingOptions(_Fields):
    """Options of the threads of a pipeline. Source: TensorFlow's `tf.data.ThreadingOptions`."""

    _kinds: ClassVar[dict[str, Any]] = {"max_intra_op_parallelism": int, "private_threadpool_size": int}


class Options(_Fields):
    """Options of a pipeline. None of them changes its elements.

    Each field is None until it is set. `deterministic = False` lets a parallel `map` return results in another order.
    The others are kept, and have no effect.

    Source: TensorFlow's `tf.data.Options`.

    Example:
      >>> import headrace as hr
      >>> options = hr.data.Options()
      >>> options.threading.private_threadpool_size = 4
      >>> hr.data.Dataset.range(3).with_options(options).options().threading
      ThreadingOptions(private_threadpool_size=4)
    """

    _kinds: ClassVar[dict[str, Any]] = {
        "autotune": AutotuneOptions,
        "dataset_name": str,
        "deterministic": bool,
        "experimental_distribute": DistributeOptions,
        "experimental_external_state_policy": ExternalStatePolicy,
        "experimental_optimization": OptimizationOptions,
        "experimental_service": ServiceOptions,
        "experimental_slack": bool,
        "experimental_symbolic_checkpoint": bool,
        "experimental_warm_start": bool,
        "framework_type": list,
        "threading": ThreadingOptions,
    }

    def merge(self, options: Any) -> Options:
        """Returns the options of both; those of `options` come first."""
        out: Options = self._merged(options)
        return out

    @property
    def experimental_deterministic(self) -> Any:
        """The older name of `deterministic`."""
        return self.deterministic

    @experimental_deterministic.setter
    def experimental_deterministic(self, value: Any) -> None:
        self.deterministic = value

    @property
    def experimental_threading(self) -> Any:
        """The older name of `threading`."""
        return self.threading

    @experimental_threading.setter
    def experimental_threading(self, value: Any) -> None:
        self.threading = value

    def to_bytes(self) -> bytes:
        """Returns the options as the message of TensorFlow's `OptionsDataset`."""
        out: bytes = _filled(self, options_message(b"")).SerializeToString()
        return out

    @staticmethod
    def from_bytes(data: bytes) -> Options:
        """Returns the options of a message.

        Raises:
          DataLossError: the bytes are no such message.
        """
        out: Options = _read(Options(), options_message(data))
        return out


def of_variant(variant: Any) -> Options:
    """Returns the options of a dataset and of those below it."""
    if isinstance(variant, Tensor):
        op = variant.op
        inputs: Any = [t for t in op.inputs if t.dtype.base is dtypes.variant]
        own = op.attrs["serialized_options"] if op.type == "OptionsDataset" else ""
    else:
        inputs, own = variant.inputs, getattr(variant, "options", "")
    out = Options()
    for x in inputs:
        out = out.merge(of_variant(x))
    return out.merge(Options.from_bytes(own.encode(errors="surrogateescape"))) if own else out


#: Names in the message, where they differ.
_NAMES: Final = {
    "autotune": "autotune_options",
    "experimental_distribute": "distribute_options",
    "experimental_optimization": "optimization_options",
    "experimental_service": "service_options",
    "threading": "threading_options",
    "experimental_external_state_policy": "external_state_policy",
    "experimental_slack": "slack",
    "experimental_symbolic_checkpoint": "symbolic_checkpoint",
    "experimental_warm_start": "warm_start",
}


def _filled(options: Any, message: Any) -> Any:
    message.SetInParent()
    for name, kind in options._kinds.items():
        field, value = _NAMES.get(name, name), getattr(options, name)
        if isinstance(value, _Fields):
            _filled(value, getattr(message, field))
        elif kind is list:
            getattr(message, field).extend(value or ())
        elif value is not None:
            setattr(message, field, value.value if isinstance(value, enum.Enum) else value)
    return message


def _read(options: Any, message: Any) -> Any:
    present = {f.name for f, _ in message.ListFields()}
    for name, kind in options._kinds.items():
        field = _NAMES.get(name, name)
        if field not in present:
            continue
        value = getattr(message, field)
        if issubclass(kind, _Fields):
            _read(getattr(options, name), value)
        else:
            try:
                setattr(options, name, kind(value))
            except ValueError as e:
                raise DataLossError(f"the option {name!r} of a dataset has the unknown value {value!r}") from e
    return options

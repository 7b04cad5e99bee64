"""Random numbers for PyTorch's tensors: drawn on the host by TensorFlow's generators, then copied.

So the numbers of a seed are the same on all devices. The ops are on the device because initializers are colocated with
their variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from headrace.device_arrays import hosted
from headrace.devices.torch.registering import DEVICES, Unsuited, for_torch
from headrace.ir.kernel import KernelContext, device_memory, override
from headrace.ir.opdef import op_registry

_STATEFUL: Final = (
    *("Multinomial", "RandomGamma", "RandomPoissonV2", "RandomShuffle", "RandomStandardNormal", "RandomUniform"),
    *("ParameterizedTruncatedNormal", "RandomUniformInt", "TruncatedNormal"),
)
_STATELESS: Final = (
    *("StatelessMultinomial", "StatelessRandomNormal", "StatelessRandomUniform", "StatelessRandomUniformInt"),
    *("StatelessRandomUniformFullInt", "StatelessTruncatedNormal", "StatelessShuffle"),
)


def _drawn(type: str) -> Callable[[KernelContext, Mapping[str, Any]], Callable[..., Any]]:
    """Returns the factory of a kernel that draws on the host."""

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        make = op_registry.get(type).stateful
        assert make is not None
        return hosted(make(ctx, attrs), device_memory(ctx.op))

    return factory


for _type in _STATEFUL:
    for _device in DEVICES:
        override(_type, _device, form="stateful")(_drawn(_type))


@for_torch(_STATELESS)
def _by_the_host(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(*inputs: Any) -> NoReturn:
        raise Unsuited

    return kernel

"""Random programs, partitioned at random, on a device with a memory of its own.

The device has nearly all kernels of a CPU. The programs and the checks are those of
`tests/multi/test_random_placements.py`; here every other device is a *mirror*. Its kernels are the CPU's, and take and
give arrays of its own that numpy cannot look into. So a token that crosses without being copied, or is copied twice,
fails the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.execute.devices import make_devices
from headrace.extend import LocalDevice
from headrace.ir.kernel import find_kernel
from headrace.ir.opdef import OpDef, op_registry
from tests import tiers
from tests.grad.test_random_gradients import _all
from tests.multi import seeded
from tests.multi import test_random_placements as placements

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

ENDS = ("_Arg", "_Retval")
HERE = "/job:localhost/replica:0/task:0/device:"


class Image:
    """An array that numpy cannot look into."""

    __slots__ = ("_array", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(self, array: Any) -> None:
        assert isinstance(array, (np.ndarray, np.generic)), array
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __repr__(self) -> str:
        return f"Image({self._array!r})"

    def _forbidden(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("numpy looks into another device's memory")

    __array__ = __bool__ = __float__ = __getitem__ = __index__ = __int__ = __iter__ = __len__ = _forbidden
    __eq__ = __lt__ = __add__ = __mul__ = __radd__ = __rmul__ = _forbidden
    __hash__ = None


class Mirror(LocalDevice):
    def put(self, array: Any) -> Image:
        return Image(array.copy())

    def get(self, value: Any) -> Any:
        assert isinstance(value, Image), f"{value!r} is not in this memory"
        return value._array.copy()


def kernel(record: OpDef) -> Callable[..., Any]:
    """A factory of kernels that do what those of the CPU do."""

    def factory(attrs: Mapping[str, Any]) -> Callable[..., Any]:
        f = record.kernel(np, attrs)
        ins, outs = record.input_dtypes(attrs), record.output_dtypes(attrs)

        def mirrored(*args: Any) -> Any:
            for x, d in zip(args, ins, strict=True):
                assert isinstance(x, Image) is (d not in dtypes.OBJECT), f"{record.type} was given {x!r}"
            got = f(*(x._array if isinstance(x, Image) else x for x in args))
            made = [got] if len(outs) == 1 else got or ()
            made = [v if d in dtypes.OBJECT else Image(v) for v, d in zip(made, outs, strict=True)]
            return made[0] if len(outs) == 1 else tuple(made)

        return mirrored

    return factory


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    hr.register_device("Mirror", Mirror)
    for type in op_registry:
        record = op_registry.get(type)
        args = (*record.ins, *record.outs)
        if record.kernel is None or type.startswith("_") or any(a.dtype is dtypes.variant or a.is_ref for a in args):
            continue
        hr.register_kernel(type, "Mirror")(kernel(record))

    def placed(step: Any, choose: Callable[[Any], int]) -> dict[Any, str]:
        of: dict[Any, str] = {}
        telling = {t.op for op in step.ops for t in op.inputs if t.index and op.opdef.primitive == "Merge"}
        for g in seeded.groups(step):
            k = choose(g)
            able = all(
                op not in telling
                and (op.opdef.primitive or op.opdef.structured or op.type in ENDS or find_kernel(op, "Mirror"))
                for op in g.ops
            )
            of.update(dict.fromkeys(g.ops, f"{HERE}{'Mirror' if k % 2 and able else 'CPU'}:{k}"))
        return of

    class MirrorAtOnce(Mirror):
        compute = seeded.AtOnceDevice.compute

    def at_once(spec: Any) -> LocalDevice:
        return MirrorAtOnce(spec) if spec.type == "Mirror" else seeded_device(spec)

    seeded_device = seeded.AtOnceDevice
    monkeypatch.setattr(seeded, "placed", placed)
    monkeypatch.setattr(seeded, "make_devices", lambda counts: make_devices({**counts, "Mirror": 9}))
    monkeypatch.setattr(seeded, "AtOnceDevice", at_once)


@pytest.mark.usefixtures("mirrors")
def test_random_programs_on_a_mirror_device_match() -> None:
    _all(tiers.rotated(range(20), 3), placements.check_values)


@pytest.mark.usefixtures("mirrors")
def test_random_gradients_on_a_mirror_device_match() -> None:
    _all(tiers.rotated(range(6), 2), placements.check_gradients)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("mirrors")
def test_many_programs() -> None:
    _all(range(1000, 2000), placements.check_values)
    _all(range(1000, 1300), placements.check_gradients)

"""`resources.stack`."""

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.resources.stack import Stack

f32 = dtypes.float32


def test_last_in_first_out():
    s = Stack("s", f32)
    for i in range(3):
        s.push(np.float32(i), f32)
    assert [s.pop() for _ in range(3)] == [2, 1, 0]


def test_errors_have_tensorflows_phrases():
    s = Stack("s", f32, max_size=1)
    with pytest.raises(InvalidArgumentError, match=r"Stack\[s\] is empty when calling Pop\(\)"):
        s.pop()
    with pytest.raises(InvalidArgumentError, match="Must have type float32 but got int32"):
        s.push(np.int32(1), dtypes.int32)
    s.push(np.float32(1), f32)
    with pytest.raises(InvalidArgumentError, match=r"overflowed its max_size \(1\)"):
        s.push(np.float32(2), f32)
    s.close()
    for use in (s.pop, lambda: s.push(np.float32(1), f32)):
        with pytest.raises(InvalidArgumentError, match="has already been closed"):
            use()
    assert repr(s) == "Stack('s', float32, 0 values, closed)"

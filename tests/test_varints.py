"""Numbers of variable length."""

from __future__ import annotations

import pytest

from headrace import varints


@pytest.mark.parametrize("n", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_numbers_are_read_as_written(n: int) -> None:
    data = b"?" + varints.encode(n) + b"rest"
    assert varints.decode(data, 1, len(data)) == (n, len(data) - 4)


def test_negative_numbers_are_those_of_64_bits() -> None:
    assert varints.decode(varints.encode(-2), 0, 10) == (2**64 - 2, 10)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "in the middle"), (b"\x80", "in the middle"), (b"\xff" * 9, "in the middle"), (b"\xff" * 11, "64 bits")],
)
def test_damaged_numbers(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        varints.decode(data, 0, len(data))


def test_the_end_bounds_the_number() -> None:
    with pytest.raises(ValueError, match="in the middle"):
        varints.decode(b"\x80\x01", 0, 1)

"""Hashes of strings: StringToHashBucketFast, StringToHashBucketStrong, StringToHashBucket, Fingerprint and SdcaFprint.

Source: TensorFlow's ops of the same names; the functions are in `fingerprints`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import ALL, DType, string
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, int_attr, list_attr, op, type_attr
from headrace.opkit.arrays import HANDLES
from headrace.opkit.shape_rules import same_as
from headrace.ops.strings.fingerprints import each, farm, farm128, murmur, sip
from headrace.shapes import Shape, show, with_rank, with_rank_at_least

_COST = Facts(cost=flops_per_element(1000))


def _buckets_kernel(function: Any) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        n, f = np.uint64(attrs["num_buckets"]), function
        if "key" in attrs:
            key = attrs["key"]
            if len(key) != 2:
                raise InvalidArgumentError(f"Key must have 2 elements, got {len(key)}")
            f = lambda rows: function(rows, key)
        return lambda x: (each(f, x) % n).astype(np.int64)

    return factory


# fmt: off
# What TensorFlow makes of these, with 2**63 - 1 buckets.
_VECTORS = (
    (b"", 1936946117179621456, 105434511174508092, 887865449656487407),
    (b"a", 3694432073954588132, 2996632905371535868, 2150915142212405421),
    (b"abcd", 1897425971756105985, 5015987189207562374, 2859666304309786264),
    (b"x" * 8, 5028140862496344703, 1927888461177315151, 5636156429699052019),
    (b"x" * 16, 3320895591121647644, 5872517971286675818, 5273284420438987859),
    (b"x" * 17, 2082709914559524774, 8772842172083188023, 1067430206084356363),
    (b"x" * 33, 3046993373088323128, 8076865318271220821, 35790345289312529),
    (b"y" * 64, 4471793200125962424, 8532634954976472129, 7952366916632852638),
    (b"y" * 65, 4023130470993650269, 3145566749894467939, 2273943522799315778),
    (b"y" * 128, 4814626278895916863, 2840985419719230699, 5714004878314702844),
    (b"0123456789" * 20, 439712990348739478, 5900601675303927823, 1160380764056218296),
)
# fmt: on
_MANY = 2**63 - 1


def _samples(column: int, few: Sequence[int], **attrs: Any) -> Any:
    """Test cases of the known vectors, and of four letters in 10 buckets.

    `few` are the buckets of the letters a to d.
    """
    x, want = np.array([v[0] for v in _VECTORS], object), np.array([v[column] for v in _VECTORS])
    letters = np.array([b"a", b"b", b"c", b"d"], object)
    return lambda rng, dtype: [
        case(x, num_buckets=2**63 - 1, **attrs, want=want),
        case(letters.reshape(2, 2), num_buckets=10, **attrs, want=np.array(few).reshape(2, 2)),
        case(x[:0], num_buckets=7, **attrs, want=want[:0]),
    ]


_BUCKETS = {"num_buckets": int_attr(minimum=1)}

for _name, _input, _attrs, _function, _sample, _doc in (
    ("Fast", "input", {}, farm, _samples(1, (9, 2, 2, 5)), "a fixed function"),
    (
        "Strong",
        "input",
        {"key": list_attr("int")},
        sip,
        _samples(3, (8, 2, 2, 0), key=(123, 456)),
        "a function that depends on the key",
    ),
    ("", "string_tensor", {}, murmur, _samples(2, (8, 0, 7, 9)), "a fixed function of long ago"),
):
    op(
        f"StringToHashBucket{_name}",
        f"{_input}: string",
        "output: int64",
        _BUCKETS | _attrs,
        shape=same_as(0),
        kernel=_buckets_kernel(_function),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=_COST,
        sample=_sample,
        doc=f"For each string the number of its bucket, by {_doc}.",
    )

# *** Fingerprint ***


def _fingerprint_kernel(attrs: Mapping[str, Any]) -> Any:
    is_string = attrs["T"] is string

    def kernel(data: Any, method: Any) -> Any:
        if method.ndim:
            raise InvalidArgumentError(f"`method` should be a scalar string: {show(method.shape)}")
        if method.item() != b"farmhash64":
            raise InvalidArgumentError(f"Unsupported fingerprint method: {method.item()!r}; farmhash64 is supported")
        if not data.ndim:
            raise InvalidArgumentError("`data` should have at least one dimension: []")
        words = each(farm, data) if is_string else data
        if not is_string or data.ndim > 1:  # of several strings: that of their fingerprints
            width = words.itemsize * int(np.prod(words.shape[1:]))
            words = farm(np.frombuffer(words.tobytes(), np.uint8).reshape(len(words), width))
        return words.astype("<u8").view(np.uint8).reshape(-1, 8)

    return kernel


def _fingerprint_shape(c: Inference) -> Sequence[Shape]:
    data = with_rank_at_least(c.shapes[0], 1)
    with_rank(c.shapes[1], 0)
    return [(None if data is None else data[0], 8)]


def _fingerprints(rng: np.random.Generator, dtype: DType) -> list[Any]:
    method = np.array(b"farmhash64", object)

    def some(x: np.ndarray, *words: int) -> Any:
        return case(x, method, want=np.array(words, "<u8").view(np.uint8).reshape(-1, 8))

    if dtype is not string:  # as the strings of the same bytes
        x = np.zeros((2, 0), dtype.numpy)
        return [some(x, *[_K2] * 2)]
    x = np.array([b"a", b"b", b"c", b"d"], object)
    return [
        some(x[:1], 12917804110809363939),
        some(x.reshape(2, 2), 5996327986519556218, 4367333028823890996),
    ]


_K2 = 0x9AE16A3B2F90404F  # the fingerprint of nothing

op(
    "Fingerprint",
    "data: T, method: string",
    "fingerprint: uint8",
    {"T": type_attr(ALL - HANDLES)},
    shape=_fingerprint_shape,
    kernel=_fingerprint_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_fingerprints,
    doc="For each row the 8 bytes of its fingerprint, which it will always have.",
)

# *** SdcaFprint ***


def _halves(attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any) -> Any:
        words = each(lambda rows: np.stack(farm128(rows), -1), x, (2,))
        words[..., 0][words[..., 0] < 2] += np.uint64(2**64 - 2)  # 0 and 1 are free for other uses
        return words.view(np.int64)

    return kernel


# fmt: off
_HALVES = (
    (b"a", 7969074168056553668, 5955762262185338209),
    (b"abc", 4143508125394299908, -6879828354153669051),
    (b"", 4463240938071824939, 4374473821787594281),
    (b"\xff" * 40, -5136499056934344814, 1439006809459209132),
)
# fmt: on

op(
    "SdcaFprint",
    "input: string",
    "output: int64",
    shape=lambda c: [None if c.shapes[0] is None else (*c.shapes[0], 2)],
    kernel=_halves,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, t: [
        case(np.array([x for x, *_ in _HALVES], object), want=np.array([words for _, *words in _HALVES])),
    ],
    doc="The 128 bits of the fingerprint of each string, as two numbers.",
)

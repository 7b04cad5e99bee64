"""Elementary functions as LLVM: exponentials, logarithms, trigonometric and hyperbolic functions, erf.

`call` prints a call of a function and adds the function to the module. The functions written here have no branches, no
calls and no tables, so that LLVM vectorizes a loop with them: both sides of a case distinction are computed, and
`select` chooses. Functions that are not written here are those of the C library, found by name when the code is loaded.

The reduction of huge arguments of sine and cosine takes longer than all the rest. It is in a branch, and functions for
vectors of 512 and 256 bits are written as well. The vectorizer calls them in place of the function of scalars.

**Method.** The argument is reduced to a small interval, where a polynomial approximates the function: exp(x) is
2ⁿ · exp(r) with |r| ≤ log(2) / 2, log(x) is n · log(2) + log(m) with m between √½ and √2, sin(x) is ± sin(r) or
± cos(r) with |r| ≤ π / 4. The angle of a point is that of t = min(|x|, |y|) / max(|x|, |y|), reflected. The polynomials
are minimax approximations by Remez' algorithm for the relative error of the result; the error in the comment of each is
that of exact arithmetic. The constants log(2) and π / 2 are sums of parts. The first parts have so few bits that their
products with n are exact, with and without a fused multiply-add.

**Rounding.** n is rounded by the addition of 1.5 · 2²³ (2⁵² for doubles), whose sum has n in its last bits. LLVM's
conversion to an integer has no result for NaN; this way NaN passes through.

**Doubles for floats.** `power`, `erf` and `arctan2` of float32 are computed in double precision and rounded, so their
errors are little more than half an ulp.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.targets.native.values import DOUBLE, FORMATS, SINGLE, Format, Value

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function, Module

#: Names in the C library by the name of numpy's ufunc, without the suffix `f` of float32.
LIBRARY_NAMES: Final = {
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "hypot")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc")},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arctan2": "atan2",
    "power": "pow",
    "float_power": "pow",
}

#: Names of ufuncs of `scipy.special` that `call` takes.
SPECIAL_NAMES: Final = ("erf", "erfc")

#: Names of numpy's ufuncs that `call` takes.
NUMPY_NAMES: Final = tuple(name for name in LIBRARY_NAMES if name not in SPECIAL_NAMES)


# *** LLVM ***


def is_known(text: str) -> bool:
    """Whether the value that `text` names is a constant float other than NaN."""
    return text.startswith("0x") and not math.isnan(struct.unpack(">d", bytes.fromhex(text[2:]))[0])


def intrinsic(f: Function, name: str, kind: str, *args: str) -> str:
    """Calls one of LLVM's intrinsics.

    Args:
      f: The function in construction.
      name: The name, such as `fabs`.
      kind: LLVM's type of the result and of arguments without a type.
      *args: The arguments; the text `i1 false` has its own type.
    """
    suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
    typed = [a if a.startswith("i1 ") else f"{kind} {a}" for a in args]
    types = ["i1" if a.startswith("i1 ") else kind for a in args]
    target = f.module.declare(f"llvm.{name}.{suffix}", kind, types)
    return f.op(f"call {kind} {target}({', '.join(typed)})")


def _bits_of(number: float, format: Format) -> int:
    """The bits of a float as an integer."""
    codes = "<if" if format is SINGLE else "<qd"
    found: int = struct.unpack(codes[:2], struct.pack(codes[0] + codes[2], number))[0]
    return found


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with the coefficients of x⁰, x¹, ...

    The pairs of terms of a long one are independent (Estrin's scheme).
    """
    if len(coefficients) <= 4:
        total = x.constant(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = total.fma(x, c)
        return total
    terms = [x.fma(b, a) for a, b in zip(coefficients[::2], coefficients[1::2], strict=False)]
    if len(coefficients) % 2:
        terms.append(x.constant(coefficients[-1]))
    power = x
    while len(terms) > 1:
        power = power * power
        if len(terms) == 3:  # in the same time without another power
            return terms[2].fma(power, terms[1]).fma(power, terms[0])
        paired = [terms[i + 1].fma(power, terms[i]) for i in range(0, len(terms) - 1, 2)]
        terms = paired + terms[len(paired) * 2 :]
    return terms[0]


def _rounded(x: Value, factor: float) -> tuple[Value, Value]:
    """The integer next to x · factor, as a float and as an integer."""
    magic = x.format.magic
    sum_ = x.fma(factor, magic)
    return sum_ - magic, sum_.bits() - _bits_of(magic, x.format)


# *** Exponentials ***

# (exp(r) - 1 - r) / r² for |r| <= log(2) / 2, for results of exp (errors 2^-28.2, 2^-63.8)
_EXP: Final = {
    "float": (0.49999993, 0.166665148, 0.0416684578, 0.00836941971, 0.00138131021),
    "double": (
        *(0.5, 0.16666666666666685, 0.04166666666666603, 0.008333333333315705, 0.0013888888889134288),
        *(0.0001984126989972543, 2.4801586903703153e-05, 2.7557231483284182e-06, 2.755759247399055e-07),
        *(2.511322601577869e-08, 2.082561053865797e-09),
    ),
}
# the same, for results of expm1 (2^-31.9, 2^-61.6)
_EXPM1: Final = {
    "float": (0.500000005, 0.166666668, 0.0416663421, 0.00833327053, 0.00139420468, 0.000199156852),
    "double": (
        *(0.5, 0.16666666666666677, 0.041666666666666706, 0.008333333333320654, 0.0013888888888865002),
        *(0.00019841269888895671, 2.4801587364198764e-05, 2.755724116122087e-06, 2.755723964318389e-07),
        *(2.5110179873993055e-08, 2.092540506340207e-09),
    ),
}


def _power_of_two(k: Value, format: Format) -> Value:
    """2 to the power of an integer, which is the exponent of a normal number."""
    return ((k + format.bias) << format.mantissa).to("bitcast", format.kind)


def _exp(x: Value) -> Value:
    format = x.format
    x = x.compare("ogt", format.highest).choose(x.constant(format.highest), x)
    x = x.compare("olt", format.lowest).choose(x.constant(format.lowest), x)
    n, k = _rounded(x, 1 / math.log(2))
    high, low = format.log2
    r = n.fma(-low, n.fma(-high, x))
    p = (r * r).fma(_polynomial(r, _EXP[x.element]), r) + 1.0
    half = k >> 1  # in two steps, since 2^k may be no normal number
    return p * _power_of_two(half, format) * _power_of_two(k - half, format)


def _expm1(x: Value) -> Value:
    found, _ = _expm1_with_error(x)
    is_tiny = abs(x).compare("olt", 2.0 ** -(x.format.mantissa + 3))
    return is_tiny.choose(x, found)


def _expm1_with_error(x: Value) -> tuple[Value, Value]:
    """exp(x) - 1 where it is not tiny, and about what the last addition lost."""
    format = x.format
    lowest = -25.0 if format is SINGLE else -50.0  # exp(x) is less than a quarter of the last bit of 1
    x = x.compare("ogt", format.highest).choose(x.constant(format.highest), x)
    x = x.compare("olt", lowest).choose(x.constant(lowest), x)
    n, k = _rounded(x, 1 / math.log(2))
    high, low = format.log2
    a = n.fma(-high, x)
    part = n * low
    r = a - part
    lost = (a - r) - part
    scale = _power_of_two(k - 1, format)  # half of it, since 2^k may be infinite
    first = r.fma(scale, scale - 0.5)
    second = (r * r).fma(_polynomial(r, _EXPM1[x.element]), lost) * scale
    half = first + second
    return half * 2.0, ((first - half) + second) * 2.0


# (exp(r) - 1 - r) / r² for |r| <= log(2) / 2, for results of tanh (2^-25.8)
_TANH: Final = (0.499999981, 0.166665434, 0.0416672007, 0.00836654738, 0.00138825166)


def _tanh_single(x: Value) -> Value:
    """tanh(x) as h / (h + 1) with h = (exp(2x) - 1) / 2."""
    size = abs(x)
    limit = 9.1  # where the result is 1
    s = size.compare("ogt", limit).choose(x.constant(limit), size)
    n, k = _rounded(s, 2 / math.log(2))
    r = n.fma(-math.log(2), s + s)  # the error of a single step is small compared with the result
    half = _power_of_two(k - 1, x.format)
    h = half.fma((r * r).fma(_polynomial(r, _TANH), r), half - 0.5)
    q = h / (h + 1.0)
    # of a small q the error of h + 1 would be a large part, while h is nearly exact
    return h.compare("olt", 0.5).choose((-h).fma(q, h), q).signed_as(x)


def _tanh_double(x: Value) -> Value:
    size = abs(x)
    clamped = size.compare("ogt", 20.0).choose(x.constant(20.0), size)  # where the result is 1
    t, error = _expm1_with_error(clamped * 2.0)
    sum_ = t + 2.0
    y = t / sum_
    # The derivative of y = t / (t + 2) is (1 - y)² / 2; 1 / (t + 2) is (1 - y) / 2.
    rest = 1.0 - y
    better = (rest * 0.5).fma(error * rest - (t - (sum_ - 2.0)) * y, y)
    y = t.compare("olt", 2.0).choose(better, y)  # errors of greater t are as good as gone in y
    is_tiny = size.compare("olt", 2.0 ** -(x.format.mantissa // 2 + 2))
    return is_tiny.choose(size, y).signed_as(x)


# *** Logarithms ***

# (log(1 + f) - f + f²/2) / f³ for f from √½ - 1 to √2 - 1 (2^-30.3)
_LOG_SINGLE: Final = (
    *(0.333333102, -0.249999864, 0.200022416, -0.166692718, 0.142183382),
    *(-0.123837762, 0.118749807, -0.117941928, 0.0691590593),
)
# (log((1 + s) / (1 - s)) - 2s) / s³ as a polynomial of s² for |s| <= 0.172 (2^-59.5)
_LOG_DOUBLE: Final = (
    *(0.6666666666666735, 0.3999999999940745, 0.2857142874414681, 0.22222198378033936),
    *(0.18183575187253945, 0.15313755177720018, 0.14799072445730785),
)


def _split(x: Value) -> tuple[Value, Value]:
    """The numbers k and f with x = 2ᵏ · (1 + f).

    x is a positive normal number, k an integer, and f lies between √½ - 1 and √2 - 1.
    """
    format = x.format
    bits = x.bits()
    k = (bits - _bits_of(math.sqrt(0.5), format)) >> format.mantissa
    return k, (bits - (k << format.mantissa)).to("bitcast", format.kind) - 1.0


def _log_of_positive(x: Value, more: Value | None = None) -> Value:
    """The logarithm of a positive finite number, plus the small number `more`."""
    format = x.format
    least = 2.0 ** (1 - format.bias)
    is_denormal = x.compare("olt", least)
    scaled = is_denormal.choose(x * 2.0**format.mantissa, x)
    k, f = _split(scaled)
    k = is_denormal.choose(k - format.mantissa, k)
    n = k.to("sitofp", format.kind)
    high, low = format.log2
    rest = n * low if more is None else n.fma(low, more)
    half_square = f * f * 0.5
    if format is SINGLE:
        rest = (f * f * f).fma(_polynomial(f, _LOG_SINGLE), rest)
        return n.fma(high, f - (half_square - rest))
    s = f / (f + 2.0)
    z = s * s
    # log(1 + f) = 2s + s³ R(s²), written with f in place of 2s, which is rounded
    tail = s.fma(z.fma(_polynomial(z, _LOG_DOUBLE), half_square), rest)
    return n.fma(high, f - (half_square - tail))


def _log(x: Value) -> Value:
    found = _log_of_positive(x)
    found = x.compare("olt", math.inf).choose(found, x)  # infinity and NaN
    found = x.compare("oeq", 0.0).choose(x.constant(-math.inf), found)
    return x.compare("olt", 0.0).choose(x.constant(math.nan), found)


def _log1p(x: Value) -> Value:
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    found = _log_of_positive(u, lost)
    is_tiny = abs(x).compare("olt", 2.0 ** -(x.format.mantissa + 3))
    found = is_tiny.choose(x, found)
    found = x.compare("olt", math.inf).choose(found, x)  # infinity and NaN
    found = x.compare("oeq", -1.0).choose(x.constant(-math.inf), found)
    return x.compare("olt", -1.0).choose(x.constant(math.nan), found)


# *** Sine and cosine ***

# (sin(r) - r) / r³ as a polynomial of r² for |r| <= π/4 (2^-37.5, 2^-57.9)
_SIN: Final = {
    "float": (-0.166666666, 0.00833332927, -0.000198392961, 2.7179397e-06),
    "double": (
        *(-0.1666666666666663, 0.008333333333321868, -0.00019841269829351963, 2.7557313527752104e-06),
        *(-2.505073155080172e-08, 1.5895209914543188e-10),
    ),
}
# (cos(r) - 1 + r²/2) / r⁴, likewise (2^-32.7, 2^-63.6)
_COS: Final = {
    "float": (0.0416666463, -0.00138873369, 2.44348246e-05),
    "double": (
        *(0.041666666666666595, -0.0013888888888873385, 2.4801587289000273e-05, -2.755731420764375e-07),
        *(2.087570292043845e-09, -1.1358561091630107e-11),
    ),
}
# π/2 as 30 bits and a double (2^-84), and in parts of 33 bits
_HALF_PI_30: Final = tuple(map(float.fromhex, ("0x1.921fb54p+0", "0x1.10b4611a62633p-30")))
_HALF_PI_33: Final = tuple(
    map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2ep-69", "0x1.b839a252049c1p-104"))
)
# the first 256 bits of 1 / (2π) behind the binary point
_TURNS: Final = (0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158)


def _reduced_huge(x: Value) -> tuple[Value, Value]:
    """The quadrant and the angle in it of a float32 of at least 2²³.

    x is M · 2ᵏ with an integer M below 2²⁴. The bits of 1 / (2π) before the k-th contribute whole turns to the product,
    so 96 bits from there on are enough (M. Payne and R. Hanek, 1983).
    """
    bits = abs(x).bits()
    mantissa = ((bits & 0x7FFFFF) | 0x800000).to("zext", "i64")
    k = (bits.dropped(23) - 150).to("zext", "i64")
    is_later = (k & 64).compare("ne", 0)
    words = [k.constant(w - (w >> 63 << 64)) for w in _TURNS]
    a, b, c = (is_later.choose(later, w) for w, later in itertools.pairwise(words))
    window, following = (u.intrinsic("fshl", v, k) for u, v in ((a, b), (b, c)))
    turns = mantissa * window + (mantissa * following.dropped(32)).dropped(32)  # modulo 2^64, in units of 2^-64
    quadrant = (turns + (1 << 61)) >> 62
    angle = (turns - (quadrant << 62)).to("sitofp", "double") * (2 * math.pi / 2.0**64)
    is_negative = x.compare("olt", 0.0)
    return is_negative.choose(0 - quadrant, quadrant), is_negative.choose(-angle, angle).to("fptrunc", "float")


def _reduced_single(x: Value) -> tuple[Value, Value]:
    """The quadrant of a float32 below 2²³, as an i64, and the angle in it."""
    wide = x.to("fpext", "double")
    n, quadrant = _rounded(wide, 2 / math.pi)
    angle = wide
    for part in _HALF_PI_30:
        angle = n.fma(-part, angle)
    return quadrant, angle.to("fptrunc", "float")


def _reduced_double(x: Value) -> tuple[Value, Value, Value]:
    """The quadrant of a double below 2²⁰, and the angle as a sum."""
    n, quadrant = _rounded(x, 2 / math.pi)
    first, second, third, last = _HALF_PI_33
    a = n.fma(-first, x)
    part = n * second
    b = a - part
    lost = (a - b) - part
    part = n * third
    c = b - part
    lost = lost + ((b - c) - part)
    lost = n.fma(-last, lost)
    high = c + lost
    return quadrant, high, (c - high) + lost


def _sin_in(quadrant: Value, r: Value, low: Value | None = None) -> Value:
    """The sine of an angle r + `low` in a quadrant."""
    z = r * r
    sine, cosine = _polynomial(z, _SIN[r.element]), _polynomial(z, _COS[r.element])
    half = z * 0.5
    if low is None:
        sine, cosine = (r * z).fma(sine, r), (z * z).fma(cosine, 1.0 - half)
    else:
        sine = r + ((r * z) * sine + low)
        cosine = (z * z) * cosine - r * low
        one = 1.0 - half
        cosine = one + (((1.0 - one) - half) + cosine)
    found = (quadrant & 1).compare("ne", 0).choose(cosine, sine)
    return (quadrant & 2).compare("ne", 0).choose(-found, found)


def _sin_or_cos_near(x: Value, first: int) -> Value:
    """The sine (`first` is 0) or cosine (1) of a number that is not huge."""
    if x.format is SINGLE:
        quadrant, angle = _reduced_single(x)
        found = _sin_in(quadrant + first, angle)
    else:
        quadrant, angle, low = _reduced_double(x)
        found = _sin_in(quadrant + first, angle, low)
    return found if first else x.compare("oeq", 0.0).choose(x, found)  # with the sign of zero


def _sin_or_cos_huge(x: Value, first: int) -> Value:
    """The sine or cosine of a huge number, infinity or NaN."""
    if x.format is DOUBLE:
        target = _library(x.f.module, "cos" if first else "sin", "double", 1)
        return Value(x.f, "double", x.f.op(f"call double {target}(double {x.name})"))
    quadrant, angle = _reduced_huge(x)
    return abs(x).compare("olt", math.inf).choose(_sin_in(quadrant + first, angle), math.nan)


# *** Angles ***

# atan(t) / t as a polynomial of t² for |t| <= 1 (2^-34.0)
_ATAN_SINGLE: Final = (
    *(0.9999999999412362, -0.33333331571214775, 0.19999912051749438, -0.14283980767498666, 0.11093241342799734),
    *(-0.08980239540924431, 0.07245719662881639, -0.05427913292136001, 0.034209638249093066, -0.016111701990674306),
    *(0.004850942218389708, -0.0006847939233187616),
)
# (atan(u) - u) / u³ as a polynomial of u² for |u| <= √2 - 1 (2^-56.9, by interpolation at Chebyshev's points)
_ATAN_DOUBLE: Final = (
    *(-0.3333333333333333, 0.19999999999995524, -0.14285714284667148, 0.11111111015293135, -0.09090904579278376),
    *(0.07692183212534087, -0.06664511709038226, 0.0585815096214482, -0.05085459819981125, 0.03923194038662257),
    -0.019177228193192,
)
# π/4 and 3π/4 as sums of two doubles
_QUARTER_PI: Final = (math.pi / 4, float.fromhex("0x1.1a62633145c07p-55"))
_THREE_QUARTERS_PI: Final = tuple(map(float.fromhex, ("0x1.2d97c7f3321d2p+1", "0x1.a79394c9e8a0ap-54")))


def _sides(y: Value, x: Value) -> tuple[Value, Value, Value]:
    """The lesser and the greater size of both, and whether that of `y` is greater.

    They are 0 or 1 if one is infinite. A NaN is in one of them.
    """
    rise, run = abs(y), abs(x)
    is_steep = rise.compare("ogt", run)
    less, greater = is_steep.choose(run, rise), is_steep.choose(rise, run)
    is_infinite = greater.compare("oeq", math.inf) & less.compare("ord", 0.0)
    end = less.compare("oeq", math.inf).choose(x.constant(1.0), 0.0)
    return is_infinite.choose(end, less), is_infinite.choose(x.constant(1.0), greater), is_steep


def _is_negative(x: Value) -> Value:
    """Whether a number, which may be zero, has the sign."""
    return x.bits().compare("slt", 0)


def _arctan2_single(y: Value, x: Value) -> Value:
    rise, run = y.to("fpext", "double"), x.to("fpext", "double")
    less, greater, is_steep = _sides(rise, run)
    t = greater.compare("oeq", 0.0).choose(less, less / greater)
    angle = t * _polynomial(t * t, _ATAN_SINGLE)
    angle = is_steep.choose(math.pi / 2 - angle, angle)
    angle = _is_negative(run).choose(math.pi - angle, angle)
    # the sign of a float32: of a half extended to float64, LLVM would call a function that processes lack
    return angle.to("fptrunc", "float").signed_as(y)


def _arctan2_double(y: Value, x: Value) -> Value:
    less, greater, is_steep = _sides(y, x)
    scale = greater.compare("ogt", 2.0**1000).choose(x.constant(0.25), 1.0)  # so that no sum overflows
    less, greater = less * scale, greater * scale
    is_diagonal = less.compare("ogt", greater * (math.sqrt(2) - 1))
    above, below = is_diagonal.choose(less - greater, less), is_diagonal.choose(less + greater, greater)
    u = below.compare("oeq", 0.0).choose(less, above / below)
    z = u * u
    rest = u * z * _polynomial(z, _ATAN_DOUBLE)
    # the angle is a multiple of π/4, more or less atan(u)
    count = is_diagonal.choose(x.constant(1.0), 0.0)
    count = is_steep.choose(2.0 - count, count)
    is_negative = _is_negative(x)
    count = is_negative.choose(4.0 - count, count)
    is_odd = count.compare("oeq", 3.0)
    high, low = (is_odd.choose(x.constant(b), count * a) for a, b in zip(_QUARTER_PI, _THREE_QUARTERS_PI, strict=True))
    is_less = is_steep ^ is_negative
    u, rest = is_less.choose(-u, u), is_less.choose(-rest, rest)
    return (high + (u + (rest + low))).signed_as(y)


def _arctan(writer: Callable[[Value, Value], Value]) -> Callable[[Value], Value]:
    return lambda x: writer(x, x.constant(1.0))


# *** Functions of float32 in double precision ***

# erf(x) / x as a polynomial of x² for |x| <= 3.95 (2^-34.6)
_ERF: Final = (
    *(1.128379167052595, -0.3761263870305007, 0.11283790080348761, -0.026866119483532954, 0.005223889186355415),
    *(-0.0008547379670531978, 0.00012048487172833778, -1.4890366986833109e-05, 1.6327283208778913e-06),
    *(-1.5972921080789045e-07, 1.3915340229296933e-08, -1.0687762561587362e-09, 7.111090425109338e-11),
    *(-4.0027735108234636e-12, 1.851882443546906e-13, -6.798621556876038e-15, 1.8917140532086902e-16),
    *(-3.728376629748625e-18, 4.619331552422909e-20, -2.697278936694791e-22),
)


def _erf_single(x: Value) -> Value:
    wide = x.to("fpext", "double")
    size = abs(wide)
    z = wide * wide
    found = (wide * _polynomial(z, _ERF)).to("fptrunc", "float")
    return size.compare("ogt", 3.92).choose(x.constant(1.0).signed_as(x), found)  # rounds to 1 from there on


# the polynomials of `_LOG_SINGLE` and `_EXP` with the precision that `power` needs (2^-35.6, 2^-34.1)
_LOG_FOR_POWER: Final = (
    *(0.3333333398670505, -0.24999997874109656, 0.19999901866884118, -0.16666784938100254, 0.14290442581719326),
    *(-0.12500391776329983, 0.11012629356270452, -0.09898244547787718, 0.09977813019996855, -0.09980267143616198),
    0.05533728637898758,
)
_EXP_FOR_POWER: Final = (
    *(0.5000000071670466, 0.16666665819249218, 0.04166628033226564, 0.008333503945758568, 0.0013945751940783492),
    0.0001978916371969936,
)


def _power_single(x: Value, y: Value) -> Value:
    size = abs(x)
    k, f = _split(size.to("fpext", "double"))  # normal numbers, or zero
    n = k.to("sitofp", "double")
    square = f * f
    log = n.fma(math.log(2), (f * square).fma(_polynomial(f, _LOG_FOR_POWER), square.fma(-0.5, f)))
    log = size.compare("olt", math.inf).choose(log, size.to("fpext", "double"))
    log = size.compare("oeq", 0.0).choose(log.constant(-math.inf), log)
    t = log * y.to("fpext", "double")
    t = t.compare("ogt", 90.0).choose(t.constant(90.0), t)
    t = t.compare("olt", -110.0).choose(t.constant(-110.0), t)
    n, k = _rounded(t, 1 / math.log(2))
    r = n.fma(-math.log(2), t)
    exp = (r * r).fma(_polynomial(r, _EXP_FOR_POWER), r) + 1.0
    found = (exp * _power_of_two(k, DOUBLE)).to("fptrunc", "float")
    half = y * 0.5
    is_whole = y.intrinsic("trunc").compare("oeq", y)
    is_odd = is_whole & half.intrinsic("trunc").compare("one", half)
    negated = is_odd.choose(found.signed_as(x), found)
    is_real = is_whole | x.compare("oge", 0.0) | x.compare("oeq", -math.inf) | x.compare("uno", x)
    found = is_real.choose(negated, math.nan)
    is_one = x.compare("oeq", 1.0) | y.compare("oeq", 0.0)
    is_one = is_one | (x.compare("oeq", -1.0) & abs(y).compare("oeq", math.inf))
    return is_one.choose(x.constant(1.0), found)


# *** Calls ***

_INLINED: Final[dict[tuple[str, str], Callable[..., Value]]] = {
    **{(name, kind): writer for kind in FORMATS for name, writer in (("exp", _exp), ("expm1", _expm1))},
    **{(name, kind): writer for kind in FORMATS for name, writer in (("log", _log), ("log1p", _log1p))},
    ("tanh", "float"): _tanh_single,
    ("tanh", "double"): _tanh_double,
    ("erf", "float"): _erf_single,
    ("power", "float"): _power_single,
    ("arctan2", "float"): _arctan2_single,
    ("arctan2", "double"): _arctan2_double,
    ("arctan", "float"): _arctan(_arctan2_single),
    ("arctan", "double"): _arctan(_arctan2_double),
}

_PURE: Final = "nounwind willreturn memory(none)"


class _Branching(NamedTuple):
    """Function that branches for rare arguments.

    Attributes:
      near: Writes the function for scalars and vectors of usual arguments.
      far: Writes the function for other scalars.
      bounds: The least absolute value that is not usual, by LLVM's type.
    """

    near: Callable[[Value], Value]
    far: Callable[[Value], Value]
    bounds: dict[str, float]


_HUGE: Final = {"float": 2.0**23, "double": 2.0**20}
_BRANCHING: Final = {
    "sin": _Branching(lambda x: _sin_or_cos_near(x, 0), lambda x: _sin_or_cos_huge(x, 0), _HUGE),
    "cos": _Branching(lambda x: _sin_or_cos_near(x, 1), lambda x: _sin_or_cos_huge(x, 1), _HUGE),
}

#: Elements of the vectors of 512 and 256 bits, for which there are functions.
_WIDTHS: Final = {"float": (16, 8), "double": (8, 4)}


def call(f: Function, name: str, kind: str, *args: str) -> str:
    """Calls an elementary function.

    Args:
      f: The function in construction.
      name: The name of the ufunc, such as `arctan2`.
      kind: LLVM's type of arguments and result: `float` or `double`.
      *args: The arguments.
    """
    suffix = ""
    if name in _BRANCHING:
        symbol = _branching(f.module, name, kind)
        names = (f"_ZGV_LLVM_N{n}v_{symbol}({symbol}.{n})" for n in _WIDTHS[kind])
        target, suffix = f"@{symbol}", f' "vector-function-abi-variant"="{",".join(names)}"'
    elif (name, kind) in _INLINED:
        target = _inlined(f.module, name, kind, len(args))
    else:
        target = _library(f.module, name, kind, len(args))
    return f.op(f"call {kind} {target}({', '.join(f'{kind} {a}' for a in args)}){suffix}")


def _library(module: Module, name: str, kind: str, count: int) -> str:
    """The function of the C library."""
    symbol = LIBRARY_NAMES[name] + ("f" if kind == "float" else "")
    return module.declare(symbol, kind, [kind] * count, _PURE)


def _inlined(module: Module, name: str, kind: str, count: int) -> str:
    """The function of this module, defined at the first call."""
    symbol = f"headrace.{name}.{kind}"
    if not module.has(symbol):
        params = [(kind, f"x{i}") for i in range(count)]
        f = module.function(symbol, kind, params, f"alwaysinline {_PURE}", "internal")
        result = _INLINED[name, kind](*(Value(f, kind, f"%x{i}") for i in range(count)))
        f.line(f"ret {kind} {result.name}")
    return f"@{symbol}"


def _branching(module: Module, name: str, kind: str) -> str:
    """The function of scalars, defined with those of vectors at the first call.

    An attribute of each call names the functions of vectors, so the vectorizer calls them in its place. Both compute
    the same, so a result does not depend on the elements that share its vector.
    """
    symbol = f"headrace.{name}.{kind}"
    if module.has(symbol):
        return symbol
    written = _BRANCHING[name]
    f = module.function(symbol, kind, [(kind, "x")], f"noinline {_PURE}", "internal")
    x = Value(f, kind, "%x")
    f.branch(abs(x).compare("olt", written.bounds[kind]).name, "near", "far")
    f.begin("near")
    f.line(f"ret {kind} {written.near(x).name}")
    f.begin("far")
    f.line(f"ret {kind} {written.far(x).name}")
    for width in _WIDTHS[kind]:
        _vector(module, symbol, kind, width, written)
    # The vectorizer finds functions by name only, so without this they would be removed before.
    symbols = [f"headrace.{n}.{k}.{w}" for n in _BRANCHING for k, widths in _WIDTHS.items() for w in widths]
    kept = [f"ptr @{s}" for s in symbols if module.has(s)]
    definition = f'appending global [{len(kept)} x ptr] [{", ".join(kept)}], section "llvm.metadata"'
    module.add_global("llvm.compiler.used", definition)
    return symbol


def _vector(module: Module, symbol: str, kind: str, width: int, written: _Branching) -> None:
    """Defines a function of vectors.

    It calls the function of scalars for each element if one is not usual.
    """
    vector = f"<{width} x {kind}>"
    f = module.function(f"{symbol}.{width}", vector, [(vector, "x")], f"noinline {_PURE}", "internal")
    slots = f.alloca(vector)
    x = Value(f, vector, "%x")
    found = written.near(x)
    is_near = abs(x).compare("olt", written.bounds[kind])
    all_ = module.declare(f"llvm.vector.reduce.and.v{width}i1", "i1", [is_near.kind])
    f.branch(f.op(f"call i1 {all_}({is_near.kind} {is_near.name})"), "near", "far")
    f.begin("near")
    f.line(f"ret {vector} {found.name}")
    f.begin("far")
    f.line(f"store {vector} %x, ptr {slots}")
    with f.loop("0", str(width)) as i:
        at = f.op(f"getelementptr inbounds {kind}, ptr {slots}, i64 {i}")
        value = f.op(f"load {kind}, ptr {at}")
        f.line(f"store {kind} {f.op(f'call {kind} @{symbol}({kind} {value})')}, ptr {at}")
    f.line(f"ret {vector} {f.op(f'load {vector}, ptr {slots}')}")

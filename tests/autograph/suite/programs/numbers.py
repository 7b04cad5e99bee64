"""Whole numbers: common divisors, primes, powers by squaring, sequences of Collatz, and a continued fraction."""


def extended_gcd(a, b):
    """The greatest common divisor as a sum of multiples."""
    x, next_x = 1, 0
    y, next_y = 0, 1
    while b != 0:
        q = a // b
        a, b = b, a % b
        x, next_x = next_x, x - q * next_x
        y, next_y = next_y, y - q * next_y
    return a, x, y


def primes(xp, n, room):
    """The sieve of Eratosthenes: flags and the number of primes up to n."""
    flags = xp.izeros(room) + 1
    flags[0] = 0
    flags[1] = 0
    p = 2
    while p * p <= n:
        if flags[p] == 1:
            for multiple in range(p * p, n + 1, p):
                flags[multiple] = 0
        p += 1
    count = 0
    for k in range(n + 1):
        if flags[k]:
            count += 1
    return flags, count


def power(base, exponent, modulus):
    result = 1
    while exponent > 0:
        if exponent % 2 == 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent //= 2
    return result


def collatz(n):
    steps, highest = 0, n
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        highest = max(highest, n)
        steps += 1
    return steps, highest


def digits(xp, n, base, room):
    out = xp.izeros(room)
    k = 0
    while True:
        out[k] = n % base
        n = n // base
        k += 1
        if n == 0 or k == room:
            break
    return out, k


def continued_fraction(xp, x, terms):
    """The value of the first terms of a continued fraction, and the rest."""
    parts = []
    rest = x
    for _ in range(terms):
        whole = xp.floor(rest)
        parts.append(whole)
        if rest - whole < 1e-6:
            break
        rest = 1.0 / (rest - whole)
    value = 0.0
    while len(parts) > 0:
        part = parts.pop()
        value = part if value == 0.0 else part + 1.0 / value
    return value, rest


def program(xp, a, b, n, x):
    flags, count = primes(xp, n, 40)
    value, rest = continued_fraction(xp, x, 3)
    return {
        "gcd": extended_gcd(a, b),
        "primes": (flags, count),
        "power": power(a, n, 1009),
        "collatz": collatz(n),
        "digits": digits(xp, a, b, 8),
        "fraction": value,
        "rest": rest,
    }


CALLS = ((240, 46, 30, 3.27), (17, 5, 7, 1.45), (99, 3, 27, 2.71828))

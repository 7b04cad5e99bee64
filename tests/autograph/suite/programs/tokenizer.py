"""A state machine over character codes, and the value of an arithmetic expression."""

import numpy as np

SPACE, DIGIT, LETTER, SIGN, OPEN, CLOSE = 0, 1, 2, 3, 4, 5


def class_of(code):
    if 48 <= code <= 57:
        return DIGIT
    elif 97 <= code <= 122 or 65 <= code <= 90:
        return LETTER
    elif code == 40:
        return OPEN
    elif code == 41:
        return CLOSE
    elif code == 32:
        return SPACE
    return SIGN


def tokens(xp, codes):
    """Kinds, first positions and numeric values of the tokens, and their number."""
    kinds, starts, numbers = xp.izeros(len(codes)), xp.izeros(len(codes)), xp.izeros(len(codes))
    count = 0
    i = 0
    while i < len(codes):
        kind = class_of(codes[i])
        if kind == SPACE:
            i += 1
            continue
        starts[count] = i
        kinds[count] = kind
        if kind == DIGIT:
            number = 0
            while i < len(codes) and class_of(codes[i]) == DIGIT:
                number = number * 10 + codes[i] - 48
                i += 1
            numbers[count] = number
        elif kind == LETTER:
            while i < len(codes) and (class_of(codes[i]) == LETTER or class_of(codes[i]) == DIGIT):
                i += 1
        else:
            numbers[count] = codes[i]
            i += 1
        count += 1
    return kinds, starts, numbers, count


def priority(sign):
    return 2 if sign == 42 else 1 if sign == 43 or sign == 45 else 0


def applied(sign, left, right):
    if sign == 43:
        return left + right
    if sign == 45:
        return left - right
    return left * right


def evaluate(xp, kinds, numbers, count):
    """The value of an expression with +, -, * and parentheses, by two stacks."""
    values, signs = xp.izeros(16), xp.izeros(16)
    depth = height = 0
    for k in range(count + 1):
        kind = kinds[k] if k < count else CLOSE
        if kind == DIGIT:
            values[depth] = numbers[k]
            depth += 1
        elif kind == OPEN:
            signs[height] = 40
            height += 1
        else:
            sign = numbers[k] if kind == SIGN else 0
            while height > 0 and signs[height - 1] != 40 and priority(signs[height - 1]) >= priority(sign):
                height -= 1
                depth -= 1
                values[depth - 1] = applied(signs[height], values[depth - 1], values[depth])
            if kind == SIGN:
                signs[height] = sign
                height += 1
            elif height > 0:
                height -= 1
    return values[0]


def program(xp, codes):
    kinds, starts, numbers, count = tokens(xp, codes)
    words = 0
    for kind in kinds[:count]:
        if kind == LETTER:
            words += 1
    value = evaluate(xp, kinds, numbers, count) if words == 0 else -1
    return kinds, starts, numbers, count, words, value


def codes(text):
    return np.array([ord(c) for c in text.ljust(14)], np.int32)


CALLS = tuple((codes(text),) for text in ("2+3*(41-7)*2", "10 - 4 - 3", "x1 = (ab+22)", "((7))", "1-2*3-4*5-6"))

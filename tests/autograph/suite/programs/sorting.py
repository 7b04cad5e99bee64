"""Sorting of an array: insertion, bubbles with an early end, a merge, and selection."""

import numpy as np


def insertion_sort(values):
    values = values + 0.0
    moves = 0
    for i in range(1, len(values)):
        key = values[i]
        j = i - 1
        while j >= 0 and values[j] > key:
            values[j + 1] = values[j]
            j -= 1
            moves += 1
        values[j + 1] = key
    return values, moves


def bubble_sort(values):
    values = values + 0.0
    passes = 0
    swapped = True
    while swapped:
        swapped = False
        for i in range(len(values) - 1):
            if values[i] > values[i + 1]:
                low, high = values[i + 1], values[i]
                values[i] = low
                values[i + 1] = high
                swapped = True
        passes += 1
    return values, passes


def merge(xp, left, right):
    """Merges two sorted arrays."""
    out = xp.zeros(len(left) + len(right))
    i = j = 0
    for k in range(len(left) + len(right)):
        if j >= len(right) or (i < len(left) and left[i] <= right[j]):
            out[k] = left[i]
            i += 1
        else:
            out[k] = right[j]
            j += 1
    return out


def quickselect(values, k):
    """The k-th smallest value, by partitions in place."""
    values = values + 0.0
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[high]
        store = low
        for i in range(low, high):
            if values[i] < pivot:
                small, large = values[i], values[store]
                values[store] = small
                values[i] = large
                store += 1
        at_store = values[store]
        values[store] = pivot
        values[high] = at_store
        if store == k:
            break
        elif store < k:
            low = store + 1
        else:
            high = store - 1
    return values[k]


def program(xp, values, k):
    middle = len(values) // 2
    ordered, moves = insertion_sort(values)
    again, passes = bubble_sort(values)
    left, _ = insertion_sort(values[:middle])
    right, _ = bubble_sort(values[middle:])
    merged = merge(xp, left, right)
    return {
        "ordered": ordered,
        "again": again,
        "merged": merged * merged,
        "kth": quickselect(values, k),
        "counts": (moves, passes),
    }


CALLS = (
    (np.array([3.5, -1.0, 2.25, 7.0, 0.5, 6.0, -4.0]), 2),
    (np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.5]), 6),
    (np.array([9.0, 8.0, 7.0, 6.5, 5.0, 4.0, 3.0]), 0),
)

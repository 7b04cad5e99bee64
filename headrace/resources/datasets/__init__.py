"""Datasets: sequences of elements that iterators produce one at a time.

A dataset describes a sequence, and is immutable. `Dataset.iterator` begins a pass over it. Each transformation is a
dataset on others, and its iterator asks theirs for elements. An element is a tuple of values (`resources.values`), its
components.
"""

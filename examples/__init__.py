"""Example programs; docs/learn/examples.md describes each of them."""

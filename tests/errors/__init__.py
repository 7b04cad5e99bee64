"""Tests of the error texts for mistakes.

The tool `reached` finds the mistakes that no test makes.
"""

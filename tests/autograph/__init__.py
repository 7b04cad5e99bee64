"""Tests of source conversion."""

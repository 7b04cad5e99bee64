"""Fourier transforms and audio."""

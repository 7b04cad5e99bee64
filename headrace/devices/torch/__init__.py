"""Devices whose arrays are PyTorch's tensors: kernels of one or a few calls.

A record that declares `xp=True` needs no kernel here. The modules of this package have the others, and those that
PyTorch computes faster than the portable formula. Importing a module registers its kernels (`registering`).
"""

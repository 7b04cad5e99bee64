"""Devices whose arrays are PyTorch's tensors: kernels that are one call of PyTorch, or a few.

A record that declares `xp=True` needs no kernel here. The modules of this package have the others, and those that PyTorch
computes faster than the portable formula. Importing a module registers its kernels (`registering`).
"""

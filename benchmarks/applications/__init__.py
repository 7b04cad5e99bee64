"""Steps a second of the applications in headrace, TensorFlow 1 and PyTorch.

Each module is the PyTorch twin of an application.
"""

"""Windows as loop nests: convolution and pooling, with their gradients.

Each function adds a function for one geometry to a module of LLVM's text. `lines` plans which pixels a register tile
holds, `nest` writes loops and vectors, `convolution` and `pooling` write the loop nests.
"""

"""Native target: parts of a program as machine code, by way of LLVM (`llvmlite`)."""

"""Schedule of a step: the operations that run, in order, each as an instruction.

`regions` reduces the graphs of a step to the needed operations and orders them. `lists` chooses the tensor lists that
can be changed in place. `select` gives each operation its instruction: a map of scalar expressions, which
`scalar_expressions` finds, a movement of elements, an operation on a list, or a call of a kernel. `tiling` groups maps
of large arrays. `text` prints a schedule. A code generator (`compile`) writes the instructions and needs no knowledge
of single ops.
"""

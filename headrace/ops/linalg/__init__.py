"""Linear algebra: decompositions, solvers, diagonals, einsum."""

"""The squares of the first numbers, collected in a TensorArray."""

import headrace as hr

with hr.Graph() as graph:
    n = hr.placeholder(hr.int32, ())
    squares = hr.TensorArray(hr.int32, size=n)

    def square(i):
        squares.write(i, i * i)
        return i + 1

    done = hr.while_loop(lambda i: i < n, square, [0], return_same_structure=False)
    with hr.control_dependencies([done]):
        result = squares.stack()

with hr.Session(graph=graph) as session:
    print(session.run(result, {n: 5}).tolist())

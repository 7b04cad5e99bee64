"""The squares of the first numbers, collected in a TensorArray."""

import headrace as hr

with hr.Graph() as graph:
    n = hr.placeholder(hr.int32, ())
    squares = hr.TensorArray(hr.int32, size=n)

    def square(i, squares):
        return i + 1, squares.write(i, i * i)

    _, squares = hr.while_loop(lambda i, squares: i < n, square, [0, squares])
    result = squares.stack()

with hr.Session(graph=graph) as session:
    print(session.run(result, {n: 5}).tolist())  # [0, 1, 4, 9, 16]

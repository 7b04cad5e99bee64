"""The number of multiples of three among the first numbers."""

import headrace as hr

with hr.Graph() as graph:
    n = hr.placeholder(hr.int32, ())

    def count(i, found):
        return i + 1, found + hr.cast(i % 3 == 0, hr.int32)

    _, found = hr.while_loop(lambda i, found: i < n, count, [0, 0])

with hr.Session(graph=graph) as session:
    print(int(session.run(found, {n: 10})))

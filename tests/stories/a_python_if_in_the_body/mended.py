"""The number of steps of the Collatz sequence of a number to 1."""

import headrace as hr

with hr.Graph() as graph:
    start = hr.placeholder(hr.int32, ())

    def follow(n, steps):
        n = hr.cond(n % 2 > 0, lambda: 3 * n + 1, lambda: n // 2)
        return n, steps + 1

    _, steps = hr.while_loop(lambda n, steps: n > 1, follow, [start, 0])

with hr.Session(graph=graph) as session:
    print(int(session.run(steps, {start: 27})))  # 111

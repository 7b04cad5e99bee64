"""Powers of a base. The base is constant, so the body does not mention it."""

import headrace as hr

with hr.Graph() as graph:
    n = hr.placeholder(hr.int32, ())

    def more(i, power, base):
        return i < n

    def times(i, power, base):
        return i + 1, power * base

    _, power, _ = hr.while_loop(more, times, [0, 1, 3])

with hr.Session(graph=graph) as session:
    print(int(session.run(power, {n: 4})))

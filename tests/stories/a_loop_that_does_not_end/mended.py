"""The number of halvings of a number until it is below 1."""

import headrace as hr

with hr.Graph() as graph:
    x = hr.placeholder(hr.float32, ())
    times, _ = hr.while_loop(lambda n, x: x >= 1.0, lambda n, x: (n + 1, x / 2.0), [0, x])

with hr.Session(graph=graph) as session:
    print(int(session.run(times, {x: 100.0}, timeout_ms=20_000)))  # 7

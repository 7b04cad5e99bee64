"""The sum of the first numbers; the body has no use for the counter."""

import headrace as hr

with hr.Graph() as graph:
    n = hr.placeholder(hr.int32, ())
    _, total = hr.while_loop(lambda i, total: i < n, lambda i, total: (i + 1, total + i), [0, 0])

with hr.Session(graph=graph) as session:
    print(int(session.run(total, {n: 5})))  # 10

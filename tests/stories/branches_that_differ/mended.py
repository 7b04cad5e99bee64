"""The mean and the length of a list. An empty list has no mean."""

import headrace as hr

with hr.Graph() as graph:
    values = hr.placeholder(hr.float32, (None,))

    def some():
        return hr.reduce_mean(values), hr.size(values)

    def none():
        return 0.0, 0

    mean, n = hr.cond(hr.size(values) > 0, some, none)

with hr.Session(graph=graph) as session:
    print([v.item() for v in session.run([mean, n], {values: [1.0, 2.0, 6.0]})])  # [3.0, 3]

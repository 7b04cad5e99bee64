"""The largest rise from one value to the next."""

import headrace as hr

with hr.Graph() as graph:
    values = hr.placeholder(hr.float32, (None,))
    n = hr.size(values)

    def largest(i, rise):
        return i + 1, hr.maximum(rise, values[i + 1] - values[i])

    _, rise = hr.while_loop(lambda i, rise: i < n, largest, [0, 0.0])

with hr.Session(graph=graph) as session:
    print(float(session.run(rise, {values: [1.0, 4.0, 2.0, 7.0]})))

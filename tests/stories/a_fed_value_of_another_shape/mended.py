"""A recurrence over the rows of a matrix: two numbers a row."""

import headrace as hr

with hr.Graph() as graph:
    rows = hr.placeholder(hr.float32, (None, 2), name="rows")
    decayed = hr.foldl(lambda state, row: 0.5 * state + row, rows)

with hr.Session(graph=graph) as session:
    print(session.run(decayed, {rows: [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}).tolist())  # [6.75, 8.5]

"""Newton's square root; the guess starts as 1."""

import headrace as hr

with hr.Graph() as graph:
    x = hr.placeholder(hr.float32, ())

    def rough(n, guess):
        return n < 6

    def better(n, guess):
        return n + 1, (guess + x / guess) / 2.0

    _, root = hr.while_loop(rough, better, [0, 1.0])

with hr.Session(graph=graph) as session:
    print(round(float(session.run(root, {x: 9.0})), 4))  # 3.0

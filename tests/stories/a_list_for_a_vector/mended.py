"""A point that turns round the origin."""

import headrace as hr

with hr.Graph() as graph:
    turn = hr.constant([[0.0, -1.0], [1.0, 0.0]])

    def rotate(i, point):
        return i + 1, hr.linalg.matvec(turn, point)

    _, point = hr.while_loop(lambda i, point: i < 3, rotate, [0, hr.constant([1.0, 0.0])])

with hr.Session(graph=graph) as session:
    print(session.run(point).tolist())  # [0.0, -1.0]

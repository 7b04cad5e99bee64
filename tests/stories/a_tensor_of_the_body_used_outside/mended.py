"""The last step of a walk, and where it led."""

import headrace as hr

with hr.Graph() as graph:
    target = hr.placeholder(hr.float32, ())

    def far(place, step):
        return hr.abs(target - place) > 0.1

    def walk(place, step):
        step = (target - place) / 2.0
        return place + step, step

    place, step = hr.while_loop(far, walk, [0.0, 0.0])
    last_step = hr.abs(step)

with hr.Session(graph=graph) as session:
    print([float(v) for v in session.run([place, last_step], {target: 1.0})])  # [0.9375, 0.0625]

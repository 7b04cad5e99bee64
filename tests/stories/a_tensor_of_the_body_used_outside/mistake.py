"""The last step of a walk, and where it led."""

import headrace as hr

with hr.Graph() as graph:
    target = hr.placeholder(hr.float32, ())
    steps = []

    def far(place):
        return hr.abs(target - place) > 0.1

    def walk(place):
        step = (target - place) / 2.0
        steps.append(step)
        return place + step

    place = hr.while_loop(far, walk, [0.0], return_same_structure=False)
    last_step = hr.abs(steps[-1])

with hr.Session(graph=graph) as session:
    print([float(v) for v in session.run([place, last_step], {target: 1.0})])

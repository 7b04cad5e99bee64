"""A counter that a loop raises."""

import headrace as hr

with hr.Graph() as graph:
    total = hr.Variable(0, name="total")

    def add(i):
        with hr.control_dependencies([total.assign_add(i)]):
            return i + 1

    done = hr.while_loop(lambda i: i < 5, add, [0], return_same_structure=False)
    with hr.control_dependencies([done]):
        result = total.read_value()

with hr.Session(graph=graph) as session:
    print(int(session.run(result)))

"""A factorial that counts down, as in C: the loop ends at zero."""

import headrace as hr

with hr.Graph() as graph:
    n = hr.placeholder(hr.int32, ())
    _, factorial = hr.while_loop(lambda k, product: hr.not_equal(k, 0), lambda k, product: (k - 1, product * k), [n, 1])

with hr.Session(graph=graph) as session:
    print(int(session.run(factorial, {n: 5})))  # 120

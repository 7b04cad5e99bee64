"""Greatest common divisors by Euclid's algorithm; it stops one iteration too late."""

import headrace as hr

with hr.Graph() as graph:
    a, b = hr.placeholder(hr.int32, (), name="a"), hr.placeholder(hr.int32, (), name="b")
    divisor, _ = hr.while_loop(lambda a, b: b > 0, lambda a, b: (b, a % b), [a, b])

with hr.Session(graph=graph, engine="interpret") as session:
    print(int(session.run(divisor, {a: 54, b: 24})))  # 6

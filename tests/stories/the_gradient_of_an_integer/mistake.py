"""The growth of a compound interest with its rate in percent."""

import headrace as hr

with hr.Graph() as graph:
    percent = hr.placeholder(hr.int32, (), name="percent")
    rate = 1.0 + hr.cast(percent, hr.float32) / 100.0
    _, money = hr.while_loop(lambda year, m: year < 2, lambda year, m: (year + 1, m * rate), [0, 100.0])
    (slope,) = hr.gradients(money, percent)

with hr.Session(graph=graph) as session:
    print(round(float(session.run(slope, {percent: 10})), 3))

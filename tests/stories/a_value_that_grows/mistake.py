"""The Fibonacci numbers up to a given length; each iteration appends one."""

import headrace as hr

with hr.Graph() as graph:
    length = hr.placeholder(hr.int32, ())
    numbers = hr.constant([1, 1])

    def shorter(numbers):
        return hr.size(numbers) < length

    def longer(numbers):
        return hr.concat([numbers, [numbers[-1] + numbers[-2]]], axis=0)

    numbers = hr.while_loop(shorter, longer, [numbers], return_same_structure=False)

with hr.Session(graph=graph) as session:
    print(session.run(numbers, {length: 8}).tolist())

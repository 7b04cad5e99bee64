"""Watches: specifications of values to return from inside of a step, and these values.

    values, watched = session.run(y, feeds, watch=hr.watch("while/h", iterations=[0, 5, -1]))
    for record in watched["while/h"]:
        print(record.path, record.iteration, record.value)

`watching` carries a watch out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from headrace.ir import tensor_type
from headrace.ir.graph import Operation, Tensor
from headrace.observe.watchable import canonical
from headrace.records import record

# Names of the frames around a value with their iterations, outermost first.
FramePath: TypeAlias = tuple[tuple[str, int], ...]


@record(frozen=True, slots=True)
class Watch:
    """Specification of watched tensors; `hr.watch` makes it.

    Attributes:
      what: the tensors and names.
      iterations: the numbers of the iterations; None: all.
      when: the predicate; None: every value is returned.
    """

    what: tuple[Tensor | str, ...]
    iterations: tuple[int, ...] | range | None = None
    when: Callable[[Any], Any] | None = None

    @property
    def reaches_back(self) -> int:
        """Greatest number of iterations before the end that is selected; 0 for none."""
        return 0 if self.iterations is None else max(0, -min(self.iterations))

    def takes(self, iteration: int, trips: int) -> bool:
        """Whether `iterations` has the iteration of a loop that ran `trips` iterations."""
        return self.iterations is None or iteration in self.iterations or iteration - trips in self.iterations


def watch(
    what: tensor_type.Tensor | str | Sequence[tensor_type.Tensor | str],
    iterations: int | Sequence[int] | None = None,
    when: Callable[[Any], Any] | None = None,
) -> Watch:
    """Returns a specification of values that `Session.run(..., watch=...)` returns from inside of a step.

    Args:
      what: the tensors, or one of them: a tensor, also of the body of a loop, of a branch or of a function; or its
        name: "while/h", "while/h:1", "f/x" of the function `f`, "outer/x" of a loop `outer` whose body is a function
        of the library; or a pattern of such names, in which "*" stands for any text.
      iterations: the iterations of the innermost loop around the tensor whose values are returned. Negative numbers
        count from the end of each execution of the loop: -1 is its last iteration. None: all iterations.
      when: a predicate, called once with a symbolic tensor. It returns a boolean scalar tensor, and a value is returned
        if it holds. It may use constants, but no other tensors.

    Returns:
      The specification. A session compiles the step once for each specification, so a program that runs the step often
      makes the specification once.

    Raises:
      TypeError: an argument of another type.
      ValueError: no tensor is named, or no iteration.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     n = hr.placeholder(hr.int32, (), name="n")
      ...     def body(i, x):
      ...         return i + 1, hr.identity(x * 2, name="double")
      ...     i, x = hr.while_loop(lambda i, x: i < n, body, (0, 1), name="loop")
      >>> spec = hr.watch("loop/double", iterations=[0, -1])
      >>> value, watched = hr.Session(graph=g).run(x, {n: 10}, watch=spec)
      >>> [(r.path, r.iteration, int(r.value)) for r in watched["loop/double"]]
      [((('loop', 0),), 0, 2), ((('loop', 9),), 9, 1024)]
    """
    named: tuple[Any, ...] = (what,) if isinstance(what, (str, tensor_type.Tensor)) else tuple(what)
    if not named:
        raise ValueError("hr.watch needs a tensor or a name")
    for each in named:
        if isinstance(each, Operation) or not isinstance(each, (str, Tensor)):
            raise TypeError(f"hr.watch takes symbolic tensors and their names, got {each!r} ({type(each).__name__})")
    if when is not None and not callable(when):
        raise TypeError(f"when={when!r} must be a function of the value that returns a boolean tensor")
    return Watch(named, _iterations(iterations), when)


def _iterations(given: Any) -> tuple[int, ...] | range | None:
    if given is None or (isinstance(given, range) and len(given) and min(given[0], given[-1]) >= 0):
        return given
    try:
        return (operator.index(given),)
    except TypeError:
        pass
    try:
        numbers = tuple(sorted(map(operator.index, set(given))))
    except TypeError as e:
        raise TypeError(f"iterations={given!r} must be an integer or a sequence of integers") from e
    if not numbers:
        raise ValueError("iterations=[] selects no value; leave it out for all iterations")
    return numbers


@record(frozen=True, slots=True, eq=False)
class WatchedValue:
    """A value from inside of a step.

    Attributes:
      path: the frames around the value with their iterations, outermost first: (name of the loop, iteration) for a
        loop, ("function@call", 0) for the call of a library function by the operation `call`.
      iteration: the iteration of the innermost loop, in which the value was computed; 0 outside of loops. A call of a
        recursive function begins with 0 again.
      value: the value.
    """

    path: FramePath
    iteration: int
    value: Any


# A specification, and a function that returns the records that it selects.
Reading: TypeAlias = tuple[Watch, Callable[[], list[WatchedValue]]]


class Watched(Mapping[str, list[WatchedValue]]):
    """Watched values of a run, by the names of their tensors.

    A key is a name ("while/h:0"), or a tensor of the graph. In a name ":0" can be left out. The records of a tensor are
    made when they are first asked for.

    Args:
      read: for each name, the specifications that select it with functions that return the records.
      names: the names of tensors.
    """

    def __init__(self, read: Mapping[str, Sequence[Reading]], names: Mapping[Tensor, str]) -> None:
        self._read = read
        self._names = names
        self._records: dict[str, list[WatchedValue]] = {}

    def of(self, specs: Collection[Watch]) -> Watched:
        """Returns the values that some of the specifications of the run select."""
        some = {name: [r for r in found if r[0] in specs] for name, found in self._read.items()}
        return Watched({name: found for name, found in some.items() if found}, self._names)

    def __getitem__(self, key: str | Tensor) -> list[WatchedValue]:
        name = key if isinstance(key, str) else self._names.get(key) or f"{canonical(key.op)}:{key.index}"
        name = name if name in self._read else f"{name}:0"
        found = self._records.get(name)
        if found is None:
            if name not in self._read:
                raise KeyError(f"{key!r} was not watched; watched: {', '.join(self._read)}")
            found = self._records[name] = [r for _, read in self._read[name] for r in read()]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name!r}: {len(found)} values" for name, found in self.items())
        return f"Watched({{{counts}}})"

"""Program: the instructions of a step, as a code generator prints them.

A `Program` is a tree of blocks. A block is a sequence of instructions, and each instruction reads and defines *values*:

    %3 float32[4, 16] array = product plain plain (%1, %2)      matmul
    %4 float32[4, 16] array = map tanh($0) into $0 (%3)         tanh
    drop %3

A value is defined once and has a dtype, a shape, a representation and a storage. Operations that only forward a value
(`Identity`, calls of functions, parameters of branches, loop constants) define none: their tensors are the same value.
So a printer needs no knowledge of graphs. Operations that own graphs are instructions with blocks: `Branches`, `Loop`
and, for functions that call themselves, `Call`.

`build` makes a program of the regions of a step. Then passes decide what printers would otherwise decide line by line:
`fusion` (groups of maps), `lifetimes` (where a value ends), `buffers` (which buffer takes a result) and `checks`.
`verify` checks a program between passes, and `text` prints it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.records import record

if TYPE_CHECKING:
    from headrace.device_arrays import ArrayMemory
    from headrace.dtypes import DType
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.kernel import Kernel
    from headrace.schedule.regions import Region
    from headrace.schedule.select import KernelCall, ListOperation, Map, Move
    from headrace.shapes import Shape

#: How code holds a value: "scalar" (a numpy scalar of static rank 0), "array" (an array, or a numpy scalar if the rank
#: is not static), "counter" (a Python int that stands for an integer scalar), "list" (a list that is changed in place),
#: "rows" (an array whose rows are the elements of a list that never changes), "object" (variants, resources, strings)
#: or "reference" (the state of a variable, read at each use).
Representation: TypeAlias = Literal["scalar", "array", "counter", "list", "rows", "object", "reference"]

#: Where the memory of a value comes from: "argument" (the caller of the step), "constant" (known before the step runs),
#: "fresh" (made by the defining instruction for this value alone) or "shared" (possibly memory of other values: a view,
#: an element of a list, the result of a kernel that may return its input).
Storage: TypeAlias = Literal["argument", "constant", "fresh", "shared"]


@record(eq=False, slots=True)
class Value:
    """Result of an instruction, argument, constant, or parameter of a block.

    Attributes:
      number: The number of the value in its program.
      tensor: The tensor that the value was first, for names in messages.
      dtype: The dtype; that of the elements for the representation "reference".
      shape: The static shape, with None for unknown dimensions; None for an unknown rank.
      representation: How code holds the value.
      storage: Where its memory comes from.
      constant: The array, numpy scalar or handle of a constant, as kernels take it; else None.
      is_natural: Whether a "counter" is certain not to be negative.
      home: The value whose variable this one overwrites when it is computed: a loop variable or the result of a
        conditional (`homes`); else None.
    """

    number: int
    tensor: Tensor
    dtype: DType
    shape: Shape
    representation: Representation
    storage: Storage
    constant: Any = None
    is_natural: bool = False
    home: Value | None = None

    @property
    def is_static(self) -> bool:
        """Whether rank and dimensions are known."""
        return shapes.is_full(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes of a static array of numbers; -1 if it is unknown."""
        is_known = self.dtype not in dtypes.OBJECT and shapes.is_full(self.shape)
        size = shapes.size(self.shape) if is_known else None
        return -1 if size is None else size * self.dtype.numpy.itemsize

    @property
    def holds_much(self) -> bool:
        """Whether the value may hold more memory than a number, so that its end matters."""
        return self.shape != () or self.dtype in dtypes.OBJECT

    def __repr__(self) -> str:
        return f"%{self.number}"


@record(frozen=True, slots=True)
class Step:
    """Application of one ufunc in a map.

    Attributes:
      ufunc: The ufunc.
      args: Its arguments: an int n >= 0 is input n of the instruction, an int n < 0 is step -n - 1 of the map, and a
        tuple of one element is a number.
      into: The buffer that takes the result, numbered like an argument; None for a new one.
      dtype: The dtype of the result.
      shape: The static shape of the result; None if it is not static.
    """

    ufunc: np.ufunc
    args: tuple[int | tuple[Any], ...]
    into: int | None
    dtype: np.dtype
    shape: tuple[int, ...] | None


@record(frozen=True, slots=True)
class Convert:
    """Conversion of a counter to a numpy scalar of its dtype."""


@record(frozen=True, slots=True)
class Read:
    """Value of a reference at this time."""


Work: TypeAlias = "Map | Move | ListOperation | KernelCall | Convert | Read"


@record(eq=False, slots=True)
class Instr:
    """Instruction of a block.

    Attributes:
      op: The operation that the instruction computes, for errors.
      inputs: The values that it reads, by position. Those that its blocks read are not among them.
      outputs: The values that it defines, by position; None for outputs that no instruction reads.
      captures: The values from outside that its blocks read, as far as they are no constants.
      drops: Values of its block that end with this instruction, which is their last reader; set by `lifetimes`.
    """

    op: Operation
    inputs: tuple[Value, ...]
    outputs: tuple[Value | None, ...]
    captures: tuple[Value, ...] = dataclasses.field(default=(), kw_only=True)
    drops: tuple[Value, ...] = dataclasses.field(default=(), kw_only=True)

    @property
    def made(self) -> tuple[Value, ...]:
        """The values that the instruction defines."""
        return tuple([v for v in self.outputs if v is not None])

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values of the surrounding block that the instruction or its blocks read, each once."""
        return tuple(dict.fromkeys((*self.inputs, *self.captures)))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the instruction."""
        return ()


@record(eq=False, slots=True)
class Compute(Instr):
    """Instruction without blocks.

    Attributes:
      work: The selected instruction (`select`).
      steps: The ufuncs of a map of arrays with their buffers, in order; set by `buffers`.
      is_checked: Whether results are compared with the static types of their tensors; set by `checks`.
      most_bytes: For a push to a list of residuals that may become too large, the bytes that it may hold; set by
        `checks`.
    """

    work: Work
    steps: tuple[Step, ...] = dataclasses.field(default=(), kw_only=True)
    is_checked: bool = dataclasses.field(default=False, kw_only=True)
    most_bytes: int | None = dataclasses.field(default=None, kw_only=True)


@record(eq=False, slots=True)
class Block:
    """Sequence of instructions.

    Attributes:
      instrs: The instructions, in order.
      results: The values that the owner of the block takes: results of a branch, next values of loop variables.
      region: The region that the block was made of.
    """

    instrs: list[Instr]
    results: tuple[Value, ...]
    region: Region


@record(eq=False, slots=True)
class Branches(Instr):
    """Conditional: runs one of its blocks.

    Input 0 is the predicate of an `If` or the index of a `Case`. The results of each block become the outputs.

    Attributes:
      branches: The blocks: else and then of an `If`, or those of a `Case` in order. An index out of range selects the
        last one.
      is_case: Whether it is a `Case`.
    """

    branches: tuple[Block, ...]
    is_case: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The branches."""
        return self.branches


@record(eq=False, slots=True)
class Variable:
    """Loop variable.

    Attributes:
      initial: The value before the loop.
      param: The value in an iteration.
      next: The value at the end of an iteration, which is `param` of the next one.
      final: The value after the loop; None if no instruction reads it. Without iterations it is `initial`.
    """

    initial: Value
    param: Value
    next: Value
    final: Value | None


@record(frozen=True, slots=True)
class Limit:
    """Upper bound of the counter of a loop.

    Attributes:
      first: The value of the counter that this bound limits, in iteration 0.
      limit: The value that this counter does not reach, or does not pass if `is_inclusive`.
      is_inclusive: Whether the counter may be equal to the limit.
      is_own: Whether the counter is that of the loop, and not another one that advances with it.
    """

    first: Value
    limit: Value
    is_inclusive: bool
    is_own: bool


@record(frozen=True, slots=True)
class Trip:
    """Trip count of a loop that only counts.

    Attributes:
      counter: The counter in an iteration, of the representation "counter".
      first: Its value in iteration 0.
      limits: At least one limit; the loop ends with the first that is reached.
      final: The counter after the loop, a scalar; None if no instruction reads it.
      most: The largest possible number of iterations, if it is known.
    """

    counter: Value
    first: Value
    limits: tuple[Limit, ...]
    final: Value | None
    most: int | None


@record(eq=False, slots=True)
class Loop(Instr):
    """Loop: runs its body while its condition holds, or a number of times.

    Its outputs are the final values of its variables, and that of its counter. A loop constant is the same value
    outside and inside. It has no inputs: initial values and limits are among `captures`.

    Attributes:
      variables: The loop variables, except the counter of a loop that only counts.
      body: The body; its results are the next values of `variables`, in order.
      test: The block that computes the condition, its only result; None if the loop only counts.
      trip: The trip count of a loop that only counts, else None.
    """

    variables: tuple[Variable, ...]
    body: Block
    test: Block | None
    trip: Trip | None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The condition, if there is one, and the body."""
        return (self.body,) if self.test is None else (self.test, self.body)


@record(eq=False, slots=True)
class Call(Instr):
    """Call of a function that calls itself.

    Attributes:
      function: The name of the function in `Program.functions`.
    """

    function: str


@record(eq=False, slots=True)
class Group(Instr):
    """Maps over large arrays that run one slice at a time (`tiling`).

    Its inputs are the values that the maps read and do not define. Its outputs are those results of the maps that have
    readers behind the group.

    Attributes:
      block: The maps; its results are the outputs.
      shape: The shape of all results.
      axis: The axis that is cut: the first one with more than one element.
      step: The number of elements of the axis in a slice.
      given: For each output the input whose array it takes; None for a new array.
    """

    block: Block
    shape: tuple[int, ...]
    axis: int
    step: int
    given: tuple[Value | None, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block of the maps."""
        return (self.block,)

    def restrict_to(self, wanted: Sequence[Value], given: Mapping[Value, Value]) -> None:
        """Keeps the outputs `wanted` alone; `given` has the inputs whose arrays some of them take."""
        results = tuple(wanted)
        self.outputs = results
        self.block = dataclasses.replace(self.block, results=results)
        self.given = tuple([given.get(v) for v in wanted])


@record(eq=False, slots=True)
class Section(Instr):
    """Instructions that are one call of other code, such as machine code.

    Attributes:
      block: The instructions; its results are the outputs.
      function: The function, called with a function that polls call (or None) and the inputs. It returns the output if
        there is one, else a tuple.
      polls: Whether it may run long, so that it must poll whether the step was cancelled.
      uses_blas: Whether it may call the BLAS library.
      uses_threads: Whether several threads may run parts of an operation.
      flushes: Whether it has loops or products, and so flushes denormal numbers to zero during the call.
      lists: Dtype and shape of the elements of lists among inputs and outputs. The function takes and returns them as
        arrays whose rows are the elements.
    """

    block: Block
    function: Callable[..., Any]
    polls: bool
    uses_blas: bool
    uses_threads: bool
    flushes: bool
    lists: Mapping[Value, tuple[np.dtype, tuple[int, ...]]]


@record(eq=False, slots=True)
class Segment(Instr):
    """Calls of a device's kernels, as one function of its arrays (`segments`).

    Attributes:
      block: The calls; its results are the outputs.
      memory: The memory of the device.
    """

    block: Block
    memory: ArrayMemory

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block of the calls."""
        return (self.block,)


@record(eq=False, slots=True)
class Function:
    """Function that calls itself.

    Attributes:
      name: The name of the function.
      params: Its parameters.
      block: Its instructions and results.
    """

    name: str
    params: tuple[Value, ...]
    block: Block


@record(frozen=True, slots=True)
class Coverage:
    """Part of a program that sections compute.

    Attributes:
      inside: The number of instructions in sections.
      all: The number of all instructions, sections not counted.
      reasons: The number of instructions outside of sections, by reason.
    """

    inside: int
    all: int
    reasons: Mapping[str, int]


@record(frozen=True, slots=True)
class AtOnce:
    """Function of a step that is one call of machine code.

    Attributes:
      function: The function of a function that polls call, the values that the user feeds, in the order of the
        parameters, the values that the kernels before the section read from the state, and `constants`. It copies fed
        values if necessary, and returns a tuple of the fetches, or NotImplemented if it does not take the values as
        they are.
      constants: The last arguments.
    """

    function: Callable[..., Any]
    constants: tuple[Any, ...]


@record(eq=False, slots=True)
class Program:
    """Instructions of a step.

    Attributes:
      params: The values of the feeds.
      block: The instructions; its results are the fetches.
      functions: The functions that call themselves, by name.
      values: All values, by number.
      resources: The operations of the root whose handles are constants, with the kernels that make their resources.
      coverage: The part that sections compute; None if no target was asked for sections.
      source: Returns the source of the sections, such as LLVM's assembly language; None if there are no sections.
      at_once: The function of a program that is one section behind reads of state; None for other programs.
    """

    params: tuple[Value, ...]
    block: Block
    functions: dict[str, Function]
    values: list[Value]
    resources: tuple[tuple[Operation, Kernel], ...] = ()
    coverage: Coverage | None = None
    source: Callable[[], str] | None = None
    at_once: AtOnce | None = None

    def walk(self) -> Iterator[Block]:
        """All blocks, each before those that it contains."""
        for function in self.functions.values():
            yield from nested(function.block)
        yield from nested(self.block)


def nested(block: Block) -> Iterator[Block]:
    """`block` and all blocks in it, each before those that it contains."""
    waiting = [block]
    while waiting:
        block = waiting.pop()
        yield block
        waiting += [b for instr in reversed(block.instrs) for b in reversed(instr.blocks)]

"""Thresholds that trade speed against memory or compile time, in the order of the pipeline.

The comment above each threshold states its decision, then its unit and the source of its value:

* `Measured`: the file in parentheses has the figures, under the quoted heading or row.
* `Estimate`: no figures of this number are recorded. The benchmark row or test in parentheses shows its effect.
* `TensorFlow`: the value that TensorFlow has.
* `Bound`: protection against huge or hostile input; programs of ordinary size stay far below it.

Modules read a threshold at use, as `thresholds.NAME`, so that a test can replace it. Limits of file formats, of Python
and of error texts stay in their modules. `tests/test_thresholds.py` checks the comments and that each entry is used.
"""

from __future__ import annotations

from typing import Final

# *** Building graphs: api, eager, ir ***

# Size below which `hr.zeros` and `hr.ones` of a static shape are constants instead of a Fill.
# Unit: elements. TensorFlow (`_constant_if_small` of its array_ops).
CONSTANT_FILL_ELEMENTS: Final = 1000

# Size of a value up to which shape inference computes it.
# Unit: elements. Estimate (tests/ir/test_infer.py).
INFERENCE_ELEMENTS: Final = 1024

# Operations in a chain through which shape inference computes a value.
# Unit: operations. Bound.
INFERENCE_DEPTH: Final = 64

# Operations in a chain through which the range of an integer is derived.
# Unit: operations. Bound.
VALUE_RANGE_DEPTH: Final = 16

# Repetitions of shape inference over a loop body. Each repetition that changes a shape removes a dimension from it.
# Unit: repetitions. Estimate (tests/api/test_while_loop.py).
LOOP_SHAPE_ROUNDS: Final = 3

# Floating-point operations an element up to which recomputing a value is preferred to keeping an array.
# Unit: flops an element. Estimate (benchmarks/gradient_memory.py).
CHEAP_FLOPS: Final = 4

# Pairs of `hr.case` that become nested conditionals; more become one SwitchCase. The nested form grows with the square.
# Unit: pairs. Bound (tests/api/test_cond.py).
NESTED_CASE_PAIRS: Final = 100

# Calls of a `py_function` that are kept, with the tensors they recorded, for the gradient.
# Unit: calls. Bound (tests/ops/test_py_function.py).
PY_FUNCTION_CALLS: Final = 64

# Operations that eager execution keeps prepared; the least recently used ones are dropped first.
# Unit: prepared operations. Bound (tests/eager/test_builder.py).
EAGER_PREPARED_OPS: Final = 4096

# Integers, and short lists of them, whose scalars and vectors are kept for the calls of eager ops.
# Unit: integers or lists. Bound.
EAGER_INTEGERS: Final = 1024

# Integers of a list whose vector is kept.
# Unit: integers. Estimate.
SHORT_INTEGER_LIST: Final = 16

# Indices of ints and slices whose begins, ends, strides and masks are kept.
# Unit: indices. Bound.
STATIC_INDICES: Final = 1024

# Ranks whose vectors of all axes are kept for reductions.
# Unit: ranks. Bound.
RANKS_OF_REDUCTIONS: Final = 32

# Operations in the graphs of the compiled gradients of recorded eager ops that are kept, about 5 kB for each.
# Unit: operations. Bound (tests/eager/test_tape.py).
TAPE_GRADIENT_OPS: Final = 20_000

# Elements of a recorded integer tensor up to which it is a constant of the gradient, until it varies.
# Unit: elements. Estimate (tests/eager/test_tape.py).
TAPE_CONSTANT_ELEMENTS: Final = 16

# Reads of watched values that the warning of a tape without gradients names.
# Unit: lines. Bound (tests/eager/test_tape.py).
TAPE_NAMED_READS: Final = 3

# Length of the parsed files that autograph keeps for the functions converted next. A tree takes 75 bytes a character.
# Unit: characters. Bound.
PARSED_FILES: Final = 500_000

# Converted functions that autograph keeps; the least recently used ones are converted again.
# Unit: functions. Bound.
CONVERTED_FUNCTIONS: Final = 4096

# Tracings of a loop whose variables change their dtypes or shapes until they are stable.
# Unit: tracings. Bound (tests/autograph/test_control.py).
LOOP_TRACINGS: Final = 8

# Iterations of the first stretch of a rematerialized loop whose stretches grow.
# Unit: iterations. Estimate (benchmarks/gradient_memory.py).
FIRST_STRETCH_ITERATIONS: Final = 8

# Trip count that `save="auto"` assumes for a loop without `maximum_iterations`.
# Unit: iterations. Estimate.
AUTO_SAVE_TRIPS: Final = 1000

# Graphs, and levels of nesting, in which the order of stateful operations looks for effects. Beyond them it assumes
# an effect on every resource.
# Unit: graphs; levels. Bound.
ORDER_GRAPHS: Final = 10_000
ORDER_DEPTH: Final = 100

# Operations that a step may fire by calls that are made in any case. Ten million take the executor about a minute; a
# function library of a few lines can ask for 2**40.
# Unit: operations. Bound.
STEP_OPERATIONS: Final = 10_000_000

# *** Gradients: grad ***

# Operations that repeated calls may add to a gradient before the gradient of a call is a function of its own. The
# gradients of 2,000 operations take about a second.
# Unit: operations. Estimate (tests/grad/test_growth.py).
GRADIENT_REPEATED_OPS: Final = 2_000

# Levels of functions that call each other before the gradient of a call is a function of its own. The work on graphs
# inside graphs is quadratic in the levels (0.4 s for 100), that on functions is linear.
# Unit: levels. Measured (docs/reference/benchmarks.md "Costs that must stay linear").
GRADIENT_CALL_LEVELS: Final = 100

# Cheap operations in a chain that a backward graph recomputes. The value at the start of a longer chain is kept.
# Unit: operations. Estimate (benchmarks/gradient_memory.py).
RECOMPUTED_CHAIN: Final = 8

# *** Copying functions and loops into a graph: optimize, lower, compile ***

# Operations that calls may add to one graph by inlining. Beyond that, calls run in frames of their own. 100,000
# operations take about ten seconds to optimize and compile.
# Unit: operations. Bound (tests/compile/test_limits.py).
EXPANDED_OPERATIONS: Final = 100_000

# Nesting of calls up to which their functions are copied.
# Unit: levels. Bound (tests/lower/test_deep.py).
EXPANDED_DEPTH: Final = 20

# Operations of functions that are renamed to the names that lowering gives them.
# Unit: operations. Bound (tests/ir/edit/test_lowered_names.py).
RENAMED_OPERATIONS: Final = 10_000

# *** Optimizing: optimize ***

# Size up to which a folded constant or a hoisted value may be larger than its operands.
# Unit: bytes. Estimate (tests/optimize/test_constant_folding.py).
GROWN_BYTES: Final = 1 << 16

# Ratio of result to operands up to which a larger value is folded, hoisted or kept for a loop that is split.
# Unit: ratio. Estimate (tests/optimize/test_loop_reduction_sinking.py).
GROWTH: Final = 4

# Rows or columns of each part of a joined matrix from which the parts are multiplied one by one. The gradient of 200
# iterations with a state of 4x16 took 0.95 of the time; products of narrow matrices are slower for each number.
# Unit: rows. Estimate (tests/optimize/test_loop_reduction_sinking.py).
PRODUCT_PART: Final = 8

# Size of an array up to which the call of a kernel costs more than the work on its elements. Passes that replace many
# calls by one at the price of more work apply up to it.
# Unit: bytes. Measured (docs/internals/fusion.md "Horizontal fusion").
CALL_BOUND_BYTES: Final = 1 << 14

# Size of constants that common subexpression elimination compares by value.
# Unit: bytes. Estimate (tests/optimize/test_cse.py).
COMPARED_CONSTANT_BYTES: Final = 4096

# Tensors that are examined to write one index of an array as a linear function of the counter.
# Unit: tensors. Bound.
INDEX_TENSORS: Final = 100

# Edges that may replace one control edge.
# Unit: edges. Estimate (tests/optimize/test_control_edges.py).
REPLACING_EDGES: Final = 4

# Readers of a constant up to which its control inputs move to them.
# Unit: operations. Estimate (tests/optimize/test_control_edges.py).
CONSTANT_READERS: Final = 16

# Operations that are examined to prove that a control edge is implied.
# Unit: operations. Bound (tests/optimize/test_control_edges.py).
IMPLIED_EDGE_SEARCH: Final = 64

# Control edges that the pass for effects adds to one operation. More go through a NoOp that other operations share.
# Unit: edges. Estimate (tests/optimize/test_effects.py).
EFFECT_EDGES: Final = 4

# Operations of both bodies together up to which two loops are merged.
# Unit: operations. Estimate (tests/optimize/test_loop_fusion.py).
FUSED_LOOP_OPS: Final = 64

# Preceding loops that a loop is compared with for merging.
# Unit: loops. Bound.
FUSED_LOOP_DISTANCE: Final = 8

# Repetitions of inference over a loop body, nesting of loops and repetitions over lists, for the shapes of one feed.
# Unit: repetitions; levels; repetitions. Bound (tests/optimize/test_specialize.py).
SPECIALIZE_ROUNDS: Final = 4
SPECIALIZE_DEPTH: Final = 4
SPECIALIZE_LIST_ROUNDS: Final = 6

# *** Placing: place ***

# One core of a present machine with numpy's BLAS. Measured costs of operations replace these figures; only their order
# matters: an operation costs microseconds, a transfer tens of them.
# Unit: flops a second; bytes a second; seconds; seconds; bytes a second. Estimate (benchmarks/placement.py).
DEVICE_FLOPS: Final = 4e10
DEVICE_BANDWIDTH: Final = 8e9
OPERATION_OVERHEAD: Final = 2e-6
LINK_LATENCY: Final = 5e-5
LINK_BANDWIDTH: Final = 2e10

# The same for devices of type TORCH: the processor is the CPU's and each call takes longer. The memory is the host's,
# and copies of any size take as long as one of 8 bytes.
# Unit: seconds; seconds; bytes a second. Measured (docs/reference/benchmarks.md "Devices of other array libraries").
TORCH_OVERHEAD: Final = 3e-6
TORCH_COPY_LATENCY: Final = 2e-6
TORCH_COPY_BANDWIDTH: Final = 1e13

# The same for devices of type GPU. None was measured: they follow data sheets, for float32 outside of matrix units,
# launches from Python, and copies of pageable memory over PCI Express.
# Unit: flops a second; bytes a second; seconds; seconds; bytes a second. Estimate (tests/place/test_accelerators.py).
GPU_FLOPS: Final = 1e13
GPU_BANDWIDTH: Final = 5e11
GPU_OVERHEAD: Final = 1e-5
GPU_COPY_LATENCY: Final = 2e-5
GPU_COPY_BANDWIDTH: Final = 6e9

# Assumptions of the cost model: trip count of a loop, length of a dimension and size of a string or another object that
# are unknown.
# Unit: iterations; elements; bytes. Estimate (tests/place/test_costs.py).
UNKNOWN_TRIPS: Final = 10
UNKNOWN_DIMENSION: Final = 32
OBJECT_BYTES: Final = 64

# Operations scheduled altogether while the placer tries to move groups.
# Unit: operations. Bound (benchmarks/placement.py).
PLACEMENT_TRIES: Final = 50_000

# Ratio of makespans below which the placer moves a group.
# Unit: ratio. Estimate (benchmarks/placement.py).
PLACEMENT_GAIN: Final = 0.99

# Additions in a chain through which the placer finds a trip count. Each may double the work.
# Unit: operations. Bound.
PLACED_TRIPS_DEPTH: Final = 8

# Duration from which an operation counts as long: a Recv may be delayed for it, and it has a thread of its own.
# Unit: seconds. Estimate (benchmarks/devices.py).
LONG_OPERATION: Final = 1e-4

# *** Partitioning: partition ***

# Size up to which each device that reads a constant has a copy of it. The cost model assumes the same.
# Unit: bytes. Estimate (tests/partition/test_partition.py).
COPIED_CONSTANT_BYTES: Final = 1 << 16

# Size up to which integers stay on the host in a step on the host and a device: kernels read them as axes and shapes.
# Unit: elements. Bound.
HOST_ELEMENTS: Final = 16

# *** Lowering: lower ***

# Size from which a collective is a ring instead of a tree. Handing over a tensor costs about 50 µs, and memory copies
# a few bytes a nanosecond, so at this size the bytes begin to cost as much as the handing over.
# Unit: bytes. Estimate (docs/how-to/collectives.md "RING_BYTES").
RING_BYTES: Final = 1 << 16

# *** Compiling: compile ***

# Operations that compute something which a fused region needs. A smaller one costs as much as its nodes.
# Unit: operations. Estimate (tests/compile/test_fused_regions.py).
FUSED_REGION_OPS: Final = 3

# Passes over the graph that divide the loop variables into classes of deadness. Then each one left has its own class.
# Unit: passes. Bound.
DEADNESS_PASSES: Final = 12

# Repetitions of lowering for outlining. Then no structure of the step stays structured.
# Unit: repetitions. Bound.
OUTLINING_ROUNDS: Final = 16

# Additions in a chain through which outlining finds a trip count.
# Unit: operations. Bound (tests/compile/test_outlining.py).
OUTLINED_TRIPS_DEPTH: Final = 32

# Sets of fed shapes that have code of their own. Later sets run the code for any shape.
# Unit: sets of shapes. Bound (tests/compile/test_variants.py).
SHAPE_VARIANTS: Final = 32

# Rows of one number in place of a scalar operand of `minimum` and `maximum`: the fewest elements that pay, a sufficient
# number and the largest.
# Unit: elements. Measured (docs/internals/fusion.md "Cost of an operation").
SCALAR_ROW_FEWEST: Final = 64
SCALAR_ROW_ENOUGH: Final = 4096
SCALAR_ROW_MOST: Final = 1 << 16

# Size of arrays from which elementwise groups are tiled, and the size of a slice.
# Unit: bytes. Measured (docs/internals/fusion.md "Slices").
TILED_BYTES: Final = 4 << 20
TILE_BYTES: Final = 256 << 10

# Size of results that may move out of a tiled group.
# Unit: bytes. Estimate (tests/schedule/test_tiling.py).
MOVED_BYTES: Final = 4 << 10

# Ufuncs that a tiled group needs.
# Unit: ufunc calls. Estimate (tests/schedule/test_tiling.py).
TILED_UFUNCS: Final = 3

# Length of an expression that is written inside another one.
# Unit: characters of source. Estimate (tests/schedule/test_scalar_expressions.py).
INLINE_EXPRESSION: Final = 60

# Branches in one chain of `elif`. A longer chain is slower than halves, and Python's compiler recurses at each.
# Unit: branches. Estimate (tests/compile/test_limits.py).
ELIF_CHAIN: Final = 8

# Iterations of a compiled loop before its first look at cancellation and the clock.
# Unit: iterations. Estimate (tests/compile/test_looking.py).
FIRST_LOOK: Final = 16

# Iterations of short loops between two looks.
# Unit: iterations. Estimate (tests/compile/test_looking.py).
SHORT_LOOP_LOOK: Final = 512

# Time between two looks below which the interval doubles.
# Unit: seconds. Estimate (tests/compile/test_looking.py).
LOOK_INTERVAL: Final = 0.02

# Elements by which a write may enlarge a list, in addition to twice its length, without the check of the kernel.
# Unit: elements. Bound (tests/schedule/test_growing_lists.py).
UNCHECKED_GROWTH: Final = 1024

# Calls of a device's kernels that become one function of its arrays; one call alone would not be faster.
# Unit: calls. Estimate.
SEGMENT_CALLS: Final = 2

# *** Native code: targets/native ***

# Bytes of the caller's stack that calls of native functions may use before they continue in another thread, and the
# size of the stack of that thread. Python's threads have at least 1 MiB by default.
# Unit: bytes. Bound (tests/targets/native/test_calls.py).
NATIVE_STACK_CALLS: Final = 1 << 19
NATIVE_STACK_FAR: Final = 1 << 26

# Work between two polls of native code, by the printer's estimate. A poll takes about a microsecond.
# Unit: nanoseconds. Estimate (tests/targets/native/test_state.py).
NATIVE_POLL_WORK: Final = 1_000_000

# Work of a native loop between two polls, by the printer's estimate: a poll takes 1 to 2 ns.
# Unit: nanoseconds. Estimate (tests/targets/native/test_printer.py).
NATIVE_POLL_EACH: Final = 10_000

# Work between two timers of profiled native code, by the printer's estimate: a read of the clock takes 20 to 40 ns.
# Unit: nanoseconds. Estimate (tests/targets/native/test_timers.py).
PROFILED_WORK: Final = 300

# Laps that are timed to estimate the time of the timers of a profile.
# Unit: laps. Estimate (tests/observe/test_profile.py).
PROFILE_TRIALS: Final = 300

# Time of a call of a native function, more for each argument and result, and that of numpy for a ufunc of small arrays
# and an operator on scalars.
# Unit: nanoseconds each. Estimate (tests/targets/native/test_printer.py).
NATIVE_CALL: Final = 200
NATIVE_ARGUMENT: Final = 15
NUMPY_CALL: Final = 350
NUMPY_SCALAR: Final = 40

# Time in native code of a ufunc on a number in a register and on an element of an array, of moving an element, and of
# a multiplication and addition in a product.
# Unit: nanoseconds each. Estimate (docs/reference/native.md "Accuracy").
NATIVE_NUMBER: Final = 1.0
NATIVE_ELEMENT: Final = 0.2
NATIVE_MOVED: Final = 0.2
NATIVE_PRODUCT: Final = 0.01

# Time of an element of a window in a pooling by native code.
# Unit: nanoseconds. Estimate (docs/reference/native.md "Windows").
NATIVE_POOLED: Final = 0.1

# Elements of a nest, and instructions in the body of its loop, from which it computes several vectors in turns. A chain
# took 0.83 of the time for 24 operations, 0.82 for 60 and 0.52 for 150; the code is up to four times as long.
# Unit: elements; instructions. Measured (docs/reference/native.md "Loops over arrays").
INTERLEAVED_ELEMENTS: Final = 512
INTERLEAVED_INSTRUCTIONS: Final = 48

# Most vectors in turns: an operation takes four cycles, and the processor begins one in each. Instructions of an
# elementary function, and registers that an operation needs for its own results in between.
# Unit: vectors; instructions; registers. Estimate (tests/targets/native/test_interleaving.py).
INTERLEAVED_VECTORS: Final = 4
FUNCTION_INSTRUCTIONS: Final = 32
BETWEEN_OPERATIONS: Final = 2

# Size of the rows of the largest array that loops over strips process at once, the fewest rows, and the size of arrays
# from which it pays.
# Unit: bytes; rows; bytes. Measured (docs/reference/native.md "Loops over arrays").
STRIP_BYTES: Final = 1 << 16
STRIP_ROWS: Final = 4
STRIPPED_BYTES: Final = 1 << 20

# Size up to which a constant is a part of the code of a native region; a larger one is an input.
# Unit: bytes. Estimate (tests/targets/native/test_printer.py).
NATIVE_CONSTANT_BYTES: Final = 1024

# Size of an array of native code that may be on the stack, and of all such arrays of a function. Threads with small
# stacks run steps too.
# Unit: bytes; bytes. Bound (tests/targets/native/test_printer.py).
NATIVE_STACK_EACH: Final = 4096
NATIVE_STACK_ALL: Final = 1 << 15

# Memory of a list of native code after the first push. It doubles when it is full.
# Unit: bytes. Estimate (tests/targets/native/test_printer.py).
NATIVE_LIST_START: Final = 256

# Size of an array that may stay in memory longer, until the kernel that updates a variable by it is called behind
# native code.
# Unit: bytes. Estimate (tests/targets/native/test_ordering.py).
LATE_UPDATE_BYTES: Final = 1 << 16

# Memory that a list of native code gets before a loop that counts and pushes to it; beyond, it doubles.
# Unit: bytes. Estimate (tests/targets/native/test_printer.py).
NATIVE_RESERVED_BYTES: Final = 1 << 26

# Time for each byte of the result of a ufunc of arrays, most of which machine code saves: it keeps intermediate results
# in registers.
# Unit: nanoseconds a byte. Estimate (docs/internals/fusion.md).
NUMPY_BYTE: Final = 0.03

# Time of a run that machine code must save at least, by these estimates: a compilation takes 10 to 200 ms, as long as
# ten thousand runs that save 5 µs. Iterations of a loop whose trip count is not known.
# Unit: nanoseconds; iterations. Estimate (tests/targets/native/test_printer.py).
NATIVE_LEAST_SAVING: Final = 5_000
NATIVE_UNKNOWN_TRIPS: Final = 1000

# Memory of an arena of a native call, which keeps the pages that were used; and its start that has no large pages.
# Unit: bytes; bytes. Estimate (tests/targets/native/test_state.py).
NATIVE_KEPT_BYTES: Final = 1 << 27
NATIVE_SMALL_PAGES: Final = 1 << 22

# Calls that need more than the kept memory after which memory that none of them used goes back.
# Unit: calls. Estimate (tests/targets/native/test_state.py).
NATIVE_SPARE_CALLS: Final = 4

# Longest compilation of a module of native code; time for a loop that LLVM vectorizes, and for an elementary function
# in one; text that LLVM compiles in a second: of functions with such loops, of short functions without, and of others
# in final form (26 products and reductions: 1.0 to 3.3 MB, all but two above 1.4). Seconds of processor time with the
# estimate in parentheses, from before there was the final form: 69 loops of three LSTM layers with their gradients 1.2
# (1.8), 163 of transposes 3.3 (3.6), 90 of concatenations 2.1 (1.8), 43 with tanh 0.5 (1.0), scalars in loops of 378 kB
# 1.3 (1.4).
# Unit: seconds; seconds; seconds; bytes a second, for the last three. Estimate (tests/targets/native/test_engine.py).
NATIVE_COMPILE_SECONDS: Final = 2.0
NATIVE_LOOP_SECONDS: Final = 0.018
NATIVE_ELEMENTARY_SECONDS: Final = 0.005
NATIVE_VECTORIZED_BYTES: Final = 800_000
NATIVE_COMPILED_BYTES: Final = 400_000
NATIVE_FINAL_BYTES: Final = 1_500_000

# Text of a module, functions in final form not counted, up to which LLVM unrolls loops. A module of 109 kB, of an LSTM
# with gradient, was compiled in 287 ms of processor time without this and 402 with it, and its step takes as long. The
# gradient of an RNN 4x16 (45 kB) takes 1.02 of the time without.
# Unit: bytes. Measured (docs/reference/native.md "Properties").
NATIVE_UNROLLED_BYTES: Final = 60_000

# Threads that help an operation, in addition to the thread of its caller.
# Unit: threads. Bound.
NATIVE_THREADS: Final = 63

# Estimated time of work for which a thread is woken, and that of a part of the work; and parts of a map. A thread
# begins 10 to 30 µs after it was woken.
# Unit: nanoseconds; nanoseconds; parts. Measured (docs/reference/native.md "Threads").
NATIVE_THREAD_WORK: Final = 100_000
NATIVE_PART: Final = 50_000
NATIVE_PARTS: Final = 32

# Size of all files of the object cache, and of the largest one.
# Unit: bytes; bytes. Bound (tests/targets/native/test_object_cache.py).
OBJECT_CACHE_BYTES: Final = 1 << 28
CACHED_OBJECT_BYTES: Final = 1 << 25

# Age from which an unfinished file of the object cache may be removed: its writer has ended.
# Unit: seconds. Bound (tests/targets/native/test_object_cache.py).
ABANDONED_WRITE: Final = 3600.0

# Blocks of random numbers from which native code computes them; for fewer its import would take longer than they do.
# Unit: blocks. Measured (docs/reference/native.md "Kernels").
NATIVE_RANDOM_BLOCKS: Final = 256

# Draws of fewer blocks after which native code computes those too: numpy has taken about 20 ms for them, as long as
# native code takes to be loaded.
# Unit: draws. Measured (docs/reference/native.md "Kernels").
NATIVE_RANDOM_DRAWS: Final = 256

# Size m * k * n of a matrix product up to which its code is part of the calling loop.
# Unit: multiplications. Measured (docs/reference/native.md "Products").
INLINED_PRODUCT: Final = 2048

# Copies of equal nests and small products in a region, outside of loops and in them; further ones are calls.
# Unit: copies. Measured (docs/reference/native.md "Repeated work").
COPIES_OF_CODE: Final = 1
COPIES_IN_LOOPS: Final = 8

# Size m * k * n of a matrix product from which the BLAS library computes it.
# Unit: multiplications. Measured (docs/reference/native.md "Products").
NATIVE_LIBRARY_PRODUCT: Final = 1 << 27

# Elements of an array up to which an operation on its rows within a loop, such as softmax, is maps and reductions.
# Unit: elements. Measured (docs/reference/native.md "Operations on rows").
NATIVE_EXPANDED_ROWS: Final = 1 << 14

# Inner dimension of a block of a matrix product: rows of B that a panel reads stay in the caches up to the last tile.
# Unit: elements. Measured (docs/reference/native.md "Products").
PRODUCT_DEPTH: Final = 256

# Size of the buffer on the stack for a transposed panel of a matrix product.
# Unit: bytes. Bound (tests/targets/native/test_products.py).
PRODUCT_BUFFER: Final = 32 << 10

# Size m * k * n of a product with a transposed B from which few passes of LLVM suffice. With few passes 4 x 16 x 16
# took 2.0 of the time, 16 x 32 x 16 took 1.2, 64 x 16 x 64 took 1.08 and 32 x 64 x 32 took 1.02.
# Unit: multiplications. Measured (docs/reference/native.md "Products").
SMALL_PACKED_PRODUCT: Final = 1 << 16

# Ratio of the inner dimension to the number of rows from which a product with a transposed B consists of dot products.
# Unit: ratio. Estimate (tests/targets/native/test_products.py).
DOT_PRODUCT_TERMS: Final = 16

# Vectors in a row from which a reduction combines the lanes of each row alone.
# Unit: vectors. Estimate (tests/targets/native/test_reductions.py).
LONG_ROW_VECTORS: Final = 16

# Size of the part of a filter that a convolution reads for all positions before it reads the next part. It stays in the
# processor's second cache.
# Unit: bytes. Measured (docs/reference/native.md "Windows").
WINDOW_WEIGHTS: Final = 3 << 17

# Positions over which the gradient by the filter adds to one tile before it adds to the next one.
# Unit: positions. Measured (docs/reference/native.md "Windows").
WINDOW_POSITIONS: Final = 256

# Parts for several threads of the gradient by the filter, at most: each reads all gradients by the result.
# Unit: parts. Measured (docs/reference/native.md "Windows").
FILTER_GRADIENT_PARTS: Final = 4

# Multiplications of a convolution, and elements of all windows of a pooling, from which native code computes them. A
# geometry takes LLVM 0.03 to 0.1 s, which a thousand to two thousand calls of this size save compared with numpy.
# Unit: multiplications; elements. Measured (docs/reference/native.md "Windows").
NATIVE_CONVOLUTION: Final = 1 << 18
NATIVE_POOLING: Final = 1 << 14

# Numbers of an array from which native code computes single elementwise operations and operations on rows.
# Unit: elements. Measured (docs/reference/native.md "Kernels").
NATIVE_MAP: Final = 1 << 15

# Elements of a matrix from which it is transposed by tiles and not by element. On smaller ones numpy takes about as
# long as a native call.
# Unit: elements. Measured (docs/reference/native.md "Kernels").
NATIVE_TRANSPOSE: Final = 1 << 14

# Lanes of the vectors that are transposed together. With 32 a function compiles four times as long, and is no faster.
# Unit: lanes. Measured (docs/reference/native.md "Transposes").
TRANSPOSED_LANES: Final = 16

# Numbers of a row of a map whose inputs do not broadcast, and the dtypes and shapes whose maps a kernel keeps.
# Unit: elements; maps. Bound (tests/targets/native/test_maps.py).
NATIVE_MAP_ROW: Final = 4096
NATIVE_MAPS: Final = 64

# Numbers of an array from which native code reduces it, and numbers of the last axis from which numpy is as fast for
# maxima, minima and sums of columns.
# Unit: elements. Measured (docs/reference/native.md "Kernels").
NATIVE_REDUCTION: Final = 1 << 14
WIDE_REDUCTION: Final = 512

# Numbers of an array from which native code computes sums over its channels and maps with numbers of the channels.
# Unit: elements. Estimate (docs/reference/native.md "Kernels").
NATIVE_CHANNELS: Final = 1 << 14

# Numbers of updates from which native code adds them to rows by index.
# Unit: elements. Estimate (docs/reference/native.md "Kernels").
NATIVE_ROWS: Final = 1 << 12

# Numbers of resampled images, or of their gradients, from which native code computes them, and weighted elements of a
# line that are added to an element of the result together.
# Unit: elements; taps. Measured (docs/reference/native.md "Images").
NATIVE_RESAMPLED: Final = 1 << 12
RESAMPLED_TAPS: Final = 4

# Numbers of a variable from which native code computes the new values of an optimizer.
# Unit: elements. Measured (docs/reference/native.md "Kernels").
NATIVE_UPDATE: Final = 1 << 14

# Numbers that native sums and maps of channels take as one row if rows of channels are shorter, rows whose sums have
# the dtype of the numbers, and rows that are added before their sum is added to one in memory.
# Unit: elements; rows; rows. Estimate (docs/reference/native.md "Kernels").
CHANNEL_WIDTH: Final = 512
CHANNEL_ROWS: Final = 64
CHANNEL_ROWS_TOGETHER: Final = 4

# Terms of a native sum along a run of numbers that are added in their own dtype, before float64.
# Unit: terms. Bound (tests/targets/native/test_channels.py).
NATIVE_SUM_TERMS: Final = 2048

# Consecutive updates of a row that are added up before, and updates of a row from which all updates are sorted by row.
# Unit: updates; updates. Bound (tests/targets/native/test_rows.py).
ROW_UPDATES_TOGETHER: Final = 64
ROW_UPDATES_UNSORTED: Final = 512

# Functions of loops that are kept for the calls of kernels; each serves all sizes.
# Unit: functions. Bound.
NATIVE_LOOPS: Final = 512

# Channels of a group from which native code computes convolutions with several groups.
# Unit: channels. Estimate (docs/reference/native.md "Windows").
NATIVE_GROUP_CHANNELS: Final = 8

# Functions of convolutions and poolings that are kept for the calls of kernels.
# Unit: functions. Bound.
NATIVE_WINDOWS: Final = 512

# *** Running: execute ***

# Nodes that an executor fires between two looks at cancellation and the clock.
# Unit: nodes. Estimate (benchmarks/interpreter.py).
FIRINGS_PER_LOOK: Final = 256

# Dimension in place of an unknown one, where a product's size decides whether it may have several threads.
# Unit: elements. Estimate (tests/execute/test_threads_of_products.py).
PRODUCT_DIMENSION: Final = 64

# Work of a product from which a step with it may have several threads. The threads of a BLAS library spin while they
# wait for each other, so on a busy machine a divided product takes a time slice of the scheduler and not microseconds;
# below this size the second thread saves less than 0.2 ms on an idle one.
# Unit: flops. Measured (docs/reference/benchmarks.md "Threads of small products").
THREADED_PRODUCT: Final = 3.2e7

# Work of one firing from which it runs on the pool. Handing it over takes some hundred microseconds.
# Unit: flops. Estimate (benchmarks/threads.py).
POOL_FLOPS: Final = 2e6

# Interval at which a kernel that blocks is polled after its step was cancelled.
# Unit: seconds. Estimate (tests/execute/test_blocking.py).
CANCELLED_POLL: Final = 0.005

# Time that a step may wait without a line in the log (the default of the flag SILENT_WAIT).
# Unit: seconds. Estimate.
SILENT_WAIT: Final = 30.0

# Interval at which a wait of the main thread returns to Python, which then handles signals.
# Unit: seconds. Estimate (tests/execute/test_clock.py).
SIGNAL_POLL: Final = 0.5

# Threads of one session for kernels that block.
# Unit: threads. Bound.
BLOCKING_THREADS: Final = 4096

# Steps that one device runs at the same time. Each has a thread.
# Unit: steps. Bound.
DEVICE_STEPS: Final = 1024

# Weight of the latest measurement in the average duration of an operation.
# Unit: ratio. Estimate.
MEASUREMENT_WEIGHT: Final = 0.25

# Calls written out in the tag of a frame. Outer ones are replaced by their number.
# Unit: calls. Bound (tests/execute/test_calls.py).
TAG_CALLS: Final = 32

# *** State and memory: resources ***

# Elements of a list that are fetched back before they are needed.
# Unit: elements. Estimate (benchmarks/swap.py).
PREFETCHED_ELEMENTS: Final = 8

# Part of the memory limit of a device with memory of its own that is for temporary values: one in so many bytes.
# Unit: ratio. Estimate (docs/how-to/accelerators.md).
TEMPORARY_SHARE: Final = 4

# Values that one copy between memory and the spill file has at most.
# Unit: values. Estimate (benchmarks/swap.py).
COPIED_TOGETHER: Final = 32

# Interval at which a step that waits for such a copy looks at cancellation.
# Unit: seconds. Estimate (tests/resources/test_memory.py).
COPY_POLL: Final = 0.05

# Time for which a wait for a copy of a device asks whether it is done without a sleep, which takes at least 50 µs.
# It was not measured on CUDA.
# Unit: seconds. Estimate.
EVENT_SPIN: Final = 1e-4

# Sleep between two later questions, as a part of the time waited so far.
# It was not measured on CUDA.
# Unit: ratio. Estimate.
EVENT_SLEEP: Final = 0.1

# Notes of released values after which their memory is returned to the account.
# Unit: notes. Estimate (tests/resources/test_memory.py).
RELEASE_NOTES: Final = 256

# Size of the smallest array that is spilled: a page.
# Unit: bytes. Estimate (benchmarks/swap.py).
SPILLED_BYTES: Final = 4096

# Buffers of one system call.
# Unit: buffers. Estimate (benchmarks/swap.py).
SPILL_BUFFERS: Final = 64

# Ratio of the memory that an array with gaps spans to its size, up to which it is spilled as it lies.
# Unit: ratio. Estimate (tests/resources/test_spill.py).
SPILL_SPAN: Final = 4

# Elements of a persistent list that are changed one by one; more are changed by a rebuild.
# Unit: elements; also the ratio of the length to the number of changes. Estimate (benchmarks/growth.py).
LIST_CHANGES: Final = 32

# Length to which a tensor list may grow. A larger index counts as a mistake.
# Unit: elements. Bound (tests/resources/test_tensor_list.py).
LIST_ELEMENTS: Final = 1 << 27

# Blocks of random numbers up to which they are computed by Python's integers, and blocks computed by one numpy call.
# Unit: Philox blocks. Estimate (tests/resources/test_philox.py).
PHILOX_SCALAR_BLOCKS: Final = 8
PHILOX_CHUNK_BLOCKS: Final = 1 << 13

# Blocks of random numbers that an op in a loop computes ahead, as the numbers of its next firings. A firing that needs
# more than half of them is computed by itself.
# Unit: Philox blocks. Estimate (tests/resources/test_philox.py).
DRAWN_AHEAD_BLOCKS: Final = 512

# Time without work after which a worker thread ends.
# Unit: seconds. Estimate.
IDLE_THREAD: Final = 1.0

# Interval at which a request that waits for an element of a dataset looks whether its step was cancelled.
# Unit: seconds. Estimate.
DATASET_POLL: Final = 0.05

# Instructions of SQLite after which a query looks whether its step was cancelled.
# Unit: instructions. Estimate.
SQL_STEPS: Final = 10_000

# Elements that `prefetch` computes ahead if the program leaves their number open.
# Unit: elements. Estimate.
PREFETCHED: Final = 8

# Calls of the function of a parallel `map` at the same time, if the program leaves their number open.
# Unit: calls. Estimate.
PARALLEL_CALLS: Final = 8

# Duration from which on the function of a parallel `map` is called by other threads; a change of threads takes 20 to
# 40 µs.
# Unit: seconds. Estimate.
PARALLEL_CALL: Final = 100e-6

# Functions of datasets of which the compiled code is kept.
# Unit: functions. Estimate.
DATASET_FUNCTIONS: Final = 1024

# *** Kernels: opkit, ops ***

# Size of intermediate arrays of convolutions, pooling and normalization. They stay in the cache with their operands.
# Unit: bytes. Estimate (benchmarks/workloads.py "kernels").
CACHED_BYTES: Final = 1 << 20

# Size of the part of a batch for which the gradient of max pooling is computed at a time.
# Unit: bytes. Estimate (benchmarks/workloads.py "kernels").
MAX_POOL_BYTES: Final = 1 << 19

# Updates from which a scatter sorts them by index.
# Unit: updates. Estimate (benchmarks/workloads.py "kernels").
SORTED_UPDATES: Final = 64

# Size up to which a filled array is written out. A larger one is a view of one element.
# Unit: elements. Estimate.
WRITTEN_FILL_ELEMENTS: Final = 4096

# Size of the first operand from which `einsum` searches for a matrix product.
# Unit: elements. Estimate.
EINSUM_SEARCH_ELEMENTS: Final = 4096

# Size from which an optimizer's update runs over blocks, and the size of a block. The formulas make about ten arrays.
# Unit: elements. Estimate (tests/train/test_optimizers.py).
UPDATE_BLOCKED_ELEMENTS: Final = 1 << 18
UPDATE_BLOCK_ELEMENTS: Final = 1 << 15

# Rows of segments, windows of audio, values of a histogram and pixels of a projection that are processed at a time.
# Unit: elements; elements; elements; pixels. Estimate.
SEGMENT_ELEMENTS: Final = 1 << 20
AUDIO_ELEMENTS: Final = 1 << 20
HISTOGRAM_ELEMENTS: Final = 1 << 18
PROJECTED_PIXELS: Final = 1 << 16

# Random numbers that rejection sampling draws together, and words of a stream for candidate sampling.
# Unit: numbers; words. Estimate.
REJECTION_LANES: Final = 1 << 15
CANDIDATE_WORDS: Final = 256

# Threads of a session that read and write files.
# Unit: threads. Estimate.
FILE_THREADS: Final = 8

# Size of the parts in which compressed strings are unpacked.
# Unit: bytes. Estimate.
UNPACKED_BYTES: Final = 1 << 20

# *** Devices of other array libraries: devices ***

# Calls of a segment with one form up to its capture as a CUDA graph, graphs of a segment, forms that it counts, and the
# size of a value on the host that is part of a form.
# Unit: calls; graphs; forms; bytes. Estimate.
GRAPH_CALLS: Final = 3
GRAPHS: Final = 8
GRAPH_FORMS: Final = 64
GRAPH_HOST_BYTES: Final = 256

# *** Sessions, statistics, files, training ***

# Size of a fed array from which a step that keeps nothing reads it in place. A copy of a smaller one takes little time.
# Unit: bytes. Estimate (tests/session/test_feeds.py).
LENT_FEED_BYTES: Final = 1 << 16

# Prepared calls of `Session.run` that a session keeps, and fetches whose growth it counts; those used least recently
# are dropped first.
# Unit: calls. Bound (tests/session/test_step_cache.py).
SESSION_CALLS: Final = 256

# Traces that a jitted function keeps; the least recently used ones are dropped first.
# Unit: traces. Bound (tests/jit/test_function.py).
JIT_TRACES: Final = 256

# Traces for exact shapes before the next one leaves the dimensions open that vary.
# Unit: traces. Estimate.
JIT_EXACT_SHAPES: Final = 2

# Different Python numbers in calls of one kind that are a warning.
# Unit: sets of numbers. Estimate.
JIT_NUMBERS: Final = 3

# Functions whose variables are a part of the signature of a jitted function, those that it calls included.
# Unit: functions. Estimate.
JIT_SURROUNDING_FUNCTIONS: Final = 100

# Handles of resources that are kept, so that an operation need not make an equal one in each step.
# Unit: handles. Estimate.
MEMOIZED_HANDLES: Final = 1024

# Firings that run metadata lists one by one: of a step, and of one loop.
# Unit: firings. Bound (tests/session/test_metadata.py).
LISTED_FIRINGS: Final = 10_000
LISTED_LOOP_FIRINGS: Final = 1_000

# *** Looking into a running step: observe ***

# Values of the newest firings that a check of numbers or a breakpoint keeps: their bytes, and the number of firings.
# Unit: bytes; firings. Estimate.
HISTORY_BYTES: Final = 1 << 26
HISTORY_FIRINGS: Final = 100_000

# Newest firings of each device that the page of a breakpoint shows; the oldest are dropped.
# Unit: firings. Bound (tests/observe/test_live_recording.py).
LIVE_FIRINGS: Final = 4_000

# Entries of a list that the page of a breakpoint shows, and characters of a text.
# Unit: entries; characters. Bound (tests/observe/test_pause_document.py).
LIVE_ENTRIES: Final = 100
LIVE_TEXT: Final = 20_000

# Pause without a browser that shows its page: time until the terminal has a line about it, and until the step is
# cancelled.
# Unit: seconds. Estimate.
PAGE_SILENCE: Final = 60.0
PAGE_PATIENCE: Final = 3600.0

# Operations that the error of a NaN or Inf lists, from the failure backwards.
# Unit: operations. Estimate.
NUMERICS_CHAIN: Final = 12

# Events after which the trace of `headrace run` is cut. They take memory, and no viewer shows more.
# Unit: events. Bound (tests/test_cli.py).
TRACE_EVENTS: Final = 2_000_000

# Size of the parts in which a checksum is computed. Other threads wait during one part.
# Unit: bytes. Estimate.
CHECKSUM_BYTES: Final = 1 << 22

# Size from which a tensor of a mapped file is memory of the file; smaller ones are read.
# Unit: bytes. Estimate (benchmarks/loading.py).
MAPPED_BYTES: Final = 1 << 12

# Size of the parts in which data of a claimed length is read.
# Unit: bytes. Bound (tests/files/test_hostile_checkpoints.py).
READ_BYTES: Final = 1 << 20

# Size of pending events from which they are written before the flush interval has passed.
# Unit: bytes. Estimate.
PENDING_EVENT_BYTES: Final = 1 << 20

# *** Cluster: dist ***

# Time after which a worker whose parts of a step are idle reports this to the master. It doubles with each report that
# has no consequence, up to the second number.
# Unit: seconds. Estimate (benchmarks/cluster.py).
IDLE_REPORT: Final = 0.002
MOST_IDLE_REPORT: Final = 0.1

# Time for which a worker holds tokens of a step that it has not been told to start.
# Unit: seconds. Bound.
EARLY_TOKENS: Final = 60.0

# Time for which a master waits until all workers have confirmed that a step is aborted, before it answers the client.
# Unit: seconds. Bound.
ABORT_PATIENCE: Final = 5.0

# Time for which an interrupted client waits for the master's description of the step.
# Unit: seconds. Bound.
INTERRUPT_PATIENCE: Final = 2.0

# Time for which a new session waits until all workers are connected.
# Unit: seconds. Bound.
CLUSTER_PATIENCE: Final = 60.0

# Time that a client waits for the answer to a call which should take milliseconds.
# Unit: seconds. Bound.
CALL_PATIENCE: Final = 30.0

# Time that a client waits until the master has compiled a step.
# Unit: seconds. Bound.
COMPILE_PATIENCE: Final = 600.0

# Time from the sending of an empty token to its arrival in another process, if no link has measured it; and bytes per
# second that a link between two processes transfers.
# Unit: seconds; bytes per second. Estimate (benchmarks/cluster.py).
NETWORK_LATENCY: Final = 1e-4
NETWORK_BANDWIDTH: Final = 1e9

# Size of the message that measures the bandwidth of a link to a worker.
# Unit: bytes. Estimate (benchmarks/cluster.py).
BANDWIDTH_PROBE: Final = 1 << 19

# Trace events of one step that a worker keeps for its client; later ones are left out.
# Unit: events. Bound.
STEP_TRACE_EVENTS: Final = 1_000_000

# Values in the trace events of a step that a worker keeps by reference before it summarizes them, and watched values
# that it sends as they are.
# Unit: bytes. Bound (tests/dist/test_tracing.py).
STEP_TRACE_HELD: Final = 1 << 24
STEP_TRACE_VALUES: Final = 1 << 26

# Interval at which a server looks for tokens of steps that never began, at which a master looks at deadlines, at which
# it tries to reach a worker and a client a server, and at which a program looks at the worker processes that it
# started.
# Unit: seconds. Estimate.
EARLY_TOKEN_POLL: Final = 5.0
MASTER_POLL: Final = 0.25
WORKER_RETRY: Final = 0.5
SUPERVISION_POLL: Final = 0.2

# Pause before a worker on Ray that could not be started is tried again. It doubles up to the second number.
# Unit: seconds. Estimate (tests/dist/test_ray.py).
RESTART_PAUSE: Final = 0.5
LONGEST_RESTART_PAUSE: Final = 30.0

# Ended steps that a worker remembers, tokens of unknown steps that it holds, and bytes of their values.
# Unit: steps; tokens; bytes. Bound.
ENDED_STEPS: Final = 1 << 14
HELD_TOKENS: Final = 1 << 16
HELD_TOKEN_BYTES: Final = 1 << 28

# Size of the buffer into which small frames are received, and of the longest frame that is always received into it.
# Unit: bytes. Estimate (benchmarks/cluster.py).
RECEIVED_TOGETHER: Final = 1 << 18
SMALL_FRAME: Final = 1 << 16

# Paths of tokens that a process keeps in encoded and in decoded form, and the longest encoded path that is kept.
# Unit: paths; bytes. Estimate.
MEMOIZED_PATHS: Final = 4096
MEMOIZED_PATH_BYTES: Final = 512

# Size of unsent messages from which a link sends them at once, and of the buffers that are joined for TLS.
# Unit: bytes. Estimate (benchmarks/cluster.py).
CORKED_BYTES: Final = 1 << 16
TLS_JOINED_BYTES: Final = 1 << 16

# System calls after which a thread that writes or reads one link turns to other work. A call of TLS reads 16 KiB.
# Unit: calls. Estimate (tests/dist/test_transport.py).
LINK_WRITES: Final = 64
LINK_READS: Final = 4
TLS_LINK_READS: Final = 64

# Pings of a link from which the difference of the clocks is estimated. Clocks drift, so old ones are dropped. The first
# pings follow each other at a shorter interval.
# Unit: pings; pings; seconds. Estimate (tests/dist/test_transport.py).
CLOCK_SAMPLES: Final = 64
EARLY_PINGS: Final = 8
EARLY_PING: Final = 0.005

# Jobs of a reactor between two polls, and events taken from one poll.
# Unit: jobs; events. Estimate (benchmarks/cluster.py).
POLLED_JOBS: Final = 32
POLLED_EVENTS: Final = 64

# Interval at which the watcher of a reactor looks at the leader, the factor up to which it grows in an idle process,
# and the longest poll.
# Unit: seconds; ratio; seconds. Estimate (tests/dist/test_reactor.py).
WATCH_PERIOD: Final = 0.02
IDLE_WATCH_PERIODS: Final = 5.0
LONGEST_POLL: Final = 60.0

# A thread outside of a reactor that waits for it: the interval at which it tries to lead, the time after which it is
# not expected back, and the interval between two looks at the leader until then.
# Unit: seconds. Estimate (benchmarks/cluster.py).
GUEST_SLICE: Final = 0.0005
GUEST_MEMORY: Final = 0.2
GUEST_PERIOD: Final = 0.003

# Time without work after which a spare thread of a reactor ends.
# Unit: seconds. Estimate (tests/dist/test_reactor.py).
SPARE_THREAD: Final = 10.0

# Largest number of threads of a server. A compiled share that waits for a value of another worker has a thread of its
# own, so this bounds the steps that wait at the same time; further ones fail.
# Unit: threads. Bound (tests/dist/test_clients.py).
SERVER_THREADS: Final = 1024

# Objects that the clients of a master may have: sessions of all clients; programs of a session, without those that the
# client has released, and bytes of all programs; steps under way of a session and of all sessions, with partial runs
# whose fetches were not taken; and connections of clients. The next one fails with ResourceExhaustedError.
# Unit: sessions; programs; bytes; steps; steps; connections. Bound (tests/dist/test_security.py).
CLUSTER_SESSIONS: Final = 1024
SESSION_PROGRAMS: Final = 1024
CLUSTER_PROGRAM_BYTES: Final = 1 << 32
SESSION_STEPS: Final = 1024
CLUSTER_STEPS: Final = 8192
CLUSTER_CLIENTS: Final = 1024

# Shared memory of two processes on one machine: size of the smallest frame that uses it, size and number of all
# segments of a connection in one direction, and the time after which an unused segment is given up.
# Unit: bytes; bytes; segments; seconds. Estimate (benchmarks/cluster.py).
SHARED_FRAME: Final = 1 << 20
SHARED_MEMORY: Final = 1 << 28
SHARED_SEGMENTS: Final = 16
SHARED_MEMORY_IDLE: Final = 30.0

# The longest frame that a process sends and accepts, unless `NetworkOptions` has another number. Memory is allocated
# when the head of a frame has arrived.
# Unit: bytes. Bound (tests/dist/test_security.py).
LARGEST_FRAME: Final = 1 << 32

# Time after which the connection of a client that is one too many is closed; until then its calls fail with the reason.
# Unit: seconds. Estimate.
REFUSED_CLIENT: Final = 1.0

# Largest size of a file with the secret of a cluster.
# Unit: bytes. Estimate.
LONGEST_SECRET: Final = 1 << 16

# *** TensorFlow's clients: master_service ***

# Largest request of a client, and largest response; unless `Server` has another number. A request is in memory as a
# whole, before any of it is read.
# Unit: bytes. Bound (tests/master_service/test_server.py).
CLIENT_MESSAGE: Final = 1 << 28

# Sessions of a server; callables and open partial runs of a session; and calls of all clients under way, each with a
# thread of its own. The next one fails with ResourceExhaustedError.
# Unit: sessions; callables; partial runs; calls. Bound (tests/master_service/test_server.py).
CLIENT_SESSIONS: Final = 256
CLIENT_CALLABLES: Final = 1024
CLIENT_PARTIAL_RUNS: Final = 256
CLIENT_CALLS: Final = 512

# Time without calls after which the session of a client ends, unless `Server` has another number; the same after a call
# broke off, which tells that the client's process has ended; and the interval of the looks at these times.
# Unit: seconds. Bound (tests/master_service/test_server.py).
IDLE_CLIENT: Final = 3600.0
BROKEN_CLIENT: Final = 10.0
CLIENT_SWEEP: Final = 1.0

# Time after which a connection without traffic is probed, and after which a probe without an answer ends it.
# Unit: seconds. Estimate.
CLIENT_PROBE: Final = 30.0
CLIENT_PROBE_ANSWER: Final = 10.0

# *** Drawings of graphs: inspect ***

# Operations that a page of a graph draws; `headrace inspect --html --full` draws more.
# Unit: operations. Bound (tests/inspect/test_page.py).
DRAWN_OPERATIONS: Final = 20_000

# Operations that the frame in a notebook draws, and the size of its page. A notebook keeps a copy for each display.
# Unit: operations; characters. Bound (tests/inspect/test_page.py).
NOTEBOOK_OPERATIONS: Final = 2_000
NOTEBOOK_PAGE: Final = 1 << 21

# *** Recordings of steps: observe ***

# Values that a recording keeps by reference while the step runs. Later values are summarized when they are computed.
# Unit: bytes. Bound (tests/observe/test_recording.py).
RECORDED_BYTES: Final = 1 << 28

# Firings that a recording keeps; later ones are counted. The page is made for 200,000.
# Unit: firings. Bound (tests/observe/test_recording.py).
RECORDED_TOKENS: Final = 500_000

# Elements of a value that a recording shows, and characters of each.
# Unit: elements; characters. Estimate.
RECORDED_ELEMENTS: Final = 6
RECORDED_ELEMENT_CHARACTERS: Final = 40

# Source files in a recording: size of one file, and of all. A larger file is named without its text.
# Unit: bytes. Bound (tests/observe/test_recording.py).
RECORDED_SOURCE: Final = 1 << 20
RECORDED_SOURCES: Final = 1 << 23

# Text forms of the graph after the stages of the step, together. Later stages are left out.
# Unit: characters. Bound (tests/observe/test_recording.py).
RECORDED_STAGES: Final = 1 << 23

# Graphs after the stages of the step, together, for their drawings. An operation that several stages share counts once;
# later graphs are left out, and the page says so.
# Unit: characters. Bound (tests/observe/test_stage_graphs.py).
RECORDED_STAGE_GRAPHS: Final = 1 << 23

# Sizes of a file with a recording: compressed, and its document.
# Unit: bytes. Bound (tests/observe/test_recorded.py).
RECORDING_FILE: Final = 1 << 28
RECORDING_DOCUMENT: Final = 1 << 30

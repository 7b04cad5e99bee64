"""Loop passes: text in, text out."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

from tests.optimize.loop_steps import PASSES, check, transformed, untouched

_ROWS = """
zero = Const[value=int32[]{0}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
h = Placeholder[dtype=float32, shape=[2,3]]
w = Placeholder[dtype=float32, shape=[ROWS,3]]
b = Placeholder[dtype=float32, shape=[3]]
xs = Placeholder[dtype=float32, shape=[5,2,4]]
shape = Const[value=int32[2]{2, 4}, dtype=int32]
items = TensorListFromTensor(xs, shape)
loop = StatelessWhile[T=(int32, float32, int32, float32, float32, variant), cond=@"cond", body=@"body"](zero, h, n, w, b, items)
graph "cond" of loop, cond (i: int32[], h: float32[2,3], n: int32[], w: float32[ROWS,3], b: float32[3], items: variant[] holds float32[2,4]) -> (less) {
  less = Less(i, n)
}
graph "body" of loop, body (i: int32[], h: float32[2,3], n: int32[], w: float32[ROWS,3], b: float32[3], items: variant[] holds float32[2,4]) -> (next, tanh, n, w, b, items) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
  shape = Const[value=int32[2]{2, 4}, dtype=int32]
  x = TensorListGetItem[element_dtype=float32](items, i, shape)
STEP
  tanh = Tanh(z)
}
"""


def _rows(step: str, height: int) -> str:
    """A loop that reads rows `x` of 2 x 4, carries `h` of 2 x 3, and has a matrix `w` of so many rows."""
    return _ROWS.replace("STEP", step).replace("ROWS", str(height))


def test_invariants() -> None:
    check(
        "loop_invariants",
        """
zero = Const[value=int32[]{0}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
h = Placeholder[dtype=float32, shape=[2,3]]
w = Placeholder[dtype=float32, shape=[3,3]]
s = Placeholder[dtype=float32, shape=[]]
loop = StatelessWhile[T=(int32, float32, int32, float32, float32), cond=@"cond", body=@"body"](zero, h, n, w, s)
graph "cond" of loop, cond (i: int32[], h: float32[2,3], n: int32[], w: float32[3,3], s: float32[]) -> (less) {
  two = Const[value=int32[]{2}, dtype=int32]
  most = FloorDiv(n, two)
  less = Less(i, most)
}
graph "body" of loop, body (i: int32[], h: float32[2,3], n: int32[], w: float32[3,3], s: float32[]) -> (next, tanh, n, w, s) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
  v = Mul(w, s)
  u = Neg(v)
  odd = FloorMod(n, n)
  hw = MatMul(h, u)
  f = Cast[SrcT=int32, DstT=float32](odd)
  more = AddV2(hw, f)
  tanh = Tanh(more)
}
""",
        """
most = FloorDiv(n, two)
v = Mul(w, s)
u = Neg(v)
loop = StatelessWhile(zero, h, n, w, s, most, u)
body of loop (i, h, n, w, s, most, u_1) -> (next, tanh, n, w, s, most, u_1) {
  next = AddV2(i, one)
  odd = FloorMod(n, n)
  hw = MatMul(h, u_1)
  f = Cast(odd)
  more = AddV2(hw, f)
  tanh = Tanh(more)
}
""",
        ["loop: loop-invariant in the condition, hoisted: most", "loop: loop-invariant, hoisted: v, u"],
        ["odd: it may fail, and the trip count may be 0"],
    )


def test_counts() -> None:
    check(
        "loop_counts",
        """
zero = Const[value=int32[]{0}, dtype=int32]
one = Const[value=int32[]{1}, dtype=int32]
loop = StatelessWhile[T=(int32), cond=@"cond", body=@"body"](zero)
graph "cond" of loop, cond (i: int32[]) -> (less) {
  five = Const[value=int32[]{5}, dtype=int32]
  less = Less(i, five)
}
graph "body" of loop, body (i: int32[]) -> (next) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
}
last = Sub(loop, one)
""",
        """
loop = StatelessWhile(zero)
body of loop (i) -> (next) {
  next = AddV2(i, one)
}
last = Sub(loop/count, one)
""",
        ["loop: its trip count is 5: its counter is a constant after the loop"],
    )


def test_products() -> None:
    check(
        "loop_products",
        _rows(
            """\
  axis = Const[value=int32[]{1}, dtype=int32]
  xh = ConcatV2(x, h, axis)
  xhw = MatMul(xh, w)
  z = AddV2(xhw, b)""",
            7,
        ),
        """
items = TensorListFromTensor(xs, shape)
loop/w_part = Slice(w, loop/w_part/begin, loop/w_part/size)
loop/w_part_1 = Slice(w, loop/w_part_1/begin, loop/w_part_1/size)
loop = StatelessWhile(zero, h, n, w, b, items, loop/w_part, loop/w_part_1)
body of loop (i, h, n, w, b, items, w_part, w_part_1) -> (next, tanh, n, w, b, items, w_part, w_part_1) {
  next = AddV2(i, one)
  x = TensorListGetItem(items, i, shape)
  xhw_1 = MatMul(x, w_part)
  xhw_2 = MatMul(h, w_part_1)
  xhw_3 = AddV2(xhw_1, xhw_2)
  z = AddV2(xhw_3, b)
  tanh = Tanh(z)
}
""",
        ["xhw: split into 2 products of the parts of 'xh', some of which are known before the loop"],
    )


def test_sums() -> None:
    check(
        "loop_sums",
        _rows(
            """\
  xw = MatMul(x, w)
  hxw = AddV2(h, xw)
  z = AddV2(hxw, b)""",
            4,
        ),
        """
items = TensorListFromTensor(xs, shape)
loop = StatelessWhile(zero, h, n, w, b, items)
body of loop (i, h, n, w, b, items) -> (next, tanh, n, w, b, items) {
  next = AddV2(i, one)
  x = TensorListGetItem(items, i, shape)
  xw = MatMul(x, w)
  z_1 = AddV2(xw, b)
  z_2 = AddV2(z_1, h)
  tanh = Tanh(z_2)
}
""",
        ["z: 2 of 3 terms are known before the loop, and added first"],
    )


def test_fission() -> None:
    check(
        "loop_fission",
        _rows(
            """\
  xw = MatMul(x, w)
  xwb = AddV2(xw, b)
  z = AddV2(xwb, h)""",
            4,
        ),
        """
items = TensorListFromTensor(xs, shape)
x/end = ExpandDims(n, x/end/dim)
x/all = StridedSlice(xs, x/all/begin, x/end, x/all/strides)
xw/flat = Reshape(x/all, xw/flat/shape)
xw = MatMul(xw/flat, w)
xwb = AddV2(xw, b)
xw/all = Shape(x/all)
xw/front = StridedSlice(xw/all, xw/front/begin, xw/front/end, xw/front/strides)
xw/shape = ConcatV2(xw/front, xw/shape/values_1, xw/shape/axis)
xwb/rows = Reshape(xwb, xw/shape)
loop/xwb_rows = TensorListFromTensor(xwb/rows, loop/xwb_rows/element_shape)
loop = StatelessWhile(zero, h, n, w, b, items, loop/xwb_rows)
body of loop (i, h, n, w, b, items, xwb_rows) -> (next, tanh, n, w, b, items, xwb_rows) {
  next = AddV2(i, one)
  xwb_1 = TensorListGetItem(xwb_rows, i, xwb_1/element_shape)
  z = AddV2(xwb_1, h)
  tanh = Tanh(z)
}
xw/rows = Reshape(xw, xw/shape)
""",
        ["loop: computed for all iterations before the loop: xwb"],
    )


def test_accumulations() -> None:
    check(
        "loop_accumulations",
        """
zero = Const[value=int32[]{0}, dtype=int32]
last = Placeholder[dtype=int32, shape=[]]
d = Placeholder[dtype=float32, shape=[2,4]]
w = Placeholder[dtype=float32, shape=[3,4]]
b = Placeholder[dtype=float32, shape=[4]]
dw = ZerosLike(w)
hs = Placeholder[dtype=variant, shape=[]]
loop = StatelessWhile[T=(int32, float32, variant, float32, float32, int32), cond=@"cond", body=@"body"](zero, d, hs, dw, b, last)
graph "cond" of loop, cond (k: int32[], d: float32[2,4], hs: variant[] holds float32[2,3], dw: float32[3,4], db: float32[4], last: int32[]) -> (less) {
  less = LessEqual(k, last)
}
graph "body" of loop, body (k: int32[], d: float32[2,4], hs: variant[] holds float32[2,3], dw: float32[3,4], db: float32[4], last: int32[]) -> (next, e, pop, dw1, db1, last) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(k, one)
  shape = Const[value=int32[2]{2, 3}, dtype=int32]
  pop = TensorListPopBack[element_dtype=float32]{ResidualPop}(hs, shape)
  e = Tanh(d)
  p = MatMul[transpose_a=true](pop:1, e)
  dw1 = AddN(dw, p)
  axes = Const[value=int32[1]{0}, dtype=int32]
  s = Sum(e, axes)
  db1 = AddV2(db, s)
}
out = Identity(loop:3)
""",
        """
dw = ZerosLike(w)
loop/e_residuals = EmptyTensorList(loop/e_residuals/element_shape, loop/e_residuals/max_num_elements)
loop = StatelessWhile(zero, d, hs, dw, b, last, loop/e_residuals)
body of loop (k, d, hs, dw, db, last, e_residuals) -> (next, e, pop, dw, db, last, e/push) {
  next = AddV2(k, one)
  pop = TensorListPopBack(hs, shape)
  e = Tanh(d)
  e/push = TensorListPushBack(e_residuals, e)
}
loop/pop_values = TensorListStack(hs, loop/pop_values/element_shape)
loop/pop_values/turned = ReverseV2(loop/pop_values, loop/pop_values/turned/axis)
loop/pop_values/turned/flat = Reshape(loop/pop_values/turned, loop/pop_values/turned/flat/shape)
loop/e_values = TensorListStack(loop:6, loop/e_values/element_shape)
loop/e_values/flat = Reshape(loop/e_values, loop/e_values/flat/shape)
p = MatMul[transpose_a=true](loop/pop_values/turned/flat, loop/e_values/flat)
out = Identity(p)
s = Sum(loop/e_values, s/reduction_indices)
loop/db = AddN(b, s)
""",
        ["loop: summed after the loop, for all iterations at once: p, s"],
    )


def test_collections() -> None:
    check(
        "loop_collections",
        """
zero = Const[value=int32[]{0}, dtype=int32]
h = Placeholder[dtype=float32, shape=[2,3]]
v = Placeholder[dtype=float32, shape=[3,4]]
shape = Const[value=int32[2]{2, 4}, dtype=int32]
any = Const[value=int32[]{-1}, dtype=int32]
ys = EmptyTensorList[element_dtype=float32](shape, any)
loop = StatelessWhile[T=(int32, float32, float32, variant), cond=@"cond", body=@"body"](zero, h, v, ys)
graph "cond" of loop, cond (i: int32[], h: float32[2,3], v: float32[3,4], ys: variant[] holds float32[2,4]) -> (less) {
  five = Const[value=int32[]{5}, dtype=int32]
  less = Less(i, five)
}
graph "body" of loop, body (i: int32[], h: float32[2,3], v: float32[3,4], ys: variant[] holds float32[2,4]) -> (next, tanh, v, push) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
  tanh = Tanh(h)
  y = MatMul(tanh, v)
  push = TensorListPushBack[element_dtype=float32](ys, y)
}
all = TensorListStack[element_dtype=float32](loop:3, shape)
""",
        """
ys = EmptyTensorList(shape, any)
loop/tanh_residuals = EmptyTensorList(loop/tanh_residuals/element_shape, loop/tanh_residuals/max_num_elements)
loop = StatelessWhile(zero, h, v, ys, loop/tanh_residuals)
body of loop (i, h, v, ys, tanh_residuals) -> (next, tanh, v, ys, tanh/push) {
  next = AddV2(i, one)
  tanh = Tanh(h)
  tanh/push = TensorListPushBack(tanh_residuals, tanh)
}
loop/tanh_values = TensorListStack(loop:4, loop/tanh_values/element_shape)
y/flat = Reshape(loop/tanh_values, y/flat/shape)
y = MatMul(y/flat, v)
y/rows = Reshape(y, y/rows/shape)
loop/push_collected = TensorListFromTensor(y/rows, loop/push_collected/element_shape)
all = TensorListStack(loop/push_collected, shape)
""",
        ["loop: computed after the loop, for all iterations at once: 'y'"],
    )


def test_merging() -> None:
    check(
        "loop_merging",
        """
zero = Const[value=int32[]{0}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[2]]
y = Placeholder[dtype=float32, shape=[?]]
a = StatelessWhile[T=(int32, float32, int32), cond=@"cond", body=@"body"](zero, x, n)
graph "cond" of a, cond (i: int32[], x: float32[2], n: int32[]) -> (less) {
  less = Less(i, n)
}
graph "body" of a, body (i: int32[], x: float32[2], n: int32[]) -> (next, tanh, n) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
  tanh = Tanh(x)
}
b = StatelessWhile[T=(float32, int32, int32), cond=@"cond2", body=@"body2"](y, n, zero)
graph "cond2" of b, cond (y: float32[?], n: int32[], j: int32[]) -> (less) {
  less = Greater(n, j)
}
graph "body2" of b, body (y: float32[?], n: int32[], j: int32[]) -> (sin, n, next) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(one, j)
  sin = Sin(y)
}
ends = ConcatV2(a:1, b, zero)
""",
        """
a = StatelessWhile(zero, x, n, y, n, zero)
body of a (i, x, n, y, n_1, j) -> (next, tanh, n, sin, n_1, next_1) {
  next = AddV2(i, one)
  tanh = Tanh(x)
  next_1 = AddV2(one_1, j)
  sin = Sin(y)
}
ends = ConcatV2(a:1, a:3, zero)
""",
        ["a: fused with 'b'"],
    )


def test_variables() -> None:
    check(
        "loop_variables",
        """
zero = Const[value=int32[]{0}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[2]]
shape = Const[value=int32[1]{2}, dtype=int32]
any = Const[value=int32[]{-1}, dtype=int32]
list1 = EmptyTensorList[element_dtype=float32](shape, any)
list2 = EmptyTensorList[element_dtype=float32](shape, any)
loop = StatelessWhile[T=(int32, int32, float32, variant, variant, int32), cond=@"cond", body=@"body"](zero, zero, x, list1, list2, n)
graph "cond" of loop, cond (i: int32[], j: int32[], x: float32[2], p: variant[], q: variant[], n: int32[]) -> (less) {
  less = Less(j, n)
}
graph "body" of loop, body (i: int32[], j: int32[], x: float32[2], p: variant[], q: variant[], n: int32[]) -> (i1, j1, tanh, p1, q1, n) {
  one = Const[value=int32[]{1}, dtype=int32]
  i1 = AddV2(i, one)
  j1 = AddV2(j, one)
  tanh = Tanh(x)
  p1 = TensorListPushBack[element_dtype=float32](p, x)
  q1 = TensorListPushBack[element_dtype=float32](q, x)
}
all = TensorListStack[element_dtype=float32](loop:4, shape)
last = Neg(loop:1)
""",
        """
list1 = EmptyTensorList(shape, any)
list2 = EmptyTensorList(shape, any)
loop = StatelessWhile(zero, zero, x, list1, list2, n)
body of loop (i, j, x, p, q, n) -> (i1, j, tanh, p1, q, n) {
  i1 = AddV2(i, one)
  tanh = Tanh(x)
  p1 = TensorListPushBack(p, x)
}
all = TensorListStack(loop:3, shape)
last = Neg(loop)
""",
        ["loop: variable 1 is always equal to variable 0", "loop: variable 4 is always equal to variable 3"],
    )


# *** what is left alone, and why ***


def test_a_loop_that_may_end_early_computes_nothing_in_advance() -> None:
    step = "  xw = MatMul(x, w)\n  z = AddV2(xw, h)"
    text = _rows(step, 4).replace(
        "less = Less(i, n)",
        "below = Less(i, n)\n  n3 = Const[value=int32[]{3}, dtype=int32]\n  zero = Sub(n3, n3)\n"
        "  size = Size(h)\n  other = Greater(size, zero)\n  less = LogicalAnd(below, other)",
    )
    untouched("loop_fission", text, "the loop may end before its counter reaches the bound")


def test_no_more_is_kept_than_is_allowed() -> None:
    text = _rows("  xw = MatMul(x, w)\n  z = AddV2(xw, h)", 4)
    text = text.replace("less = Less(i, n)", "five = Const[value=int32[]{5}, dtype=int32]\n  less = Less(i, five)")
    untouched("loop_fission", text, "5 rows of 24 bytes exceed the limit of 100 bytes", stack_bytes=100)


def test_a_product_of_carried_parts_stays() -> None:
    step = "  axis = Const[value=int32[]{1}, dtype=int32]\n  hh = ConcatV2(h, h, axis)\n  z = MatMul(hh, w)"
    untouched("loop_products", _rows(step, 6), "all its parts are loop-carried")


def test_what_is_stretched_stays() -> None:
    untouched(
        "loop_invariants",
        """
        zero = Const[value=int32[]{0}, dtype=int32]
        h = Placeholder[dtype=float32, shape=[300,300]]
        s = Placeholder[dtype=float32, shape=[]]
        loop = StatelessWhile[T=(int32, float32, float32), cond=@"cond", body=@"body"](zero, h, s)
        graph "cond" of loop, cond (i: int32[], h: float32[300,300], s: float32[]) -> (less) {
          five = Const[value=int32[]{5}, dtype=int32]
          less = Less(i, five)
        }
        graph "body" of loop, body (i: int32[], h: float32[300,300], s: float32[]) -> (next, sum, s) {
          one = Const[value=int32[]{1}, dtype=int32]
          next = AddV2(i, one)
          size = Const[value=int32[2]{300, 300}, dtype=int32]
          wide = BroadcastTo(s, size)
          sum = AddV2(h, wide)
        }
        """,
        "its result is much larger than its inputs",
    )


_ADDS = """
zero = Const[value=int32[]{0}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
d = Placeholder[dtype=float32, shape=[2,4]]
w = Placeholder[dtype=float32, shape=[4,4]]
loop = StatelessWhile[T=(int32, float32, float32, int32), cond=@"cond", body=@"body"](zero, d, w, n)
graph "cond" of loop, cond (k: int32[], d: float32[2,4], dw: float32[4,4], n: int32[]) -> (less) {
  less = Less(k, n)
}
graph "body" of loop, body (k: int32[], d: float32[2,4], dw: float32[4,4], n: int32[]) -> (next, e, dw1, n) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(k, one)
  e = Tanh(d)
  p = MatMul[transpose_a=true](d, e)
  dw1 = AddV2(dw, p)
}
"""


def test_a_loop_of_any_length_keeps_nothing_new() -> None:
    untouched(
        "loop_accumulations", _ADDS, "the trip count is unknown, and the loop keeps no residuals of this size yet"
    )


def test_sums_of_a_known_number_of_values() -> None:
    counted = _ADDS.replace("less = Less(k, n)", "m = Const[value=int32[]{9}, dtype=int32]\n  less = Less(k, m)")
    got, _ = transformed(counted, [PASSES["loop_accumulations"]])
    assert "p = MatMul[transpose_a=true](loop/d_values/flat, loop/e_values/flat)" in got
    assert "loop/dw = AddN(w, p)" in got
    untouched("loop_accumulations", counted, "9 values of 32 bytes exceed the limit of 200 bytes", stack_bytes=200)


def test_a_sum_that_is_read_stays() -> None:
    counted = _ADDS.replace("less = Less(k, n)", "m = Const[value=int32[]{9}, dtype=int32]\n  less = Less(k, m)")
    untouched("loop_accumulations", counted.replace("e = Tanh(d)", "e = MatMul(d, dw)"))
    some = "axes = Const[value=int32[2]{0, 1}, dtype=int32]\n  s = Sum(dw, axes)\n  f = Cast[SrcT=int32, DstT=float32](n)\n"
    by_sum = _ADDS.replace("less = Less(k, n)", some + "  less = Less(s, f)")
    untouched("loop_accumulations", by_sum)


def test_a_loop_of_one_round_is_left_alone() -> None:
    once = _ADDS.replace("less = Less(k, n)", "m = Const[value=int32[]{1}, dtype=int32]\n  less = Less(k, m)")
    untouched("loop_accumulations", once, "its trip count is at most 1")

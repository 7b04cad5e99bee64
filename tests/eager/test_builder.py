"""Ops that run at once: their results, errors, state and waiting."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.cond import cond
from headrace.api.functional import map_fn
from headrace.api.storage.queues import FIFOQueue
from headrace.api.tensor_array import TensorArray
from headrace.api.tensors import constant
from headrace.api.variable import Variable
from headrace.api.while_loop import while_loop
from headrace.eager import EagerBuilder, EagerTensor
from headrace.errors import (
    DeadlineExceededError,
    GraphError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    UnimplementedError,
)
from headrace.ir.opdef import op_registry
from headrace.jit.function import Function
from tests.ops.cases import assert_close, cases, dtype_of, first_sampled, flat, regroup

TYPES = first_sampled()


@pytest.mark.matrix
@pytest.mark.parametrize("type", TYPES)
def test_every_op_gives_what_its_oracle_gives(type: str, b: EagerBuilder) -> None:
    record = op_registry.get(type)
    for case in cases(type, TYPES[type])[:4]:
        want = case.want
        if want is None:
            assert record.oracle is not None
            with np.errstate(all="ignore"):
                want = record.oracle(*case.inputs, **case.attrs)
        args = regroup(case.inputs, [b.const(x, dtype_of(x)) for x in flat(case.inputs)])
        out = b.make(type, args, dict(case.attrs))
        got = out if isinstance(out, tuple) else () if out is None else (out,)
        for t, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            assert isinstance(t, EagerTensor)
            assert np.asarray(t).dtype == t.dtype.numpy
            assert_close(np.asarray(t), w, type)


def test_numbers_take_the_dtype_of_the_tensors(b: EagerBuilder) -> None:
    x = constant(np.float64(1.0))
    assert b.AddV2(x, 2).dtype is b.AddV2(2, x).dtype is hr.float64
    assert b.AddV2(1, 2).dtype is hr.int32
    assert [t.dtype for t in b.IdentityN([1.0, 2])] == [hr.float32, hr.int32]
    assert b.Cast(1.5, DstT=hr.int32).dtype is hr.int32
    assert b.tensor([x, 2.0, [1.0, 2.0][0]]).numpy().tolist() == [1, 2, 1]
    assert b.NoOp() is None
    assert b.within("a").on("/CPU:0").after(x).at(None) is b


def test_errors_are_those_of_a_graph_and_name_the_line(b: EagerBuilder) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs. \[3\]") as e:
        constant([1.0, 2.0]) + constant([1.0, 2.0, 3.0])
    assert isinstance(e.value.__cause__, ValueError)
    notes = "\n".join(e.value.__notes__)
    assert "operation AddV2, run at" in notes
    assert "test_builder.py" in notes
    assert "inputs: float32[2] = [1.0, 2.0], float32[3]" in notes
    with pytest.raises(NotFoundError, match=r"not registered 'Add3'.*'Add'"):
        b.make("Add3", (), {})
    with pytest.raises(GraphError, match="takes 2 arguments"):
        b.AddV2(1)
    with pytest.raises(GraphError, match="must be a list of tensors"):
        b.AddN(constant(1))
    with pytest.raises(GraphError, match="in a graph only"):
        b.Switch(1, True)
    with pytest.raises(UnimplementedError, match="reference"):
        b.VariableV2(shape=(), dtype=hr.float32)
    with hr.Graph():
        symbolic = constant(1.0)
    with pytest.raises(GraphError, match=r"'Const:0' .*has no value here"):
        b.AddV2(symbolic, 1.0)
    with pytest.raises(AttributeError, match="no op type"):
        b.Nonsense


def test_random_ops_go_on(b: EagerBuilder) -> None:
    def draw(seed: int) -> list[float]:
        return b.RandomUniform([3], dtype=hr.float32, seed=seed, seed2=1).numpy().tolist()

    first, second, other = draw(1), draw(1), draw(2)
    assert first != second
    assert first != other
    with hr.Graph() as g:
        x = scopes.builder().RandomUniform([3], dtype=hr.float32, seed=1, seed2=1)
    with hr.Session(graph=g) as sess:
        assert [sess.run(x).tolist(), sess.run(x).tolist()] == [first, second]


def test_control_flow_is_pythons() -> None:
    seen = []
    assert int(cond(constant(True), lambda: constant(1), lambda: seen.append(0))) == 1
    assert not seen
    i, s = while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + i), [0, 0])
    assert (int(i), int(s)) == (4, 6)
    assert map_fn(lambda x: x * 2, constant([1, 2, 3])).numpy().tolist() == [2, 4, 6]
    array = TensorArray(hr.float32, 2).write(0, 1.0).write(1, 2.0)
    assert array.stack().numpy().tolist() == [1, 2]
    assert int(Function(lambda x: x + 1)(constant(1))) == 2
    with scopes.name_scope("a"), scopes.device("/CPU:0"), scopes.control_dependencies([i]):
        assert int(constant(1)) == 1


# *** variables ***


def test_a_variable_is_there_at_once() -> None:
    v = Variable(3.0)
    assert (v.name, v.dtype, v.shape, v.graph) == ("Variable:0", hr.float32, (), None)
    assert float(v * 2 + 1) == 7
    assert v.numpy() == 3
    assert np.asarray(v) == 3
    assert v.assign_add(1.0) is v
    assert float(v.assign_sub(0.5)) == 3.5
    assert float(v.assign(v * 2)) == 7
    assert bool(v.is_initialized())
    assert float(v.initialized_value()) == 7 == float(v.read_value())
    assert repr(v) == "<Variable 'Variable:0' shape=[] dtype=float32: np.float32(7.0)>"
    assert f"{v:.1f}" == "7.0"
    w = Variable(lambda: constant([1, 2]), name="w", dtype=hr.int32)
    assert list(map(int, w)) == [1, 2]
    assert len(w) == 2
    assert int(w[0]) == 1
    assert [5, 6, 7][Variable(2)] == 7
    assert w.scatter_add([1], [10]).numpy().tolist() == [1, 12]
    assert w.sparse_read([1]).numpy().tolist() == [12]
    assert int(Variable(4).count_up_to(9)) == 4
    with pytest.raises(ValueError, match="Shape mismatch"):
        w.assign([1, 2, 3])
    with pytest.raises(GraphError, match="outside of graphs, so it has no initializer"):
        _ = w.initializer
    x = v * 1
    v.assign(100.0)
    assert float(x) == 7


def test_one_kernel_serves_all_variables_of_a_dtype() -> None:
    v, w = Variable(1.0), Variable([1.0, 2.0])
    for i in range(3):
        v.assign_add(1.0)
        w.assign_add([10.0, 20.0])
        assert (float(v), w.numpy().tolist()) == (2.0 + i, [11.0 + 10 * i, 22.0 + 20 * i])
    for wrong in (v, w):
        with pytest.raises(hr.errors.InvalidArgumentError, match="Cannot update variable with shape"):
            wrong.assign_add([1.0, 2.0, 3.0])
    assert (float(v), w.numpy().tolist()) == (4.0, [31.0, 62.0])


def test_variables_do_not_share_and_are_freed(b: EagerBuilder) -> None:
    v, w = Variable(1.0, name="v"), Variable(2.0, name="v")
    v.assign(10.0)
    assert float(w) == 2
    held = v.handle.numpy()
    resource = held.owned
    assert type(resource).__name__ == "Variable"
    gone = weakref.ref(v)
    del v, held, resource
    gc.collect()
    assert gone() is None
    assert len(b.session) == 0


def test_a_variable_made_outside_does_not_go_into_a_graph() -> None:
    v = Variable(1.0, name="v")
    with hr.Graph():
        for use in (lambda: v + 1.0, lambda: v.assign(2.0), v.value):
            with pytest.raises(GraphError, match=r"'v:0'.* made outside of graphs and cannot be used in one"):
                use()  # type: ignore[no-untyped-call]
        assert v.numpy() == 1
        assert float(v) == 1
        assert constant(v.numpy()).dtype is hr.float32


def test_named_resources_are_found_again(b: EagerBuilder) -> None:
    one = b.VarHandleOp(dtype=hr.float32, shape=(), shared_name="x")
    two = b.VarHandleOp(dtype=hr.float32, shape=(), shared_name="x")
    b.AssignVariableOp(one, 5.0)
    assert float(b.ReadVariableOp(two, dtype=hr.float32)) == 5
    with pytest.raises(NotFoundError, match="uninitialized"):
        b.AssignAddVariableOp(b.VarHandleOp(dtype=hr.float32, shape=()), 1.0)


# *** waiting ***


def test_queues() -> None:
    q = FIFOQueue(2, hr.int32, shapes=[()])
    q.enqueue_many([[1, 2]])
    assert (int(q.size()), int(q.dequeue()), q.dequeue_many(1).numpy().tolist()) == (2, 1, [2])
    assert int(FIFOQueue(2, hr.int32, shapes=[()]).size()) == 0
    q.close()
    with pytest.raises(OutOfRangeError, match="closed") as e:
        q.dequeue()
    assert "QueueDequeueV2, run at" in e.value.__notes__[0]


def test_threads_wait_for_one_another() -> None:
    q = FIFOQueue(1, hr.int32, shapes=[()])
    thread = threading.Thread(target=lambda: [q.enqueue(i) for i in range(50)])
    thread.start()
    assert [int(q.dequeue()) for _ in range(50)] == [*range(50)]
    thread.join()


def test_waiting_ends(b: EagerBuilder) -> None:
    q = FIFOQueue(1, hr.int32, shapes=[()])
    start = time.monotonic()
    with (
        hr.flags.override(WAIT_LIMIT=0.05),
        pytest.raises(DeadlineExceededError, match=r"QueueDequeueV2 has waited 0\.05"),
    ):
        q.dequeue()
    assert time.monotonic() - start < 5
    q.enqueue(1)  # the one that was given up takes nothing
    assert int(q.dequeue()) == 1


def test_many_threads(b: EagerBuilder) -> None:
    v, wrong = Variable(0), []

    def work(k: int) -> None:
        for i in range(100):
            x = constant([float(i), float(k)])
            if (x * 2 - x).numpy().tolist() != [i, k]:
                wrong.append((k, i))
            v.assign_add(1)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert int(v) == 400


def test_prepared_ops_are_bounded(b: EagerBuilder) -> None:
    b._prepared.limit = 8
    for i in range(30):
        x: Any = b.OneHot([1], i + 2, 1.0, 0.0, axis=-1)
        assert b.Squeeze(b.Reshape(x, [1, 1, i + 2]), squeeze_dims=(i % 2,)).shape == (1, i + 2)
        assert b.LeakyRelu(-1.0, alpha=float(i)).numpy() == -i
    assert len(b._prepared) <= 8


def test_attributes_that_are_equal_but_differ_have_prepared_ops_of_their_own(b: EagerBuilder) -> None:
    for alpha in (0.0, -0.0, np.float32(0.0), np.float32(-0.0), 0.0):
        out = b.LeakyRelu(-1.0, alpha=alpha).numpy()
        assert np.signbit(out) != np.signbit(alpha), alpha
    x = b.const([[1.0]])
    assert b.MatMul(x, x, transpose_a=False).shape == (1, 1)
    with pytest.raises(GraphError, match="'transpose_a' of MatMul must be bool, got 0"):
        b.MatMul(x, x, transpose_a=0)
    b.Unpack(x, num=1, axis=0)
    for wrong in (True, 1.0):
        with pytest.raises(GraphError, match="'num' of Unpack must be int"):
            b.Unpack(x, num=wrong, axis=0)


def test_a_stream_belongs_to_the_attributes_and_not_to_their_order(b: EagerBuilder) -> None:
    other = EagerBuilder()
    first = [b.RandomUniform([2], dtype=hr.float32, seed=1, seed2=2).numpy().tolist() for _ in range(2)]
    got = [
        other.RandomUniform([2], dtype=hr.float32, seed=1, seed2=2).numpy().tolist(),
        other.RandomUniform([2], seed2=2, seed=1, dtype=hr.float32).numpy().tolist(),
    ]
    assert got == first
    assert first[0] != first[1]

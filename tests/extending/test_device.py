"""A device type from another package (`headrace_dlp`).

It has one kernel, and a memory that numpy does not reach. Its arrays refuse every request of numpy, and its kernel
refuses every value outside its memory. So a value that crosses the border without being copied fails the run. The
traces also show the device of each value.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import step_events
from headrace.errors import InvalidArgumentError, OpError
from headrace.extend import LocalDevice
from tests.inside import target_of

pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("dlp")]

DLP = "/device:DLP:0"
FULL = "/job:localhost/replica:0/task:0/device:DLP:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
ENGINES = pytest.mark.parametrize("engine", ["interpret", "auto"])

IMAGE = np.random.default_rng(0).normal(size=(2, 7, 8, 3))


class Watch:
    """A listener that keeps what each operation gave, and where."""

    wants_values = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Any]] = []
        self.crossings = 0

    def __call__(self, event: object) -> None:
        if isinstance(event, step_events.NodeEnd) and event.values:
            # an event has the input of a Switch for both of its sides, and its predicate; for a Merge it has the index
            # of the input that came as a number, which is not checked here (`test_which_input_of_a_merge_came`)
            values = {"Switch": (), "Merge": event.values[:1]}.get(event.type, event.values)
            self.seen += [(event.device, event.type, v) for v in values]
        self.crossings += isinstance(event, step_events.TokenSent)

    def check(self) -> None:
        """All that any operation gave is in the memory of its device."""
        for device, type, value in self.seen:
            kind = value.__class__.__name__
            if device == "" or "CPU" in device:
                assert kind != "DLPArray", f"{type} on {device} gave {kind}"
            elif kind == "DLPArray":
                assert value.device == device, f"{type} on {device} gave one of {value.device}"
            else:  # the token of the loop by which a device counts iterations
                assert type in ("Enter", "Merge", "NextIteration"), f"{type} on {device} gave {kind}"
                assert isinstance(value, (bool, np.bool_))


def device(session: hr.Session, name: str = FULL) -> Any:
    return target_of(session).local_devices[name]


def pooled(dtype: Any, strides: int = 2, padding: str = "SAME", where: str = DLP) -> tuple[hr.Graph, Any, Any, Any]:
    with hr.Graph() as g:
        x = hr.placeholder(dtype, [None, None, None, None], "x")
        with hr.device(where):
            y = hr.nn.max_pool2d(x, 3, strides, padding, name="pool")
        z = hr.reduce_sum(hr.square(y))
    return g, x, y, z


# *** one operation ***


@ENGINES
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_its_kernel_is_used(engine: str, dtype: Any, padding: str) -> None:
    g, x, y, z = pooled(dtype, padding=padding)
    feeds = {x: IMAGE.astype(dtype)}
    want = hr.Session(graph=g).run([y, z], feeds)  # a session without such a device: the CPU's
    with hr.Session(graph=g, devices={"DLP": 1}, engine=engine) as session:
        got = session.run([y, z], feeds)
        again = session.run([y, z], feeds)
        assert device(session).puts == 2
        assert device(session).gets == 4, "the fetch, and what is squared on the CPU"
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(again[1], want[1])
    assert type(got[0]) is np.ndarray
    assert got[0].flags.writeable
    assert got[0].dtype == dtype


def test_what_is_where() -> None:
    g, x, y, z = pooled(np.float32)
    watch = Watch()
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        explained = session.explain([y, z], [x])
        session.run([y, z], {x: IMAGE}, options=hr.RunOptions(listener=watch))
        names = [(d.name, d.device_type) for d in session.list_devices()]
    assert names == [(CPU, "CPU"), (FULL, "DLP")]
    watch.check()
    assert watch.crossings >= 1
    assert {(d, t) for d, t, _ in watch.seen if t in ("MaxPool", "Square", "Sum")} == {
        (FULL, "MaxPool"),
        (CPU, "Square"),
        (CPU, "Sum"),
    }
    assert "pool" in dict(explained.devices)[FULL]
    assert explained.moved == ()
    assert f"{FULL}: " in str(explained)


def test_log_device_placement(caplog: pytest.LogCaptureFixture) -> None:
    g, x, _, z = pooled(np.float32)
    config = {"log_device_placement": True}
    with caplog.at_level(logging.INFO, "headrace"), hr.Session(graph=g, devices={"DLP": 1}, config=config) as session:
        session.run(z, {x: IMAGE})
    assert f"pool: (MaxPool): {FULL}" in caplog.messages


def test_everything_on_it() -> None:
    with hr.Graph() as g, hr.device(DLP):
        x = hr.placeholder(hr.float32, [None, None, None, None])
        y = hr.nn.max_pool2d(hr.nn.max_pool2d(x, 3, 1, "SAME"), 2, 2, "VALID")
    hard = {"allow_soft_placement": False}
    with hr.Session(graph=g, devices={"DLP": 1}, config=hard) as session:
        got = session.run(y, {x: IMAGE})
        session.run(y.op, {x: IMAGE})
        assert (device(session).puts, device(session).gets) == (2, 1), "fed twice, fetched once"
        assert "it runs on /job:localhost" in str(session.explain(y, [x]))
    np.testing.assert_array_equal(got, hr.Session(graph=g).run(y, {x: IMAGE}))


def test_the_compiled_engine_says_why_not() -> None:
    g, x, _, z = pooled(np.float32)
    with (
        hr.Session(graph=g, devices={"DLP": 1}, engine="compiled") as session,
        pytest.raises(InvalidArgumentError, match=r"this step cannot be compiled: it runs on 2 devices"),
    ):
        session.run(z, {x: IMAGE})


def test_from_one_to_another() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None, None, None, None])
        with hr.device("/device:DLP:0"):
            a = hr.nn.max_pool2d(x, 3, 1, "SAME")
        with hr.device("/device:DLP:1"):
            b = hr.nn.max_pool2d(a, 2, 2, "VALID")
    watch = Watch()
    with hr.Session(graph=g, devices={"DLP": 2}) as session:
        got = session.run([a, b], {x: IMAGE}, options=hr.RunOptions(listener=watch))
    watch.check()
    want = hr.Session(graph=g).run([a, b], {x: IMAGE})
    for i in range(2):
        np.testing.assert_array_equal(got[i], want[i])


def test_work_is_done_in_its_own_threads() -> None:
    threads: set[str] = set()

    @hr.register_kernel("Softplus", "DLP")
    def softplus(attrs: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            threads.add(threading.current_thread().name)
            return x.__class__(x.device, np.log1p(np.exp(x._cells)))

        return f

    with hr.Graph() as g:
        xs = [hr.placeholder(hr.float32, [1 << 17]) for _ in range(3)]
        with hr.device(DLP):
            ys = [hr.nn.softplus(x) for x in xs]
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        session.run(ys, {x: np.zeros(1 << 17, np.float32) for x in xs})
    assert any(t.startswith("headrace-DLP:0-compute") for t in threads)


# *** limits of the device ***


def test_another_dtype_is_placed_softly() -> None:
    g, x, y, z = pooled(np.float64)
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        np.testing.assert_array_equal(session.run(y, {x: IMAGE}), hr.Session(graph=g).run(y, {x: IMAGE}))
        assert device(session).puts == 0
        (moved,) = session.explain(z, [x]).moved
    assert moved[0] == "pool"
    assert moved[1].startswith(
        "it requests '/device:DLP:0', which has no kernel for 'MaxPool' with T=float64, data_format=NHWC, padding=SAME "
        "(on DLP there are kernels for T in {float16, float32} and data_format in {NHWC} and padding in "
        "{SAME, VALID}), while CPU has one; "
    )


def test_another_dtype_is_an_error_if_placement_is_hard() -> None:
    g, x, y, _ = pooled(np.float64)
    config = {"allow_soft_placement": False}
    with hr.Session(graph=g, devices={"DLP": 1}, config=config) as session, pytest.raises(InvalidArgumentError) as e:
        session.run(y, {x: IMAGE})
    text = str(e.value)
    assert "operation pool: it requests '/device:DLP:0', made at" in text
    assert "test_device.py" in text
    assert "no kernel computes 'MaxPool' with T=float64, " in text
    assert "there are kernels for T in {float16, float32}" in text
    assert f"it can run on {CPU}. Set allow_soft_placement" in text
    assert e.value.node == "pool"


def test_another_op_is_an_error_if_placement_is_hard() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
        with hr.device(DLP):
            y = hr.sin(x)
    with (
        hr.Session(graph=g, devices={"DLP": 1}, config={"allow_soft_placement": False}) as session,
        pytest.raises(InvalidArgumentError, match=r"no kernel computes 'Sin'; it can run on .*CPU:0"),
    ):
        session.run(y, {x: 1.0})


def test_a_session_without_such_a_device() -> None:
    g, x, y, _ = pooled(np.float32)
    hr.Session(graph=g).run(y, {x: IMAGE})  # softly
    with (
        hr.Session(graph=g, config={"allow_soft_placement": False}) as session,
        pytest.raises(InvalidArgumentError, match=r"requests '/device:DLP:0', and this session has .*CPU:0"),
    ):
        session.run(y, {x: IMAGE})


def test_a_kernel_that_fails_names_the_users_line() -> None:
    @hr.register_kernel("Sin", "DLP")
    def sin(attrs: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            raise ValueError("overheated")

        return f

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
        with hr.device(DLP):
            y = hr.sin(x, name="hot")
    with hr.Session(graph=g, devices={"DLP": 1}) as session, pytest.raises(OpError, match="overheated in 'hot'") as e:
        session.run(y, {x: 1.0})
    assert e.value.op is y.op
    assert "test_device.py" in str(e.value)


def test_a_kernel_with_a_mistake_is_whose_it_is() -> None:
    @hr.register_kernel("Sin", form="pure")
    def sin(attrs: Any) -> Callable[[Any], Any]:
        return lambda x: x.sine()

    told = r"failed with AttributeError: .*sine'\. It was registered at .*test_device\.py:\d+\."
    with pytest.raises(hr.errors.HeadraceInternalError, match=told):
        hr.sin(1.0)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
        y = hr.sin(x)
    with hr.Session(graph=g) as session, pytest.raises(hr.errors.HeadraceInternalError, match=told):
        session.run(y, {x: 1.0})


class Full(LocalDevice):
    """A device with no memory left."""

    def put(self, array: Any) -> Any:
        raise hr.errors.ResourceExhaustedError(f"no room for {array.nbytes} bytes on {self.name}")


def test_a_copy_that_fails_says_of_what() -> None:
    hr.register_device("Full", Full)
    hr.register_kernel("Sin", "Full")(lambda attrs: lambda x: x)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], "x")
        a = hr.cos(x, name="a")
        with hr.device("/device:Full:0"):
            y = hr.sin(a)
    full = pytest.raises(hr.errors.ResourceExhaustedError, match=r"no room for 4 bytes on .*Full:0")
    with hr.Session(graph=g, devices={"Full": 1}) as session, full as e:
        session.run(y, {x: 1.0})
    assert any("'a/from_CPU_0' (_Recv)" in note for note in e.value.__notes__)


# *** gradients and control flow ***


@ENGINES
def test_gradients_on_a_registered_device_match_the_cpu(engine: str) -> None:
    g, x, _, z = pooled(np.float32)
    with g:
        (dx,) = hr.gradients(z, [x])
    feeds = {x: IMAGE.astype(np.float32)}
    watch = Watch()
    with hr.Session(graph=g, devices={"DLP": 1}, engine=engine) as session:
        got = session.run(dx, feeds)
        seen = session.run(dx, feeds, options=hr.RunOptions(listener=watch))
        moved = dict(session.explain(dx, [x]).moved)
    np.testing.assert_array_equal(got, hr.Session(graph=g).run(dx, feeds))
    np.testing.assert_array_equal(got, seen)
    watch.check()
    assert {d for d, t, _ in watch.seen if t == "MaxPoolGrad"} == {CPU}
    assert any("no kernel for 'MaxPoolGrad'" in why for why in moved.values()), moved


def loop(inside: str, around: str) -> tuple[hr.Graph, list[Any], list[Any]]:
    """A loop that pools `n` times, and its gradient."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None, None, None, None])
        n = hr.placeholder(hr.int32, [])

        def body(i: Any, y: Any) -> Any:
            with hr.device(inside):
                y = hr.nn.max_pool2d(y, 3, 1, "SAME")
            return i + 1, hr.cond(hr.equal(i % 2, 1), lambda: y * 0.5, lambda: y) if not around else y

        with hr.device(around):
            _, y = hr.while_loop(lambda i, y: i < n, body, [0, x])
        (dx,) = hr.gradients(hr.reduce_sum(hr.square(y)), [x])
    return g, [x, n], [y, dx]


@ENGINES
@pytest.mark.parametrize(("inside", "around"), [(DLP, ""), (DLP, DLP), ("", DLP)])
def test_in_a_loop(engine: str, inside: str, around: str) -> None:
    g, (x, n), fetches = loop(inside, around)
    plain = hr.Session(graph=g)
    image = IMAGE.astype(np.float32)
    with hr.Session(graph=g, devices={"DLP": 1}, engine=engine) as session:
        for trips in (0, 1, 4):
            feeds = {x: image, n: trips}
            watch = Watch()
            want = plain.run(fetches, feeds)
            for got in (session.run(fetches, feeds), session.run(fetches, feeds, hr.RunOptions(listener=watch))):
                for a, b in zip(got, want, strict=True):
                    np.testing.assert_array_equal(a, b)
            watch.check()
            assert any(t == "MaxPool" and d == FULL for d, t, _ in watch.seen) is (trips > 0)


def test_what_goes_round_stays_there() -> None:
    g, (x, n), (y, _) = loop(DLP, DLP)
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        session.run(y, {x: IMAGE, n: 10})
        few = device(session).puts
        session.run(y, {x: IMAGE, n: 30})
        more = device(session).puts - few
    assert more - few == 2 * 20, "in an iteration: the predicate and the counter, and nothing else"


@ENGINES
def test_branches(engine: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None, None, None, None])
        p = hr.placeholder(hr.bool, [])

        def pool() -> Any:
            with hr.device(DLP):
                return hr.nn.max_pool2d(x, 3, 1, "SAME")

        with hr.device(DLP):
            q = hr.identity(p)
            y = hr.cond(q, pool, lambda: x * 2.0)
    image = IMAGE.astype(np.float32)
    with hr.Session(graph=g, devices={"DLP": 1}, engine=engine) as session:
        for value in (True, False):
            watch = Watch()
            got = session.run([y, q], {x: image, p: value}, hr.RunOptions(listener=watch))
            np.testing.assert_array_equal(got[0], hr.Session(graph=g).run(y, {x: image, p: value}))
            np.testing.assert_array_equal(got[0], session.run(y, {x: image, p: value}))
            assert got[1] == value
            watch.check()


def test_python_objects_go_through_as_they_are() -> None:
    with hr.Graph() as g:
        p = hr.placeholder(hr.bool, [])
        v = hr.Variable(2.0)
        text = hr.placeholder(hr.string, [])
        with hr.device(DLP):
            s = hr.cond(p, lambda: text, lambda: hr.constant("no"))
            _, ta = hr.while_loop(
                lambda i, ta: i < 3,
                lambda i, ta: (i + 1, ta.write(i, hr.cast(i, hr.float32) * v)),
                [0, hr.TensorArray(hr.float32, 3, element_shape=[])],
            )
            out = ta.stack()
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        session.run(v.initializer)
        got = session.run([s, out], {p: True, text: "yes"})
    assert got[0] == b"yes"
    np.testing.assert_array_equal(got[1], [0.0, 2.0, 4.0])


def test_which_input_of_a_merge_came() -> None:
    with hr.Graph() as g:
        x, p = hr.placeholder(hr.float32, []), hr.placeholder(hr.bool, [])
        with hr.device(DLP):
            no, yes = hr.raw_ops.Switch(data=x, pred=p)
            value, index = hr.raw_ops.Merge(inputs=[no, yes])
            out = index + 1
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        watch = Watch()
        got = session.run([value, index, out], {x: 1.0, p: True}, hr.RunOptions(listener=watch))
        assert got == [1.0, 1, 2]
        watch.check()


def test_it_may_have_a_kernel_for_constants() -> None:
    @hr.register_kernel("Const", "DLP")
    def const(attrs: Any) -> Callable[[], Any]:
        from headrace_dlp import DLPArray

        return lambda: DLPArray(FULL, attrs["value"])

    @hr.register_kernel("Add", "DLP")
    @hr.register_kernel("AddV2", "DLP")
    def add(attrs: Any) -> Callable[[Any, Any], Any]:
        return lambda x, y: x.__class__(x.device, x._cells + y._cells)

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
        one = hr.constant(1.0)
        with hr.device(DLP):
            y = x + one
            z = hr.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z + one), [0, y])[1]
        w = one * 5.0
    with hr.Session(graph=g, devices={"DLP": 1}) as session:
        watch = Watch()
        assert session.run([y, z, w], {x: 2.0}, hr.RunOptions(listener=watch)) == [3.0, 6.0, 5.0]
        watch.check()
        assert session.run(z, {x: 2.0}) == 6.0


def test_many_steps_at_once() -> None:
    g, (x, n), fetches = loop(DLP, "")
    image = IMAGE.astype(np.float32)
    want = hr.Session(graph=g).run(fetches, {x: image, n: 3})
    failed: list[BaseException] = []
    with hr.Session(graph=g, devices={"DLP": 1}) as session:

        def work() -> None:
            try:
                for _ in range(5):
                    got = session.run(fetches, {x: image, n: 3})
                    np.testing.assert_array_equal(got[1], want[1])
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not failed

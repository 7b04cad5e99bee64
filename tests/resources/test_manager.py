"""`resources.manager`: owners and names of resources."""

import dataclasses
import json
import threading

import numpy as np
import pytest

from headrace import dtypes, plain_data
from headrace.errors import AlreadyExistsError, CancelledError, InvalidArgumentError, NotFoundError
from headrace.resources.manager import Handle, ResourceManager, destroy, handle_of, resource_of
from headrace.resources.stack import Stack
from headrace.resources.variable import Variable


def variable(name="v"):
    return Variable(name, dtypes.float32, (2,))


def test_a_name_is_made_once():
    m = ResourceManager()
    first = m.lookup_or_create("", Variable, "v", variable)
    assert m.lookup_or_create("localhost", Variable, "v", variable) is first
    assert m.lookup("", Variable, "v") is first
    assert len(m) == 1


def test_container_kind_and_name_tell_resources_apart():
    m = ResourceManager()
    v = m.lookup_or_create("", Variable, "x", variable)
    assert m.lookup_or_create("c", Variable, "x", variable) is not v
    assert isinstance(m.lookup_or_create("", Stack, "x", lambda: Stack("x", dtypes.float32)), Stack)
    assert len(m) == 3


def test_misses_and_duplicates_say_so():
    m = ResourceManager()
    with pytest.raises(NotFoundError, match=r"Resource localhost/v/Variable does not exist"):
        m.lookup("", Variable, "v")
    with pytest.raises(NotFoundError, match=r"Resource c/v/Variable does not exist"):
        m.delete("c", Variable, "v")
    m.create("", Variable, "v", variable())
    with pytest.raises(AlreadyExistsError, match=r"localhost/v/Variable exists already"):
        m.create("", Variable, "v", variable())


def test_deleting_lets_go_of_what_it_holds():
    m = ResourceManager()
    v = m.create("", Variable, "v", variable())
    v.assign(np.zeros(2, np.float32))
    m.delete("", Variable, "v")
    assert not v.is_initialized
    assert len(m) == 0


def test_clearing_a_container_leaves_the_others():
    m = ResourceManager()
    m.create("a", Variable, "v", variable())
    kept = m.create("b", Variable, "v", variable())
    m.clear_container("a")
    m.clear_container("nowhere")
    assert m.lookup("b", Variable, "v") is kept
    assert len(m) == 1


def test_a_closed_manager_creates_nothing():
    m = ResourceManager()
    s = m.create("", Stack, "s", Stack("s", dtypes.float32))
    m.close()
    m.close()
    with pytest.raises(InvalidArgumentError, match="already been closed"):
        s.pop()
    with pytest.raises(CancelledError, match="closed"):
        m.lookup_or_create("", Variable, "v", variable)
    assert "closed" in repr(m)


def test_unique_names():
    m = ResourceManager()
    assert m.unique_name("s") != m.unique_name("s")


def test_racing_creators_get_the_same_object():
    m = ResourceManager()
    start = threading.Barrier(8)
    got = []

    def work():
        start.wait()
        got.append(m.lookup_or_create("", Variable, "v", variable))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(map(id, got))) == 1


class Step:
    """The managers of a running step."""

    def __init__(self) -> None:
        self.session, self.resources = ResourceManager(), ResourceManager()


class Op:
    device = "/device:CPU:1"


def test_a_handle_is_data():
    h = handle_of(Op, "", Variable, "v", dtypes.float32, (2, None))
    assert h == Handle("/device:CPU:1", "localhost", "Variable", "v", False, "float32", (2, None))
    assert repr(h) == "<Variable localhost/v of float32[2,?]>"
    data = plain_data.encode(h)
    assert json.loads(json.dumps(data)) == data
    assert plain_data.decode(Handle, data) == h
    with pytest.raises(dataclasses.FrozenInstanceError):
        h.name = "w"
    with pytest.raises(ValueError, match=r"Handle\.owned: expected None, got str of length 8"):
        plain_data.decode(Handle, [*data[:-1], "anything"])


def test_a_handle_is_resolved_in_the_session_or_the_step():
    step = Step()
    v = step.session.create("", Variable, "v", variable())
    s = step.resources.create("c", Stack, "s", Stack("s", dtypes.float32))
    of_session, of_step = handle_of(Op, "", Variable, "v"), handle_of(Op, "c", Stack, "s", of_step=True)
    assert resource_of(step, of_session, Variable) is v
    assert resource_of(step, plain_data.decode(Handle, plain_data.encode(of_step)), Stack) is s
    with pytest.raises(InvalidArgumentError, match="as a Stack, but it is a Variable"):
        resource_of(step, of_session, Stack)
    for other in (handle_of(Op, "d", Variable, "v"), handle_of(Op, "", Variable, "v", of_step=True)):
        with pytest.raises(NotFoundError, match="/v/Variable does not exist"):
            resource_of(step, other, Variable)
    for wrong in (7, None, "v"):
        with pytest.raises(InvalidArgumentError, match=r"expected the handle of a Variable \(a scalar of dtype"):
            resource_of(step, wrong, Variable)


def test_a_resource_may_belong_to_its_handle():
    v = variable()
    h = dataclasses.replace(handle_of(Op, "", Variable, "v"), owned=v)
    assert resource_of(Step(), h, Variable) is v
    with pytest.raises(InvalidArgumentError, match="as a Stack, but it is a Variable"):
        resource_of(Step(), h, Stack)
    with pytest.raises(TypeError, match="is an object of this process, and cannot be encoded"):
        plain_data.encode(h)


def test_destroying_the_resource_of_a_handle():
    step = Step()
    v = step.session.create("", Variable, "v", variable())
    v.assign(np.zeros(2, np.float32))
    h = handle_of(Op, "", Variable, "v")
    assert destroy(step, h)
    assert not v.is_initialized
    assert not destroy(step, h)
    with pytest.raises(InvalidArgumentError, match="expected the handle of a resource"):
        destroy(step, 7)

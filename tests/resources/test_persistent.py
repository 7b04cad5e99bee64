"""`resources.persistent.Vector` against Python tuples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources.persistent import Vector

# sizes about the borders of leaves and levels
SIZES = [0, 1, 2, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 1055, 1056, 1057, 1088, 32768 + 31, 32768 + 33]


@pytest.mark.parametrize("n", SIZES)
def test_pushing_building_and_filling_agree(n):
    built = Vector.of(range(n))
    pushed = Vector()
    for i in range(n):
        pushed = pushed.push(i)
    filled = Vector.filled("x", n)
    assert list(built) == list(pushed) == list(range(n))
    assert list(filled) == ["x"] * n
    for i in {0, n // 2, n - 1} & set(range(n)):
        assert built[i] == pushed[i] == i
        assert list(filled.set(i, "y")) == ["x"] * i + ["y"] + ["x"] * (n - i - 1)
    more = filled.push("y").push("z")
    assert list(more) == ["x"] * n + ["y", "z"]


@pytest.mark.parametrize("n", SIZES)
def test_popping_to_the_end(n):
    v = Vector.of(range(n))
    for i in reversed(range(n)):
        v, last = v.pop()
        assert last == i
        assert len(v) == i
    with pytest.raises(IndexError):
        v.pop()


def test_indices_are_checked():
    v = Vector.of("ab")
    for i in (-1, 2):
        with pytest.raises(IndexError):
            v[i]


def test_a_filled_vector_costs_nothing():
    assert len(Vector.filled(0, 2**31 - 1)) == 2**31 - 1


@given(st.data(), st.sampled_from([0, 30, 33, 1054, 1057]))
def test_every_version_stays_what_it_was(data, n):
    """Random pushes, pops and sets on random earlier versions: all versions equal their models, always."""
    versions = [(Vector.of(range(n)), tuple(range(n)))]
    for step in range(data.draw(st.integers(1, 40))):
        v, model = versions[data.draw(st.integers(0, len(versions) - 1))]
        kind = data.draw(st.sampled_from(["push", "push", "pop", "set"]))
        if kind == "push":
            versions.append((v.push(("new", step)), (*model, ("new", step))))
        elif model and kind == "pop":
            rest, last = v.pop()
            assert last == model[-1]
            versions.append((rest, model[:-1]))
        elif model:
            i = data.draw(st.integers(0, len(model) - 1))
            versions.append((v.set(i, ("set", step)), (*model[:i], ("set", step), *model[i + 1 :])))
            assert versions[-1][0][i] == ("set", step)
    for v, model in versions:
        assert len(v) == len(model)
        assert tuple(v) == model

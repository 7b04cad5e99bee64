"""`resources.persistent.Vector` against Python tuples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources.persistent import BLANK, Vector

# sizes about the borders of leaves and levels
SIZES = [0, 1, 2, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 1055, 1056, 1057, 1088, 32768 + 31, 32768 + 33]


@pytest.mark.parametrize("n", SIZES)
def test_pushing_building_and_filling_agree(n):
    built = Vector.of(range(n))
    pushed = Vector()
    for i in range(n):
        pushed = pushed.push(i)
    filled = Vector.blank(n)
    assert list(built) == list(pushed) == list(range(n))
    assert list(filled) == [BLANK] * n
    for i in {0, n // 2, n - 1} & set(range(n)):
        assert built[i] == pushed[i] == i
        assert list(filled.set(i, "y")) == [BLANK] * i + ["y"] + [BLANK] * (n - i - 1)
    more = filled.push("y").push("z")
    assert list(more) == [BLANK] * n + ["y", "z"]


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


def test_a_blank_vector_costs_nothing():
    assert len(Vector.blank(2**31 - 1)) == 2**31 - 1


@pytest.mark.matrix
@given(st.data(), st.sampled_from([1, 30, 33, 1054, 1057]))
def test_merging(data, n):
    """Merging applies the function to elements that are in both vectors.

    The vectors have been filled in part, and emptied again.
    """
    vectors, models = [], []
    for _ in range(2):
        v, model = Vector.blank(n), {}
        for _ in range(data.draw(st.integers(0, 20))):
            i, value = data.draw(st.integers(0, n - 1)), data.draw(st.sampled_from([1, 2, BLANK]))
            v, model[i] = v.set(i, value), value
        if data.draw(st.booleans()):
            v = v.push(3).pop()[0]
        vectors.append(v)
        models.append({i: x for i, x in model.items() if x is not BLANK})
    calls = []
    got = vectors[0].merged(vectors[1], lambda a, b: calls.append((a, b)) or a + 10 * b)
    a, b = models
    assert list(got) == [a[i] + 10 * b[i] if i in a and i in b else a.get(i, b.get(i, BLANK)) for i in range(n)]
    assert len(calls) == len(a.keys() & b.keys())


def test_merging_does_not_look_where_nothing_is():
    n = 2**31 - 1
    a = Vector.blank(n).set(n // 2, 1).set(5, 1).set(5, BLANK)
    b = Vector.blank(n).set(n // 2, 2).set(7, 3)
    merged = a.merged(b, lambda x, y: x + y)
    assert [merged[i] for i in (n // 2, 5, 7, n - 1)] == [3, BLANK, 3, BLANK]


@pytest.mark.matrix
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

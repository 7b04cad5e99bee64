"""SavedModels that `hr.saved_model.save` writes compute, differentiate and train in TensorFlow as here."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.written_saved_models import MODELS, NAMES

COMPARE = """
def called(obj, name):
    return obj if name == "__call__" else obj[name] if isinstance(obj, dict) else getattr(obj, name)


def same(a, b, name):
    a, b = tf.nest.flatten(plain(a)), tf.nest.flatten(plain(b))
    assert len(a) == len(b), (name, a, b)
    for x, y in zip(a, b):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape, (name, x, y)
        if name == "random_numbers":
            assert ((2 <= y) & (y < 3)).all() and len(set(y.tolist())) > 1
        elif x.dtype.kind in "OS":
            assert x.tolist() == y.tolist(), (name, x, y)
        else:
            np.testing.assert_allclose(y.astype(float), x.astype(float), rtol=2e-5, atol=2e-6, err_msg=name)


def plain(x):
    if hasattr(x, "numpy"):
        return x.numpy()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def tensors(x):
    return hr.nest_map(x) if False else convert(x)


def convert(x):
    if isinstance(x, (np.ndarray, np.generic)):
        return hr.constant(x)
    if isinstance(x, dict):
        return {k: convert(v) for k, v in x.items()}
    return [convert(v) for v in x] if isinstance(x, list) else x


def loss_of(lib, value):
    parts = [v for v in tf.nest.flatten(value) if v.dtype.is_floating]
    return sum(lib.reduce_sum(lib.square(v)) for v in parts) if parts else None


def variables_of(loaded, reloaded):
    return dict(zip(loaded, reloaded))


def check(name, make):
    obj, calls = make()
    at = [(called(obj, n), tuple(map(convert, a)), convert(k)) for n, a, k in calls]
    for f, a, k in at:  # traces
        f(*a, **k)
    folder = os.path.join(tempfile.mkdtemp(), name)
    hr.saved_model.save(obj, folder)
    loaded = tf.saved_model.load(folder)
    theirs = [called(loaded, n) for n, _, _ in calls]
    pairs = pair(obj, loaded, folder)
    for (n, a, k), (f, ours_a, ours_k), g in zip(calls, at, theirs):
        same(f(*ours_a, **ours_k), g(*map(tensor, a), **{key: tensor(v) for key, v in k.items()}), name)
    learned = [(v, w) for v, w in pairs if w.trainable and w.dtype.is_floating]
    for step in range(3):
        if name == "random_numbers" or not learned:
            break
        for (n, a, k), (f, ours_a, ours_k), g in zip(calls, at, theirs):
            with hr.GradientTape() as ours:
                ours_loss = loss_of(hr, f(*ours_a, **ours_k))
            with tf.GradientTape() as tape:
                loss = loss_of(tf, g(*map(tensor, a), **{key: tensor(v) for key, v in k.items()}))
            if loss is None:
                continue
            same(ours_loss, loss, name)
            found = ours.gradient(ours_loss, [v for v, _ in learned])
            expected = tape.gradient(loss, [w for _, w in learned])
            for (v, w), x, y in zip(learned, found, expected):
                assert (x is None) == (y is None), (name, v.name, x, y)
                if x is not None:
                    x, y = (np.asarray(t.numpy() if hasattr(t, "numpy") else dense(t)) for t in (hr.convert_to_tensor(x), tf.convert_to_tensor(y)))
                    same(x, y, name)
                    v.assign_sub(0.01 * x)
                    w.assign_sub(0.01 * y)
    for v, w in pairs:
        same(v.numpy(), w.numpy(), name)
    return folder, len(learned)


def tensor(x):
    if isinstance(x, dict):
        return {k: tensor(v) for k, v in x.items()}
    if isinstance(x, list):
        return [tensor(v) for v in x]
    return tf.constant(x) if isinstance(x, (np.ndarray, np.generic)) else x


def pair(obj, loaded, folder):
    '''Pairs of the variables of both systems, by the paths of the checkpoint.'''
    from headrace.saved_model.model import Model
    from headrace.api.variable import Variable

    model = Model(obj, {}, ["serve"])
    out = []
    for i, v in model._tree.leaves(Variable):
        x = loaded
        for part in model._tree.paths[i].split("/"):
            x = x[int(part)] if isinstance(x, list) else x[part] if isinstance(x, dict) else getattr(x, part)
        out.append((v, x))
    return out
"""


def test_objects_compute_differentiate_and_train_in_tensorflow(run_python: Callable[[str], bytes]) -> None:
    out = run_python(MODELS + COMPARE + f"done = [check(n, globals()[n]) for n in {NAMES!r}]\nprint(len(done), 'models')\n")
    assert f"{len(NAMES)} models".encode() in out
    assert len(NAMES) >= 20

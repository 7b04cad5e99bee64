"""What an installed wheel must be able to do, and what must and must not lie in it. Run by .ci/run."""

import re
import sys
import tempfile
import zipfile

import headrace as hr
import headrace.v1 as tf
from headrace import documentation, pb

names = zipfile.ZipFile(sys.argv[1]).namelist()
for needed in ("headrace/py.typed", "headrace/pb/graph_pb2.py", "headrace/pb/graph_pb2.pyi", "headrace/session.py"):
    assert needed in names, f"{needed} is missing from the wheel"
for name in ("LICENSE", "NOTICE"):
    assert any(n.endswith(f".dist-info/licenses/{name}") for n in names), f"{name} is missing from the wheel"
stray = [n for n in names if not n.startswith(("headrace/", "headrace-"))]
assert not stray, f"the wheel holds more than the package: {stray}"

graph = pb.GraphDef()
for name, value in (("a", 2.0), ("b", 3.0)):
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = pb.DT_FLOAT
    node.attr["value"].tensor.CopyFrom(
        pb.TensorProto(dtype=pb.DT_FLOAT, tensor_shape=pb.TensorShapeProto(), float_val=[value])
    )
total = graph.node.add(name="y", op="AddV2", input=["a", "b"])
total.attr["T"].type = pb.DT_FLOAT

g = hr.Graph()
with g.as_default():
    hr.import_graph_def(graph.SerializeToString(), name="")
session = hr.Session(graph=g)
result = session.run("y:0")
session.close()
assert result == 5.0, result
assert result.dtype.name == "float32", result.dtype
# Training needs none of the extras.
with hr.Graph() as g:
    v = hr.Variable(1.0)
    step = hr.train.SGD(0.25).minimize(v * v)
    saver = hr.train.Saver()
with tempfile.TemporaryDirectory() as folder, hr.Session(graph=g) as session:
    session.run(v.initializer)
    session.run(step)
    path = saver.save(session, f"{folder}/model")
    session.run(v.initializer)
    saver.restore(session, path)
    assert session.run(v) == 0.5
# The page that an error cites comes with the package.
assert "headrace/docs/index.md" in names
try:
    tf.no_such_name  # noqa: B018
except AttributeError as e:
    cited = re.findall("`headrace docs ([^`]*)`", str(e))
assert len(cited) == 1, cited
assert documentation.text(cited[0]).startswith("# ")
print("wheel: fine")

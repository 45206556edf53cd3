"""ONNX's operators in PyTorch give what onnx.reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("array_api_compat", reason="needs the extra onnx")

from onnx import helper  # noqa: E402  after onnx is known to be there

import gradkern.onnx  # noqa: E402
from gradkern.onnx.arrays import dtype_name, to_host  # noqa: E402
from gradkern.onnx.onnx_ops import ONNX  # noqa: E402

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
Y = np.linspace(0.5, 3, 24, dtype=np.float32).reshape(2, 3, 4)[:, ::-1].copy()
ROW, MASK = Y[0, 0], X > 0
PLANES = np.random.default_rng(0).standard_normal((2, 3, 7, 6), np.float32)
AXES = np.array([0, 2])
POOL: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}
CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    *(
        (name, [X], {})
        for name in [
            "Abs",
            "Ceil",
            "Cos",
            "Erf",
            "Exp",
            "Floor",
            "Identity",
            "Neg",
            "Relu",
            "Round",
            "Sigmoid",
            "Sign",
            "Sin",
            "Tan",
            "Tanh",
        ]
    ),
    *((name, [Y], {}) for name in ["Log", "Reciprocal", "Softplus", "Sqrt"]),
    *(
        (name, [X, ROW], {})
        for name in ["Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
    ),
    *((name, [X, Y, ROW], {}) for name in ["Sum", "Max", "Min"]),
    *((name, [MASK, MASK[:, ::-1]], {}) for name in ["And", "Or", "Xor"]),
    *((f"Reduce{name}", [Y, AXES], {"keepdims": 0}) for name in ["L2", "Max", "Mean", "Min", "Sum", "SumSquare"]),
    ("ReduceSum", [X, np.array([], np.int64)], {"noop_with_empty_axes": 1}),
    ("ReduceSum", [X], {}),
    ("Not", [MASK], {}),
    ("IsNaN", [np.where(MASK, X, np.float32(np.nan))], {}),
    ("Div", [np.array([7, -7]), np.array([2, 2])], {}),
    ("Pow", [Y, np.array(2)], {}),
    ("MatMul", [X, Y.transpose(0, 2, 1).copy()], {}),
    ("Gemm", [X[0], Y[0], np.ones(3, np.float32)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [X[0], Y[0]], {"transA": 1}),
    ("Cast", [X], {"to": onnx.TensorProto.FLOAT16}),
    ("Clip", [X, np.array(-1, np.float32), np.array(0.5, np.float32)], {}),
    ("Clip", [X, np.array(0, np.float32)], {}),
    ("Clip", [X], {}),
    ("Concat", [X, Y], {"axis": -2}),
    ("Split", [X, np.array([1, 3])], {"axis": 2}),
    ("Split", [X], {"axis": 2, "num_outputs": 2}),
    ("Expand", [ROW, np.array([3, 1])], {}),
    ("Flatten", [X], {"axis": 2}),
    ("Reshape", [X, np.array([0, -1])], {}),
    ("Transpose", [X], {"perm": [2, 0, 1]}),
    ("Transpose", [X], {}),
    ("Transpose", [np.array(3, np.float32)], {}),
    ("Unsqueeze", [X, np.array([0, -1])], {}),
    ("Squeeze", [X[:1], np.array([0])], {}),
    ("Squeeze", [X[:1]], {}),
    ("Gather", [X, np.array([[2, -1], [0, 0]])], {"axis": 1}),
    ("Gather", [X, np.array(-1)], {"axis": -1}),
    ("GatherElements", [X, np.array([[[0, -1, 2, 1]]] * 2)], {"axis": 1}),
    ("Slice", [X, np.array([1, -1]), np.array([3, -10]), np.array([1, -1]), np.array([1, -2])], {}),
    ("Where", [MASK, X, ROW], {}),
    ("Trilu", [X, np.array(1)], {"upper": 0}),
    ("Shape", [X], {"start": 1}),
    ("Size", [X], {}),
    ("Softmax", [X], {"axis": 1}),
    ("LogSoftmax", [X], {}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("AveragePool", [PLANES], {**POOL, "count_include_pad": 1}),
    ("BatchNormalization", [PLANES, *Y[0, :, :3], Y[1, 0, :3]], {"epsilon": 0.5}),
    ("GlobalAveragePool", [PLANES], {}),
]
OUTPUTS = {"Split": 2}


@pytest.mark.torch
def test_operators_in_pytorch_give_what_the_reference_gives() -> None:
    import torch

    for op, inputs, attributes in CASES:
        names = [f"x{at}" for at in range(len(inputs))]
        outputs = [f"y{at}" for at in range(OUTPUTS.get(op, 1))]
        node = helper.make_node(op, names, outputs, **attributes)
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in zip(names, inputs, strict=True)
        ]
        graph = helper.make_graph([node], "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        expected = onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
        session = gradkern.onnx.load(model)
        session._graph.nodes[0].operator = None  # where the registry has it, too
        found = session.run({name: torch.tensor(each.copy()) for name, each in zip(names, inputs, strict=True)})
        assert session.report()[0]["by"] == "torch", op
        for ours, theirs in zip(map(to_host, found.values()), expected, strict=True):
            assert (op, ours.dtype, ours.shape) == (op, theirs.dtype, theirs.shape)
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6, err_msg=op)
    assert {op for op, _, _ in CASES} == {op for _, op in ONNX}


@pytest.mark.torch
def test_an_empty_tensor_is_flattened() -> None:
    """NumPy and PyTorch cannot say what -1 is beside a size of 0: the reference fails."""
    import torch

    for axis, shape in ((1, (0, 12)), (-1, (0, 4)), (0, (1, 0)), (3, (0, 1))):
        assert ONNX["", "Flatten"].function(torch, torch.empty(0, 3, 4), axis=axis).shape == shape


@pytest.mark.torch
def test_what_pytorch_does_not_have_is_computed_on_the_host_and_says_so() -> None:
    import torch

    nodes = [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[0, 0, 1, 1])]
    nodes.append(helper.make_node("CumSum", ["y", "axis"], ["z"]))
    values = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, PLANES.shape)]
    axis = [onnx.numpy_helper.from_array(np.array(2), "axis")]
    graph = helper.make_graph(nodes, "graph", values, [onnx.ValueInfoProto(name="z")], axis)
    session = gradkern.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    found = session.run({"x": torch.tensor(PLANES)})["z"]
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), session.run({"x": PLANES})["z"])
    session.run({"x": torch.tensor(PLANES)})
    assert [each["by"] for each in session.report()] == ["onnx.reference"] * 2
    assert [each["why"].partition(":")[0] for each in session.report()] == ["on the host"] * 2


@pytest.mark.torch
@pytest.mark.parametrize(
    ("op", "x", "attributes"),
    [
        ("AveragePool", PLANES, {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2]}),
        ("ReduceMax", X[:, :0], {"axes": [1]}),
        ("Cast", np.array([[1e6, 448.5, -3, np.inf]], np.float32), {"to": onnx.TensorProto.FLOAT8E5M2}),
    ],
)
def test_what_pytorch_refuses_or_rounds_otherwise_is_computed_on_the_host(
    op: str, x: np.ndarray, attributes: dict[str, Any]
) -> None:
    import torch

    values = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], **attributes)], "graph", values, [onnx.ValueInfoProto(name="y")]
    )
    opsets = [helper.make_opsetid("", 17 if op == "ReduceMax" else 19)]
    session = gradkern.onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    found = session.run({"x": torch.tensor(x)})["y"]
    assert isinstance(found, torch.Tensor)
    assert session.report()[0]["why"].startswith("on the host: ")
    np.testing.assert_array_equal(to_host(found), session.run({"x": x})["y"])


@pytest.mark.torch
def test_tensors_and_arrays_have_the_opsets_own_results() -> None:
    """Before opset 13 a softmax is of all axes behind `axis`, which onnx.reference does not know."""
    import torch

    cases: list[tuple[str, np.ndarray, int, dict[str, Any], list[Any]]] = [
        ("Split", np.arange(6.0), 13, {}, [[0, 1, 2], [3, 4, 5]]),
        ("Split", np.arange(1.0), 18, {"num_outputs": 2}, [[0], []]),
        ("ReduceMean", np.array([1, 3]), 13, {}, [[2]]),
        ("ReduceL2", np.array([3, 4]), 13, {}, [[5]]),
        ("Softmax", np.zeros((2, 3, 2)), 11, {}, [np.full((2, 3, 2), 1 / 6)]),
        ("Softmax", np.zeros((2, 3, 2)), 13, {}, [np.full((2, 3, 2), 1 / 2)]),
        ("LogSoftmax", np.zeros((2, 3, 2)), 12, {"axis": 0}, [np.full((2, 3, 2), -np.log(12))]),
    ]
    for op, x, opset, attributes, expected in cases:
        outputs = [f"y{at}" for at in range(len(expected))]
        values = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
        node = helper.make_node(op, ["x"], outputs, **attributes)
        graph = helper.make_graph([node], "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs])
        imports = [helper.make_opsetid("", opset)]
        session = gradkern.onnx.load(helper.make_model(graph, opset_imports=imports, ir_version=8))
        for given in (x, torch.tensor(x)):
            for ours, want in zip(session.run({"x": given}).values(), expected, strict=True):
                assert (op, dtype_name(ours)) == (op, x.dtype.name)
                np.testing.assert_allclose(to_host(ours), want, rtol=1e-6, err_msg=op)

"""Models that cannot be run are refused before a node is computed; those that can, name what they are given wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("array_api_compat", reason="needs the extra onnx")

from onnx import TensorProto, helper  # noqa: E402  after onnx is known to be there

import gradkern.onnx  # noqa: E402
from gradkern import (  # noqa: E402
    ArgumentError,
    AttributeValueError,
    DataError,
    DeviceError,
    DTypeError,
    ShapeError,
    UnknownOperatorError,
)
from gradkern.onnx import GraphError  # noqa: E402

MICROSOFT = "com.microsoft"


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    domain = attributes.pop("domain", "")
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"the_{op}", domain=domain, **attributes)


def model(*nodes: Any, inputs: str = "x", outputs: str = "y", kind: int = TensorProto.FLOAT, data: Any = ()) -> Any:
    values = [helper.make_tensor_value_info(name, kind, ["N", 3]) for name in inputs.split()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    graph = helper.make_graph(nodes, "graph", values, results, list(data))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def itself() -> Any:
    found = model(node("Twice", "x", "y", domain="mine"))
    found.opset_import.append(helper.make_opsetid("mine", 1))
    body = [helper.make_node("Twice", ["a"], ["b"], domain="mine")]
    found.functions.append(helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("mine", 1)]))
    return found


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "unknown operator": (
        lambda: model(node("ReluGrd", "x x", "y", domain=MICROSOFT)),
        UnknownOperatorError,
        r"^ReluGrd the_ReluGrd: unknown operator 'ReluGrd' of domain 'com.microsoft' \(did you mean ReluGrad",
    ),
    "unknown domain": (
        lambda: model(node("Relu", "x", "y", domain="mine")),
        GraphError,
        "^Relu the_Relu: the model imports no operators of domain 'mine'",
    ),
    "missing initializer": (
        lambda: model(node("Add", "x weigth", "y"), data=[onnx.numpy_helper.from_array(np.ones(3), "weight")]),
        GraphError,
        r"^Add the_Add: nothing gives weigth \(did you mean weight\?\)",
    ),
    "a type that the contract refuses": (
        lambda: model(node("Cast", "x", "i", to=TensorProto.INT32), node("ReluGrad", "i i", "y", domain=MICROSOFT)),
        DTypeError,
        "^ReluGrad the_ReluGrad: input dY has type int32; T allows float32",
    ),
    "types that do not go together": (
        lambda: model(node("Cast", "x", "h", to=10), node("TanhGrad", "x h", "y", domain=MICROSOFT)),
        DTypeError,
        "^TanhGrad the_TanhGrad: input Y has type float16, but input dY has float32",
    ),
    "an attribute's value": (
        lambda: model(node("SoftmaxGrad", "x x", "y", domain=MICROSOFT, axis="last")),
        AttributeValueError,
        "^SoftmaxGrad the_SoftmaxGrad: attribute axis is 'last'; expected an int",
    ),
    "an attribute's name": (
        lambda: model(node("FusedMatMul", "x x", "y", domain=MICROSOFT, transa=1)),
        AttributeValueError,
        "^FusedMatMul the_FusedMatMul: unknown attribute transa; it has alpha, transA",
    ),
    "an operand that is missing": (
        lambda: model(node("TanhGrad", "x", "y", domain=MICROSOFT)),
        ArgumentError,
        "^TanhGrad the_TanhGrad: input Y is missing",
    ),
    "ONNX's own checks": (lambda: model(node("Gemm", "x", "y")), GraphError, "^Gemm the_Gemm: Node.*input size 1"),
    "no output": (lambda: model(node("Relu", "x", ""), outputs="x"), GraphError, "^Relu the_Relu: it has no output"),
    "none of several operands": (
        lambda: model(node("PassThrough", "", "y", domain=MICROSOFT)),
        ArgumentError,
        "^PassThrough the_PassThrough: it does not take 0 inputs",
    ),
    "a type that ONNX does not have": (
        lambda: model(node("MixedPrecisionScale", "x x x", "y", domain=MICROSOFT, to=999)),
        GraphError,
        "^MixedPrecisionScale the_MixedPrecisionScale: attribute to is 999",
    ),
    "an input's type": (lambda: model(outputs="x", kind=999), GraphError, "^type of x is 999"),
    "a text that is none": (
        lambda: model(node("QuickGelu", "x", "y", domain=MICROSOFT, alpha=b"\xff")),
        GraphError,
        "^QuickGelu the_QuickGelu: attribute alpha cannot be read",
    ),
    "an input twice": (lambda: model(inputs="x x", outputs="x"), GraphError, "^the graph has the input x twice"),
    "a function of itself": (itself, GraphError, "^the model's functions cannot be inlined: .*[Cc]ycle"),
    "a path that is none": (lambda: b"onnx", ArgumentError, "^model is a bytes; expected the path"),
    "a cycle": (
        lambda: model(node("Add", "x b", "y"), node("Relu", "y", "b")),
        GraphError,
        "^the graph has a cycle: .*Relu the_Relu",
    ),
    "two nodes for one value": (
        lambda: model(node("Relu", "x", "y"), node("Neg", "x", "y")),
        GraphError,
        "^Neg the_Neg: output y has its value already",
    ),
    "an output of nothing": (lambda: model(outputs="y"), GraphError, "^nothing gives y, an output of the graph"),
    "control flow": (
        lambda: model(node("If", "x", "y", then_branch=model().graph, else_branch=model().graph)),
        UnknownOperatorError,
        "^If the_If: operators with graphs of their own",
    ),
    "a shape that only the model can say": (
        lambda: model(node("MaxPoolGrad", "x x", "y", kernel_shape=[2])),
        GraphError,
        "^MaxPoolGrad the_MaxPoolGrad: the model does not say the shape of y",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_graph_that_cannot_be_run_is_refused_when_it_is_loaded(name: str) -> None:
    made, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        gradkern.onnx.load(made())


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content, message in (
        (b"PK\x03\x04 not ONNX", "is no ONNX model"),
        (b"", "it has no graph"),
        (b"\x18\x00\x00\x00ORTM\x00", "ONNX Runtime's own format"),
    ):
        path.write_bytes(content)
        with pytest.raises(GraphError, match=message):
            gradkern.onnx.load(path)
    with pytest.raises(FileNotFoundError):
        gradkern.onnx.load(tmp_path / "none.onnx")


def test_external_data_comes_from_the_models_folder_alone(tmp_path: Path) -> None:
    weight = np.arange(3, dtype=np.float32)
    it = model(node("Add", "x weight", "y"), data=[onnx.numpy_helper.from_array(weight, "weight")])
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(it, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(gradkern.onnx.load(path).run({"x": x})["y"], x + weight)
    with pytest.raises(GraphError, match="initializer weight is external data"):
        gradkern.onnx.load(onnx.load(path, load_external_data=False))
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    with pytest.raises(GraphError, match=r"model.onnx is no ONNX model that can be read: .*weights\.bin"):
        gradkern.onnx.load(path)
    outside = onnx.load(path, load_external_data=False)
    outside.graph.initializer[0].external_data[0].value = "../weights.bin"
    path.write_bytes(outside.SerializeToString())
    with pytest.raises(GraphError, match=r"can be read: .*\.\./weights\.bin"):
        gradkern.onnx.load(path)


def test_inputs_are_checked_before_anything_is_computed() -> None:
    seen: list[str] = []
    session = gradkern.onnx.load(model(node("Add", "x z", "y"), inputs="x z"))
    x = np.ones((2, 3), np.float32)
    for inputs, kind, message in (
        ({"x": x}, ArgumentError, "^input z of the graph is missing; it takes x, z"),
        ({"x": x, "z": x, "w": x}, ArgumentError, "^the graph has no input 'w'"),
        ({"x": x, "z": x.astype(np.float64)}, DTypeError, "^input z has type float64; the graph takes float32"),
        (
            {"x": x, "z": np.ones((2, 4), np.float32)},
            ShapeError,
            r"^input z has shape \(2, 4\); the graph takes \(N, 3\)",
        ),
        ({"x": x, "z": x[:1]}, ShapeError, "^input z has size 1 for N, which is 2 in input x"),
        *(
            ({"x": x, "z": each}, ArgumentError, f"^input z is a {type(each).__name__}; expected an array")
            for each in (object(), None, "text", memoryview(b"text"))
        ),
    ):
        with pytest.raises(kind, match=message):
            session.run(inputs, progress=seen.append)
    assert not seen
    with pytest.raises(ArgumentError, match=r"^inputs is a list; expected arrays by name"):
        session.run(cast(Any, [x, x]))
    with pytest.raises(ArgumentError, match=r"^the graph has no value 'why'"):
        session.run({"x": x, "z": x}, outputs=["why"])


def test_an_error_of_a_node_names_it() -> None:
    session = gradkern.onnx.load(model(node("Transpose", "x", "t"), node("Add", "x t", "y")))
    with pytest.raises(DataError, match=r"^Add the_Add: .*broadcast"):
        session.run({"x": np.ones((2, 3), np.float32)})


def test_nodes_in_any_order_and_functions_of_the_model_are_computed() -> None:
    it = model(node("Twice", "r", "y", domain="mine"), node("Relu", "x", "r", domain="ai.onnx"))
    it.opset_import.append(helper.make_opsetid("mine", 1))
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    it.functions.append(helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    x = np.array([[-1, 2, 3]], np.float32)
    np.testing.assert_array_equal(gradkern.onnx.load(it).run({"x": x})["y"], [[0, 4, 6]])


def test_operators_that_onnx_got_later_are_onnx_runtimes_own_in_older_opsets() -> None:
    """ONNX Runtime makes LayerNormalization of an older model's own sums and roots."""
    it = model(
        node("LayerNormalization", "x scale", "y"), data=[onnx.numpy_helper.from_array(np.ones(3, "f"), "scale")]
    )
    it.opset_import[0].version = 15
    session = gradkern.onnx.load(it)
    x = np.array([[1, 2, 3]], np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], [[-1.2247, 0, 1.2247]], atol=1e-3)
    assert session.report()[0]["by"] == "gradkern"


@pytest.mark.parametrize("training", [{}, {"training_mode": 0}, {"training_mode": 1}])
def test_attributes_that_a_node_lacks_are_at_onnxs_defaults(training: dict[str, int]) -> None:
    """BatchNormalization is that of inference there; the registry's, of the same name, is that of training."""
    x, rows = (
        np.array([[[1, 2, 3]], [[5, 0, 7]]], np.float32),
        [("scale", 2.0), ("b", 1.0), ("mean", 0.5), ("var", 4.0)],
    )
    data = [onnx.numpy_helper.from_array(np.full(1, value, np.float32), name) for name, value in rows]
    it = model(node("BatchNormalization", "x scale b mean var", "y", **training), data=data)
    it.graph.input[0].type.tensor_type.ClearField("shape")
    session = gradkern.onnx.load(it)
    mean, variance = (x.mean(), x.var()) if training.get("training_mode") else (0.5, 4.0)
    found = session.run({"x": x})["y"]
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 1e-5) * 2 + 1, rtol=1e-5)
    by = session.report()[0]["by"]
    assert by == ("gradkern" if training.get("training_mode") else "onnx.reference")


@pytest.mark.torch
def test_weights_may_be_parameters_of_pytorch_and_are_updated_in_place() -> None:
    import torch

    step = helper.make_node("InPlaceAccumulatorV2", ["w", "x"], ["done"], domain=MICROSOFT)
    session = gradkern.onnx.load(model(step, inputs="w x", outputs="done"))
    assert session.updated == ("w",)
    weight = torch.nn.Parameter(torch.ones(2, 3))
    session.run({"w": weight, "x": torch.full((2, 3), 2.0)})
    assert weight.requires_grad
    assert weight.is_leaf
    assert weight.tolist() == [[3.0] * 3] * 2
    with pytest.raises(DeviceError, match=r"^input w is updated in place, and not on cpu, where the others are"):
        session.run({"w": np.ones((2, 3), np.float32), "x": torch.ones(2, 3)})


def test_memory_is_reused_only_where_nobody_else_reads_it() -> None:
    """x and y are the caller's; the Reshape is a view of a; b has its own memory, and is wanted."""
    grads = [node("TanhGrad", f"{dy} x", name, domain=MICROSOFT) for dy, name in (("a", "p"), ("b", "q"), ("x", "r"))]
    it = model(
        node("Neg", "x", "a"), node("Flatten", "a", "view"), node("Neg", "x", "b"), *grads,
        node("TanhGrad", "p view", "s", domain=MICROSOFT), outputs="q r s",
    )  # fmt: skip
    session = gradkern.onnx.load(it)
    x = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    before = x.copy()
    found = session.run({"x": x})
    p = -x * (1 - x * x)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(found["q"], p, rtol=1e-5)
    np.testing.assert_allclose(found["r"], -p, rtol=1e-5)
    np.testing.assert_allclose(found["s"], p * (1 - x * x), rtol=1e-5, atol=1e-6)
    why = [each["why"] for each in session.report() if each["op"] == "TanhGrad"]
    assert why == ["", "in place: dX", "", "in place: dX"]  # of b and of p


def test_constants_stay_what_they_are_where_a_node_could_write_over_them() -> None:
    ones = onnx.numpy_helper.from_array(np.ones((2, 3), np.float32))
    session = gradkern.onnx.load(
        model(node("Constant", "", "one", value=ones), node("TanhGrad", "one x", "y", domain=MICROSOFT))
    )
    x = np.full((2, 3), 0.5, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(session.run({"x": x})["y"], np.full((2, 3), 0.75, np.float32))


def test_any_number_of_inputs_and_outputs_are_the_registrys() -> None:
    several = node("MixedPrecisionScale", "s x z x", "a b c", domain=MICROSOFT, to=TensorProto.FLOAT16)
    fused = node("MixedPrecisionScale", "s x z", "all", domain=MICROSOFT, to=TensorProto.FLOAT, fuse_outputs=1)
    ones = [node(op, "x z x", out, domain=MICROSOFT) for op, out in (("ReduceAllL2", "norm"), ("IsAllFinite", "ok"))]
    it = model(
        several,
        fused,
        *ones,
        inputs="x z",
        outputs="a b c all norm ok",
        data=[onnx.numpy_helper.from_array(np.float32(2), "s")],
    )
    session = gradkern.onnx.load(it)
    x, z = (np.random.default_rng(0).standard_normal((n, 3), np.float32) for n in (2, 2))
    found = session.run({"x": x, "z": z})
    assert {each["by"] for each in session.report()} == {"gradkern"}
    for name, each in (("a", x), ("b", z), ("c", x)):
        np.testing.assert_array_equal(found[name], (2 * each).astype(np.float16))
    np.testing.assert_array_equal(found["all"], 2 * np.concatenate([x, z], None))
    np.testing.assert_allclose(found["norm"], np.linalg.norm([x, z, x]), rtol=1e-6)
    assert found["ok"]


@pytest.mark.torch
def test_a_value_made_on_the_host_is_moved_to_where_the_node_is_computed() -> None:
    import torch

    one = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    made = node("Shape", "x", "size"), node("ConstantOfShape", "size", "one", value=one)
    session = gradkern.onnx.load(model(*made, node("TanhGrad", "one x", "y", domain=MICROSOFT)))
    found = session.run({"x": torch.full((2, 3), 0.5)})["y"]
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [[0.75] * 3] * 2
    assert [each["by"] for each in session.report()] == ["torch", "onnx.reference", "gradkern"]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_types_of_16_bits_stay_what_they_are(kind: int) -> None:
    """In NumPy a bfloat16 times a number is float32, and so is a dropout by onnx.reference."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    data = {"w": np.eye(3).astype(dtype), "ratio": np.array(0.5, np.float32), "training": np.array(True)}
    nodes = [
        node("FusedMatMul", "x w", "a", domain=MICROSOFT, alpha=0.5),
        node("Dropout", "a ratio training", "d mask"),
        node("DropoutGrad", "d mask ratio", "y", domain=MICROSOFT),
    ]
    session = gradkern.onnx.load(
        model(*nodes, kind=kind, data=[onnx.numpy_helper.from_array(each, name) for name, each in data.items()])
    )
    x = np.ones((4, 3), dtype)
    found = session.run({"x": x}, outputs=["a", "d", "mask", "y"])
    assert {found[name].dtype for name in ("a", "d", "y")} == {dtype}
    np.testing.assert_array_equal(found["y"].astype(np.float32), 2 * found["mask"])


def test_schemas_let_onnx_infer_the_types_of_a_training_graph() -> None:
    known = {(each.domain, each.name) for each in onnx.defs.get_all_schemas()}
    for schema in gradkern.onnx.schemas():
        if (schema.domain, schema.name) not in known:
            onnx.defs.register_schema(schema)
    try:
        it = model(node("ReluGrad", "x x", "d", domain=MICROSOFT), node("Neg", "d", "y"))
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(it, strict_mode=True), check_custom_domain=True)
        output = onnx.shape_inference.infer_shapes(it).graph.output[0].type.tensor_type
        assert output.elem_type == TensorProto.FLOAT
        assert [each.dim_param or each.dim_value for each in output.shape.dim] == ["N", 3]
    finally:
        for schema in gradkern.onnx.schemas():
            onnx.defs.deregister_schema(schema.name, schema.since_version, schema.domain)


def test_the_reference_evaluator_runs_what_the_session_runs() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    it = model(
        node("SoftmaxGrad_13", "x x", "d", domain=MICROSOFT, axis=-1),
        node("FusedMatMul", "d x", "y", domain=MICROSOFT, transB=1),
    )
    evaluator = onnx.reference.ReferenceEvaluator(it, new_ops=gradkern.onnx.operators())
    theirs, ours = evaluator.run(None, {"x": x})[0], gradkern.onnx.load(it).run({"x": x})["y"]
    np.testing.assert_array_equal(theirs, ours)
    d = x * (x - (x * x).sum(-1, keepdims=True))
    np.testing.assert_allclose(ours, d @ x.T, rtol=1e-4, atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("op", ["Identity", "Reshape", "Expand"])
def test_nothing_but_what_is_declared_is_updated_in_place(op: str) -> None:
    """A view of x is written; x is not, nor what another node reads of the view, nor an initializer."""
    import torch

    data = [onnx.numpy_helper.from_array(np.array([2, 3]), "shape")]
    data.append(onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "one"))
    shape = " shape" * (op != "Identity")
    nodes = [node(op, f"{each}{shape}", f"{each}_view") for each in ("x", "one")]
    nodes += [node("InPlaceAccumulator", f"{each}_view b", f"{each}_sum", domain=MICROSOFT) for each in ("x", "one")]
    session = gradkern.onnx.load(
        model(*nodes, node("Neg", "x_view", "y"), inputs="x b", outputs="x_sum one_sum y", data=data)
    )
    assert session.updated == ()
    for x, b in (
        (np.full((2, 3), 2, np.float32), np.full((2, 3), 3, np.float32)),
        (torch.full((2, 3), 2.0), torch.full((2, 3), 3.0)),
    ):
        for _ in range(2):
            found = session.run({"x": x, "b": b})
            assert [float(found[name][0, 0]) for name in ("x_sum", "one_sum", "y")] == [5, 4, -2]
            assert float(x[0, 0]) == 2


@pytest.mark.torch
def test_outputs_are_the_callers_even_where_the_session_goes_on_with_them() -> None:
    import torch

    zero = onnx.numpy_helper.from_array(np.zeros((2, 3), np.float32), "sum")
    add = node("InPlaceAccumulator", "sum x", "y", domain=MICROSOFT)
    for ones in (np.ones((2, 3), np.float32), torch.ones(2, 3)):
        session = gradkern.onnx.load(model(add, outputs="y", data=[zero]))
        first, second = (session.run({"x": ones}, "y")["y"] for _ in range(2))
        assert (float(first[0, 0]), float(second[0, 0])) == (1, 2)
        second[...] = 7
        assert [float(each[0, 0]) for each in session.run({"x": ones}, ["y", "sum"]).values()] == [3, 3]


@pytest.mark.torch
def test_what_is_updated_is_checked_before_any_of_it_is_written() -> None:
    import torch

    names = ("weights", "gradients", "momentums_1", "momentums_2")
    values = [helper.make_tensor_value_info("lr", TensorProto.FLOAT, []), helper.make_tensor_value_info("t", 7, [])]
    values += [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in names]
    step = helper.make_node("AdamWOptimizer", ["lr", "t", *names], ["done"], domain=MICROSOFT)
    graph = helper.make_graph([step], "graph", values, [onnx.ValueInfoProto(name="done")])
    session = gradkern.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid(MICROSOFT, 1)]))

    def ones(*sizes: int) -> list[Any]:
        return [np.ones(size, np.float32) for size in sizes]

    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    for wrong, kind, message in (
        ({"gradients": ones(2)}, ShapeError, r"AdamWOptimizer.*: gradients has shapes \[\(2,\)\]; expected those of"),
        ({"momentums_2": ones(2, 4)}, ShapeError, "momentums_2 has shapes"),
        ({"momentums_1": [*ones(2), fixed]}, ArgumentError, "^input momentums_1 is updated in place, but is read-only"),
        ({"weights": fixed}, ArgumentError, "^input weights is a ndarray; expected a list of arrays"),
        ({"momentums_1": [*ones(2), 1.0]}, ArgumentError, "^input momentums_1 is a list; expected a list of arrays"),
    ):
        given = {name: ones(2, 3) for name in names} | wrong
        with pytest.raises(kind, match=message):
            session.run({"lr": 0.1, "t": 1, **given})
        for name in names:
            assert all(np.all(np.asarray(each) == 1) for each in given[name])
    once = gradkern.onnx.load(model(node("ZeroGradient", "x x", "y", domain=MICROSOFT)))
    for x, message in ((torch.ones(1, 1).expand(2, 3), "has elements in the same"), ([[1.0] * 3], "expected an array")):
        with pytest.raises(ArgumentError, match=f"^input x is updated in place.* {message}"):
            once.run({"x": x})


def test_infinities_on_the_way_are_no_errors_and_no_warnings() -> None:
    session = gradkern.onnx.load(model(node("QuickGelu", "x", "q", domain=MICROSOFT), node("Reciprocal", "q", "y")))
    found = session.run({"x": np.array([[-1000, 0, 4]], np.float32)})["y"]
    np.testing.assert_allclose(found, [[-np.inf, np.inf, 0.25]], rtol=1e-2)

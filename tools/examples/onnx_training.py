"""A training graph of ONNX Runtime's operators, from file: a small network learns to tell three clouds of points apart.

python tools/examples/onnx_training.py --steps 20       with NumPy, on the CPU
python tools/examples/onnx_training.py --device cuda    with PyTorch's tensors, on a GPU

onnxruntime.training.artifacts writes such graphs for a model; here a few lines do, so that the example needs only
the extra `onnx`. It saves the training graph and the optimizer's, loads both, and trains.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import gradkern.onnx

BUFFER = "_grad.accumulation.buffer"
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
SIZES = {"W1": [16, 2], "b1": [16], "W2": [3, 16], "b2": [3]}
FORWARD = [
    ("Gemm", ["x", "W1", "b1"], ["h"], {"transB": 1}),
    ("Relu", ["h"], ["r"], {}),
    ("Gemm", ["r", "W2", "b2"], ["scores"], {"transB": 1}),
    ("SoftmaxCrossEntropyLoss", ["scores", "labels"], ["loss", "log_prob"], {"reduction": "mean"}),
]
BACKWARD = [
    ("SoftmaxCrossEntropyLossGrad", ["one", "log_prob", "labels"], ["scores_grad"], {"reduction": "mean"}),
    ("Gemm", ["scores_grad", "r"], ["W2_grad"], {"transA": 1}),
    ("ReduceSum", ["scores_grad", "rows"], ["b2_grad"], {"keepdims": 0}),
    ("MatMul", ["scores_grad", "W2"], ["r_grad"], {}),
    ("ReluGrad", ["r_grad", "h"], ["h_grad"], {}),
    ("Gemm", ["h_grad", "x"], ["W1_grad"], {"transA": 1}),
    ("ReduceSum", ["h_grad", "rows"], ["b1_grad"], {"keepdims": 0}),
    *(
        ("InPlaceAccumulatorV2", [f"{w}{BUFFER}", f"{w}_grad", "lazy_reset_grad"], [f"{w}_grad.accumulation.out"], {})
        for w in SIZES
    ),
]
OPTIMIZER = ["learning_rate", "step", "params", "gradients", "first_order_moments", "second_order_moments"]


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: list[Any]) -> onnx.ModelProto:
    """Operators that ONNX does not have are of ONNX Runtime's domain."""
    made = []
    for op, given, results, attributes in nodes:
        domain = "" if onnx.defs.has(op) else "com.microsoft"
        made.append(helper.make_node(op, given, results, domain=domain, **attributes))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(made, "graph", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def write(folder: Path) -> None:
    """training_model.onnx and optimizer_model.onnx."""
    value, sequence = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    inputs = [value("x", FLOAT, ["N", 2]), value("labels", INT64, ["N"]), value("lazy_reset_grad", BOOL, [1])]
    inputs += [value(f"{name}{of}", FLOAT, size) for name, size in SIZES.items() for of in ("", BUFFER)]
    outputs = [value("loss", FLOAT, []), *(value(f"{name}_grad.accumulation.out", BOOL, [1]) for name in SIZES)]
    constants = {"one": np.array(1, np.float32), "rows": np.array([0])}
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    onnx.save(model(FORWARD + BACKWARD, inputs, outputs, initializers), folder / "training_model.onnx")
    inputs = [value("learning_rate", FLOAT, [1]), value("step", INT64, [1])]
    inputs += [sequence(name, FLOAT, None) for name in OPTIMIZER[2:]]
    step = ("AdamWOptimizer", OPTIMIZER, ["updated"], {"weight_decay": 0.01})
    onnx.save(model([step], inputs, [value("updated", BOOL, [1])], []), folder / "optimizer_model.onnx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", help="of PyTorch, such as cuda; without it NumPy computes")
    options = parser.parse_args()

    def array(value: np.ndarray) -> Any:
        if options.device is None:
            return value
        import torch

        return torch.tensor(value, device=options.device)

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        training = gradkern.onnx.load(Path(folder) / "training_model.onnx")
        optimizer = gradkern.onnx.load(Path(folder) / "optimizer_model.onnx")

    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 256)
    centers = np.array([[0, 2], [2, -1], [-2, -1]])
    x = (centers[labels] + random.standard_normal((256, 2))).astype(np.float32)
    weights = {name: array(random.standard_normal(size, np.float32) / 4) for name, size in SIZES.items()}
    buffers, first, second = ({name: each * 0 for name, each in weights.items()} for _ in range(3))
    feed = {"x": array(x), "labels": array(labels), "lazy_reset_grad": [True], **weights}
    feed |= {f"{name}{BUFFER}": each for name, each in buffers.items()}
    for step in range(1, options.steps + 1):
        loss = training.run(feed)["loss"]
        arrays = (list(each.values()) for each in (weights, buffers, first, second))  # weights and moments are updated
        optimizer.run({"learning_rate": [0.05], "step": [step], **dict(zip(OPTIMIZER[2:], arrays, strict=True))})
        if step == 1 or step == options.steps:
            print(f"step {step}: loss {float(loss):.4f}")
    for row in training.report():
        print(f"{row['op']:30} {row['by']:15} {row['why']}")


if __name__ == "__main__":
    main()

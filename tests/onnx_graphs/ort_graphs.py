"""Training graphs that ONNX Runtime builds, with its own results: python ort_graphs.py FOLDER

It needs onnxruntime-training 1.19.2 (Python 3.11, numpy<2, onnx<1.18), which nothing else of these tests does: run it
in an environment of its own. For each of four small models it writes FOLDER/NAME.onnx.gz: a model whose graph is the
training graph and whose initializers named as below have what ONNX Runtime made of it.

    input/NAME      what the graph was fed with
    value/NAME      every value of the graph, in a run without optimizations
    updated/NAME    what that run wrote into its inputs
    loss            of ten training steps by its Module and Optimizer
    optimizer       the optimizer's graph, serialized

tests/onnx/data has such files, and test_training_graphs.py reads them.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STEPS = 10
OPSET = 17


class Builder:
    """A graph, an operator at a time."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.constants: list[str] = []
        self.random = np.random.default_rng(seed)

    def __call__(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        outputs = [f"{op}_{len(self.nodes)}" + (f"_{number}" if number else "") for number in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=outputs[0], **attributes))
        return outputs[0] if count == 1 else outputs

    def weight(self, name: str, *shape: int, scale: float = 0.0, around: float = 0.0) -> str:
        scale = scale or shape[-1] ** -0.5
        value = around + scale * self.random.standard_normal(shape)
        self.weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def constant(self, value: Any, dtype: str = "int64") -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        self.constants.append(name)
        return name

    def linear(self, name: str, x: str, fan_in: int, fan_out: int) -> str:
        product = self("MatMul", x, self.weight(f"{name}.weight", fan_in, fan_out))
        return self("Add", product, self.weight(f"{name}.bias", fan_out, scale=0.1))

    def norm(self, name: str, x: str, width: int) -> str:
        scale, bias = self.weight(f"{name}.scale", width, around=1), self.weight(f"{name}.bias", width, scale=0.1)
        return self("LayerNormalization", x, scale, bias, count=3, axis=-1, epsilon=1e-5)[0]

    def dropout(self, x: str, ratio: float) -> str:
        """Of which the graph of ten steps has a ratio of 0: no two libraries draw the same random numbers."""
        return self("Dropout", x, self.constant(ratio, "float32"), self.constant(True, "bool"), count=2)[0]

    def model(self, inputs: dict[str, tuple[int, Any]], output: str, rank: int) -> onnx.ModelProto:
        values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        result = [helper.make_tensor_value_info(output, TensorProto.FLOAT, [None] * rank)]
        graph = helper.make_graph(self.nodes, "forward", values, result, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def heads(b: Builder, x: str, shape: list[int]) -> str:
    return b("Transpose", b("Reshape", x, b.constant(shape)), perm=[0, 2, 1, 3])


def attention(b: Builder, q: str, k: str, v: str, width: int, head: int, mask: Any, ratio: float) -> str:
    """Of q, k, v (batch, sequence, width); mask changes the scores."""
    shape = [0, 0, width // head, head]
    scores = b("MatMul", heads(b, q, shape), b("Transpose", heads(b, k, shape), perm=[0, 1, 3, 2]))
    scores = mask(b("Div", scores, b.constant(head**0.5, "float32")))
    weights = b.dropout(b("Softmax", scores, axis=-1), ratio)
    mixed = b("Transpose", b("MatMul", weights, heads(b, v, shape)), perm=[0, 2, 1, 3])
    return b("Reshape", mixed, b.constant([0, 0, width]))


def mlp(ratio: float) -> tuple[Builder, onnx.ModelProto, dict[str, np.ndarray]]:
    b = Builder(1)
    x = b("Gemm", "x", b.weight("fc1.weight", 16, 12), b.weight("fc1.bias", 16), transB=1)
    x = b.dropout(b("Relu", x), ratio)
    x = b("Sigmoid", b.linear("fc2", x, 16, 8))
    x = b("Gemm", x, b.weight("fc3.weight", 4, 8), b.weight("fc3.bias", 4), transB=1)
    feed = {"x": b.random.standard_normal((6, 12), np.float32), "labels": b.random.integers(0, 4, 6)}
    return b, b.model({"x": (TensorProto.FLOAT, ["N", 12])}, x, 2), feed


def resnet(ratio: float) -> tuple[Builder, onnx.ModelProto, dict[str, np.ndarray]]:
    b = Builder(2)

    def conv(name: str, x: str, fan_in: int, fan_out: int, kernel: int, stride: int = 1) -> str:
        weight = b.weight(f"{name}.weight", fan_out, fan_in, kernel, kernel, scale=(fan_in * kernel**2) ** -0.5)
        pads = [kernel // 2] * 4
        x = b("Conv", x, weight, kernel_shape=[kernel] * 2, pads=pads, strides=[stride] * 2)
        scale, bias = b.weight(f"{name}.scale", fan_out, around=1), b.weight(f"{name}.bias", fan_out, scale=0.1)
        mean, var = (b.constant(np.full(fan_out, value), "float32") for value in (0.0, 1.0))
        return b("BatchNormalization", x, scale, bias, mean, var, count=3, training_mode=1, momentum=0.9)[0]

    x = b("Relu", conv("stem", "x", 2, 3, 3))
    x = b("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b("Relu", b("Add", conv("a2", b("Relu", conv("a1", x, 3, 3, 3)), 3, 3, 3), x))
    x = b("Relu", b("Add", conv("b2", b("Relu", conv("b1", x, 3, 4, 3, 2)), 4, 4, 3), conv("down", x, 3, 4, 1, 2)))
    x = b("Flatten", b("GlobalAveragePool", x))
    x = b("Gemm", x, b.weight("fc.weight", 5, 4), b.weight("fc.bias", 5), transB=1)
    feed = {"x": b.random.standard_normal((3, 2, 7, 7), np.float32), "labels": b.random.integers(0, 5, 3)}
    return b, b.model({"x": (TensorProto.FLOAT, ["N", 2, 7, 7])}, x, 2), feed


def bert(ratio: float) -> tuple[Builder, onnx.ModelProto, dict[str, np.ndarray]]:
    b, width, words, length = Builder(3), 8, 23, 5
    x = b("Gather", b.weight("word", words, width, scale=1), "input_ids")
    x = b("Add", x, b("Gather", b.weight("type", 2, width, scale=1), "token_type_ids"))
    positions = b("Gather", b.weight("position", 7, width, scale=1), b.constant([list(range(length))]))
    x = b.dropout(b.norm("embeddings", b("Add", x, positions), width), ratio)
    mask = b("Unsqueeze", b("Cast", "attention_mask", to=TensorProto.FLOAT), b.constant([1, 2]))
    mask = b("Mul", b("Sub", b.constant(1, "float32"), mask), b.constant(-1e4, "float32"))
    q, k, v = (b.linear(name, x, width, width) for name in "qkv")
    mixed = attention(b, q, k, v, width, 4, lambda scores: b("Add", scores, mask), ratio)
    x = b.norm("norm1", b("Add", b.dropout(b.linear("out", mixed, width, width), ratio), x), width)
    h = b.linear("up", x, width, 2 * width)
    erf = b("Add", b("Erf", b("Div", h, b.constant(2**0.5, "float32"))), b.constant(1, "float32"))
    h = b("Mul", b("Mul", h, erf), b.constant(0.5, "float32"))
    x = b.norm("norm2", b("Add", b.dropout(b.linear("down", h, 2 * width, width), ratio), x), width)
    first = b("Gather", x, b.constant(0), axis=1)
    pooled = b("Gemm", first, b.weight("pool.weight", width, width), b.weight("pool.bias", width), transB=1)
    logits = b.linear("classifier", b.dropout(b("Tanh", pooled), ratio), width, 3)
    shape = (TensorProto.INT64, ["N", length])
    mask_value = np.ones((3, length), np.int64)
    mask_value[1, 3:] = 0
    feed = {
        "input_ids": b.random.integers(0, words, (3, length)),
        "token_type_ids": b.random.integers(0, 2, (3, length)),
        "attention_mask": mask_value,
        "labels": b.random.integers(0, 3, 3),
    }
    return b, b.model(dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), shape), logits, 2), feed


def gpt2(ratio: float) -> tuple[Builder, onnx.ModelProto, dict[str, np.ndarray]]:
    b, width, words, length = Builder(4), 8, 19, 6
    table = b.weight("wte", words, width, scale=0.5)
    positions = b("Gather", b.weight("wpe", 9, width, scale=0.5), b.constant([list(range(length))]))
    x = b.dropout(b("Add", b("Gather", table, "input_ids"), positions), ratio)
    qkv = b.linear("c_attn", b.norm("ln_1", x, width), width, 3 * width)
    q, k, v = b("Split", qkv, b.constant([width] * 3), count=3, axis=2)
    causal = b.constant(np.tril(np.ones((1, 1, length, length))), "bool")
    least = b.constant(-1e4, "float32")
    mixed = attention(b, q, k, v, width, 4, lambda scores: b("Where", causal, scores, least), ratio)
    x = b("Add", b.dropout(b.linear("c_proj", mixed, width, width), ratio), x)
    h = b.linear("c_fc", b.norm("ln_2", x, width), width, 2 * width)
    cube = b("Mul", b("Pow", h, b.constant(3, "float32")), b.constant(0.044715, "float32"))
    tanh = b("Tanh", b("Mul", b("Add", h, cube), b.constant((2 / np.pi) ** 0.5, "float32")))
    half = b("Mul", h, b.constant(0.5, "float32"))
    h = b("Mul", half, b("Add", tanh, b.constant(1, "float32")))
    x = b("Add", b.dropout(b.linear("c_proj2", h, 2 * width, width), ratio), x)
    logits = b("MatMul", b.norm("ln_f", x, width), b("Transpose", table, perm=[1, 0]))
    shifted = b("Slice", logits, b.constant([0]), b.constant([-1]), b.constant([1]))
    logits = b("Reshape", shifted, b.constant([-1, words]))
    ids = b.random.integers(0, words, (2, length))
    feed = {"input_ids": ids, "labels": ids[:, 1:].reshape(-1)}
    return b, b.model({"input_ids": (TensorProto.INT64, ["N", length])}, logits, 2), feed


MODELS = {"mlp": mlp, "resnet": resnet, "bert": bert, "gpt2": gpt2}


def write(name: str, folder: Path) -> None:
    import onnxruntime  # pyright: ignore[reportMissingImports]
    from onnxruntime.training import api, artifacts  # pyright: ignore[reportMissingImports]

    onnxruntime.set_default_logger_severity(3)

    def built(ratio: float, into: str) -> tuple[Builder, dict[str, np.ndarray], list[str]]:
        b, model, feed = MODELS[name](ratio)
        trained = [each.name for each in b.weights if each.name not in b.constants]
        artifacts.generate_artifacts(
            model,
            requires_grad=trained,
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=into,
        )
        return b, feed, trained

    with tempfile.TemporaryDirectory() as work:
        _, feed, _ = built(0.0, work)
        state = api.CheckpointState.load_checkpoint(f"{work}/checkpoint")
        module = api.Module(f"{work}/training_model.onnx", state)
        optimizer = api.Optimizer(f"{work}/optimizer_model.onnx", module)
        optimizer.set_learning_rate(0.02)
        module.train()
        feeds = [feed[each] for each in module.input_names()]
        losses = []
        for _ in range(STEPS):
            losses.append(module(*feeds))
            optimizer.step()
            module.lazy_reset_grad()
    with tempfile.TemporaryDirectory() as work:
        b, feed, trained = built(0.25, work)
        model = onnx.load(f"{work}/training_model.onnx")
        weights = {each.name: numpy_helper.to_array(each) for each in b.weights}
        values = {name: weights[name] for name in trained}
        values.update((f"{name}_grad.accumulation.buffer", np.ones_like(weights[name])) for name in trained)
        values.update(feed, lazy_reset_grad=np.array([False]))
        inputs = {each.name: values[each.name].copy() for each in model.graph.input}
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        whole = onnx.ModelProto.FromString(model.SerializeToString())
        names = [each for node in model.graph.node for each in node.output if each]
        del whole.graph.output[:]
        whole.graph.output.extend(helper.make_empty_tensor_value_info(each) for each in names)
        session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = dict(zip(names, session.run(names, values), strict=True))
        optimizer = (Path(work) / "optimizer_model.onnx").read_bytes()
    extra = {f"input/{key}": value for key, value in inputs.items()}
    extra.update({f"value/{key}": value for key, value in results.items()})
    changed = {key: value for key, value in values.items() if not np.array_equal(value, inputs[key])}
    extra.update({f"updated/{key}": value for key, value in changed.items()})
    extra["loss"] = np.array(losses, np.float32)
    extra["optimizer"] = np.frombuffer(optimizer, np.uint8)
    expected = helper.make_graph([], "expected", [], [], [numpy_helper.from_array(v, k) for k, v in extra.items()])
    model.graph.initializer.extend(expected.initializer)
    (folder / f"{name}.onnx.gz").write_bytes(gzip.compress(model.SerializeToString(), mtime=0))
    print(name, sorted({f"{node.domain}:{node.op_type}" for node in model.graph.node}), losses)


if __name__ == "__main__":
    for part in ("amp", "optim"):  # which import PyTorch; building graphs and training needs neither
        sys.modules[f"onnxruntime.training.{part}"] = types.ModuleType(part)
    for each in MODELS:
        write(each, Path(sys.argv[1]))

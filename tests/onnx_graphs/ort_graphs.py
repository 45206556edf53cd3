"""Training graphs that ONNX Runtime builds, with its own results: python ort_graphs.py FOLDER [NAME ...]

It needs onnxruntime-training 1.19.2 (Python 3.11, numpy<2, onnx<1.18), which nothing else of these tests does: run it
in an environment of its own. For each of four small models it writes FOLDER/NAME.onnx.gz: a model whose graph is the
training graph and whose initializers named as below have what ONNX Runtime made of it.

    input/NAME      what the graph was fed with
    value/NAME      every value of the graph, in a run without optimizations
    updated/NAME    what that run wrote into its inputs
    loss            of ten training steps by its Module and Optimizer
    optimizer       the optimizer's graph, serialized

tests/onnx_graphs/data has such files, and test_training_graphs.py reads them. Without NAME also operators.onnx.gz, and
bert_base.onnx.gz, a large training graph without values.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, NamedTuple

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


Made = tuple[Builder, onnx.ModelProto, dict[str, np.ndarray]]


def mlp(ratio: float) -> Made:
    b = Builder(1)
    x = b("Gemm", "x", b.weight("fc1.weight", 16, 12), b.weight("fc1.bias", 16), transB=1)
    x = b.dropout(b("Relu", x), ratio)
    x = b("Sigmoid", b.linear("fc2", x, 16, 8))
    x = b("Gemm", x, b.weight("fc3.weight", 4, 8), b.weight("fc3.bias", 4), transB=1)
    feed = {"x": b.random.standard_normal((6, 12), np.float32), "labels": b.random.integers(0, 4, 6)}
    return b, b.model({"x": (TensorProto.FLOAT, ["N", 12])}, x, 2), feed


def resnet(ratio: float) -> Made:
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


class Bert(NamedTuple):
    """Sizes of a BERT with a classifier on its first word."""

    layers: int
    width: int
    head: int  # columns of an attention head
    up: int  # columns between the two products of a layer's second half
    words: int
    positions: int
    length: int
    classes: int


BERT_TINY = Bert(1, 8, 4, 16, 23, 7, 5, 3)
BERT_BASE = Bert(12, 768, 64, 3072, 30522, 512, 128, 2)


def bert_layer(b: Builder, x: str, at: str, it: Bert, mask: str, ratio: float) -> str:
    q, k, v = (b.linear(at + name, x, it.width, it.width) for name in "qkv")
    mixed = attention(b, q, k, v, it.width, it.head, lambda scores: b("Add", scores, mask), ratio)
    x = b.norm(f"{at}norm1", b("Add", b.dropout(b.linear(f"{at}out", mixed, it.width, it.width), ratio), x), it.width)
    h = b.linear(f"{at}up", x, it.width, it.up)
    erf = b("Add", b("Erf", b("Div", h, b.constant(2**0.5, "float32"))), b.constant(1, "float32"))
    h = b("Mul", b("Mul", h, erf), b.constant(0.5, "float32"))
    return b.norm(f"{at}norm2", b("Add", b.dropout(b.linear(f"{at}down", h, it.up, it.width), ratio), x), it.width)


def bert(ratio: float, it: Bert = BERT_TINY) -> Made:
    b = Builder(3)
    x = b("Gather", b.weight("word", it.words, it.width, scale=1), "input_ids")
    x = b("Add", x, b("Gather", b.weight("type", 2, it.width, scale=1), "token_type_ids"))
    places = b.constant([list(range(it.length))])
    positions = b("Gather", b.weight("position", it.positions, it.width, scale=1), places)
    x = b.dropout(b.norm("embeddings", b("Add", x, positions), it.width), ratio)
    mask = b("Unsqueeze", b("Cast", "attention_mask", to=TensorProto.FLOAT), b.constant([1, 2]))
    mask = b("Mul", b("Sub", b.constant(1, "float32"), mask), b.constant(-1e4, "float32"))
    for layer in range(it.layers):
        x = bert_layer(b, x, f"{layer}." if it.layers > 1 else "", it, mask, ratio)
    first = b("Gather", x, b.constant(0), axis=1)
    pooled = b("Gemm", first, b.weight("pool.weight", it.width, it.width), b.weight("pool.bias", it.width), transB=1)
    logits = b.linear("classifier", b.dropout(b("Tanh", pooled), ratio), it.width, it.classes)
    shape = (TensorProto.INT64, ["N", it.length])
    mask_value = np.ones((3, it.length), np.int64)
    mask_value[1, 3:] = 0
    feed = {
        "input_ids": b.random.integers(0, it.words, (3, it.length)),
        "token_type_ids": b.random.integers(0, 2, (3, it.length)),
        "attention_mask": mask_value,
        "labels": b.random.integers(0, it.classes, 3),
    }
    return b, b.model(dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), shape), logits, 2), feed


def gpt2(ratio: float) -> Made:
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


SEQUENCES = {"clipped", "sgd", *(f"{each}_{of}" for of in ("adam", "torch") for each in "wmv")}
SEQUENCES |= {f"{of}_{each}" for of in ("sgd", "adam", "torch") for each in "wgmv"}
"""Of whose tensors the second is an output."""


def operators() -> tuple[list[tuple[Any, ...]], dict[str, np.ndarray]]:
    """Nodes for operators that none of the models has, and what they are fed with: those with a kernel for CPUs."""
    random = np.random.default_rng(5)
    f = {name: random.standard_normal(shape).astype(np.float32) for name, shape in {
        "a": (2, 3, 4), "a2": (2, 3, 4), "at": (2, 4, 3), "ab": (3, 2, 4), "b": (2, 4, 5), "bt": (2, 5, 4), "m": (3, 4),
        "n": (4, 5), "c": (5,), "w1": (3,), "w2": (2, 2), "g1": (3,), "g2": (2, 2), "m1": (3,), "m2": (2, 2),
        "row": (4,),
    }.items()}  # fmt: skip
    f |= {
        "v1": f["m1"] ** 2,
        "v2": f["m2"] ** 2,
        "old": f["a"] * 2,
        "gradient": f["a"] + 1,
        "nan": f["a"] / (f["a"] > 0),
    }
    f |= {
        "lr": np.array([0.1], np.float32),
        "step": np.array([3]),
        "signal": np.array([True]),
        "flags": np.ones(3, bool),
    }
    f |= {
        "splits": np.array([1, 3]),
        "axes": np.array([0, -1]),
        "size": np.array([2, 3, 4]),
        "places": np.array([1, 4, 5]),
    }
    f |= {
        "scale": np.array(0.25, np.float32),
        "zero": np.array(3, np.float32),
        "index": np.array([[[0, 2, 1, 0]], [[2, 2, 0, 1]]]),
    }
    f |= {
        "pairs": np.array([[0, 2], [1, 0], [0, 2]]),
        "update": f["a"][:, 0].repeat(2, 0)[:3],
        "dims": np.array([2, 4]),
    }
    sequences: list[tuple[Any, ...]] = []
    for of in ("sgd", "adam", "torch"):  # each its own, as they are updated in place
        for each in "wgmv":
            several = [f"{of}_{each}{number}" for number in (1, 2)]
            f |= {name: f[name.rpartition("_")[2]].copy() for name in several}
            sequences.append(("SequenceConstruct", several, [f"{of}_{each}"], {}))
    adam, torch = (["lr", "step", *(f"{of}_{each}" for each in "wgmv")] for of in ("adam", "torch"))
    nodes = [
        ("FusedMatMul", ["a", "bt"], ["fused1"], {"transB": 1, "alpha": 0.5}),
        ("FusedMatMul", ["at", "b"], ["fused2"], {"transA": 1}),
        ("FusedMatMul", ["ab", "b"], ["fused3"], {"transBatchA": 1}),
        ("FusedGemm", ["m", "n", "c"], ["relu"], {"activation": "Relu", "alpha": 2.0}),
        ("FusedGemm", ["m", "n", "c"], ["leaky"], {"activation": "LeakyRelu", "activation_alpha": 0.2, "beta": 0.5}),
        ("FusedGemm", ["m", "n"], ["tanh"], {"activation": "Tanh"}),
        ("FusedGemm", ["m", "n", "c"], ["sigmoid"], {"activation": "Sigmoid"}),
        ("Gelu", ["a"], ["gelu"], {}),
        ("FastGelu", ["a"], ["fast"], {}),
        ("QuickGelu", ["a"], ["quick"], {"alpha": 1.5}),
        ("DivGrad", ["a", "a2", "row"], ["div1", "div2"], {}),
        ("Scale", ["a", "scale"], ["scaled"], {"scale_down": 1}),
        ("FakeQuant", ["a", "scale", "zero"], ["quant", "kept"], {"quant_min": 0, "quant_max": 6}),
        ("FakeQuantGrad", ["a2", "kept"], ["quant_grad"], {}),
        ("SplitTraining", ["a", "splits"], ["part1", "part2"], {"axis": 2}),
        ("ConcatTraining", ["part2", "part1"], ["joined", "lengths"], {"axis": -1}),
        ("ReduceSumTraining", ["a", "axes"], ["sum"], {"keepdims": 0}),
        ("View", ["a", "size"], ["viewed"], {}),
        ("FlattenAndUnpad", ["a", "places"], ["packed", "unflat"], {}),
        ("PadAndUnflatten", ["m", "places", "dims"], ["padded"], {}),
        ("GatherElementsGrad", ["a2_row", "size", "index"], ["elements"], {"axis": 1}),
        ("GatherNDGrad", ["size", "pairs", "update"], ["nd"], {}),
        ("ReduceAllL2", ["a", "m"], ["norm"], {}),
        ("IsFinite", ["nan"], ["finite"], {}),
        ("All", ["flags"], ["all"], {}),
        ("IsAllFinite", ["a", "nan"], ["all_finite"], {}),
        ("Group", ["a", "m"], ["done"], {}),
        ("InPlaceAccumulator", ["old", "a"], ["accumulated"], {}),
        ("ZeroGradient", ["gradient", "signal"], ["nothing"], {}),
        ("MixedPrecisionScale", ["scale", "a"], ["half"], {"to": TensorProto.FLOAT16}),
        *sequences,
        ("InplaceClipGradNorm", ["sgd_g"], ["clipped"], {"max_norm": 0.5}),
        ("SGDOptimizerV2", ["lr", "sgd_w", "clipped"], ["sgd_done", "sgd"], {}),
        ("AdamWOptimizer", adam, ["adam_done", "w_adam", "m_adam", "v_adam"], {"adam_mode": 1, "weight_decay": 0.1}),
        ("AdamWOptimizer", torch, ["torch_done", "w_torch", "m_torch", "v_torch"], {"adam_mode": 0}),
    ]  # fmt: skip
    at = {"one": np.array(1)}
    names = ("clipped", "sgd", "w_adam", "m_adam", "v_adam", "w_torch", "m_torch", "v_torch")
    nodes += [("SequenceAt", [name, "one"], [f"{name}_1"], {}) for name in names]
    return nodes, f | at | {"a2_row": f["a2"][:, :1]}


def write_operators(folder: Path) -> None:
    """operators.onnx.gz, with those nodes that ONNX Runtime has a kernel for CPUs for."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    nodes, feed = operators()
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    kept: list[Any] = []

    def model(several: list[Any]) -> tuple[onnx.ModelProto, list[str]]:
        names = [name for op, _, outputs, _ in several for name in outputs if name not in SEQUENCES]
        made = [
            helper.make_node(
                op, given, outputs, domain="" if op.startswith("Sequence") else "com.microsoft", **attributes
            )
            for op, given, outputs, attributes in several
        ]
        used = {name for _, given, _, _ in several for name in given}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feed.items()
            if name in used
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph(made, "operators", inputs, results)
        return helper.make_model(graph, opset_imports=imports, ir_version=9), names

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def session(several: list[Any]) -> Any:
        whole = model(several)[0].SerializeToString()
        return onnxruntime.InferenceSession(whole, options, providers=["CPUExecutionProvider"])

    for node in nodes:
        try:
            session([*kept, node])
            kept.append(node)
        except Exception as error:
            print("left out:", node[0], str(error)[:150])
    whole, names = model(kept)
    inputs = {each.name: feed[each.name].copy() for each in whole.graph.input}
    values = dict(zip(names, session(kept).run(names, {key: each.copy() for key, each in inputs.items()}), strict=True))
    pack(folder, "operators", whole, {"input": inputs, "value": values})


def pack(folder: Path, name: str, model: onnx.ModelProto, parts: dict[str, dict[str, np.ndarray]], **more: Any) -> None:
    extra = {f"{part}/{key}": value for part, values in parts.items() for key, value in values.items()} | more
    model.graph.initializer.extend(numpy_helper.from_array(value, key) for key, value in extra.items())
    (folder / f"{name}.onnx.gz").write_bytes(gzip.compress(model.SerializeToString(), mtime=0))
    print(name, sorted({f"{node.domain}:{node.op_type}" for node in model.graph.node}))


def built(made: Made, into: str) -> tuple[Builder, dict[str, np.ndarray], list[str]]:
    """training_model.onnx and optimizer_model.onnx; the names of what is trained."""
    from onnxruntime.training import artifacts  # pyright: ignore[reportMissingImports]

    b, model, feed = made
    trained = [each.name for each in b.weights if each.name not in b.constants]
    artifacts.generate_artifacts(
        model,
        requires_grad=trained,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=into,
    )
    return b, feed, trained


def write_bert_base(folder: Path) -> None:
    """bert_base.onnx.gz, without values: a graph as large as people train, for tools/onnx_bench.py."""
    with tempfile.TemporaryDirectory() as work:
        built(bert(0.1, BERT_BASE), work)
        optimizer = np.frombuffer((Path(work) / "optimizer_model.onnx").read_bytes(), np.uint8)
        pack(folder, "bert_base", onnx.load(f"{work}/training_model.onnx"), {}, optimizer=optimizer)


def write(name: str, folder: Path) -> None:
    import onnxruntime  # pyright: ignore[reportMissingImports]
    from onnxruntime.training import api  # pyright: ignore[reportMissingImports]

    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as work:
        _, feed, _ = built(MODELS[name](0.0), work)
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
        b, feed, trained = built(MODELS[name](0.25), work)
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
    changed = {key: value for key, value in values.items() if not np.array_equal(value, inputs[key])}
    more = {"loss": np.array(losses, np.float32), "optimizer": np.frombuffer(optimizer, np.uint8)}
    pack(folder, name, model, {"input": inputs, "value": results, "updated": changed}, **more)


if __name__ == "__main__":
    for part in ("amp", "optim"):  # which import PyTorch; building graphs and training needs neither
        sys.modules[f"onnxruntime.training.{part}"] = types.ModuleType(part)
    for each in sys.argv[2:] or MODELS:
        write(each, Path(sys.argv[1]))
    if not sys.argv[2:]:
        write_operators(Path(sys.argv[1]))
        write_bert_base(Path(sys.argv[1]))

#!/usr/bin/env python3
"""A training step of BERT-base: ONNX Runtime's graphs of it, run by gradkern.onnx, beside the same step in PyTorch.

python tools/onnx_bench.py                     on a GPU: eager, torch.compile, and the graphs from file
python tools/onnx_bench.py --tiny              one layer's graph on the CPU, to try the tool
python tools/onnx_bench.py --json FILE         the results, too

The graphs, of the training step and of AdamW, are those that onnxruntime-training 1.19.2 built (see ort_graphs.py in
tests/onnx_graphs). PyTorch runs transformers' BertForSequenceClassification with the same weights and torch's fused
AdamW. First both train --steps steps without dropout from the same weights in float32 in full, and their losses have
to agree. Then whole steps with dropout are timed in turns: medians, and the quartiles. Their matrix products are in
TF32 unless --ieee.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from markdown_table import table
from ort_graph_file import read, with_dropout
from results_file import machine

import gradkern.onnx
from gradkern.onnx.arrays import to_host

DATA = Path(__file__).resolve().parents[1] / "tests" / "onnx_graphs" / "data"
BUFFER = "_grad.accumulation.buffer"
LEARNING_RATE = 1e-4
IN_A_ROW = 5


def weights_of(model: onnx.ModelProto, device: str) -> dict[str, torch.Tensor]:
    """Random weights, as BERT begins with; those of norms are 1."""
    sizes = {each.name: [d.dim_value for d in each.type.tensor_type.shape.dim] for each in model.graph.input}
    trained = [name for name in sizes if f"{name}{BUFFER}" in sizes]
    random = torch.Generator().manual_seed(0)
    made = {name: 0.02 * torch.randn(sizes[name], generator=random) for name in trained}
    for name in trained:
        if name.endswith(".scale"):
            made[name].fill_(1)
    return {name: each.to(device) for name, each in made.items()}


def with_pytorchs_adam(optimizer: onnx.ModelProto) -> onnx.ModelProto:
    """AdamW in the mode that is PyTorch's: the other adds epsilon before the bias of the second moment is corrected."""
    changed = onnx.ModelProto()
    changed.CopyFrom(optimizer)
    for node in changed.graph.node:
        for each in node.attribute:
            if node.op_type == "AdamWOptimizer" and each.name == "adam_mode":
                each.i = 0
    return changed


class FromFile:
    """The step of ONNX Runtime's graphs."""

    def __init__(self, graphs: tuple[onnx.ModelProto, onnx.ModelProto], ratio: float, weights: Any, batch: Any) -> None:
        self._training = gradkern.onnx.load(with_dropout(graphs[0], ratio))
        self._optimizer = gradkern.onnx.load(with_pytorchs_adam(graphs[1]))
        weights = {name: each.clone() for name, each in weights.items()}
        buffers, first, second = ({name: torch.zeros_like(each) for name, each in weights.items()} for _ in range(3))
        self._feed = {**batch, **weights, **{f"{name}{BUFFER}": each for name, each in buffers.items()}}
        self._feed["lazy_reset_grad"] = [True]
        names = ("params", "gradients", "first_order_moments", "second_order_moments")
        of_names = [[each[name] for name in weights] for each in (weights, buffers, first, second)]
        self._state = dict(zip(names, of_names, strict=True))
        self._step = 0

    def __call__(self) -> Any:
        self._step += 1
        loss = self._training.run(self._feed, outputs=[self._training.outputs[0]])[self._training.outputs[0]]
        self._optimizer.run({"learning_rate": [LEARNING_RATE], "step": [self._step], **self._state})
        return loss


class InPyTorch:
    """The same step by PyTorch."""

    def __init__(
        self, optimizer: onnx.ModelProto, ratio: float, weights: Any, batch: Any, wrap: Callable[[Any], Any]
    ) -> None:
        transformers = import_module("transformers")
        sizes: dict[str, Any] = {**_config(weights), **_ratios(ratio), "layer_norm_eps": 1e-5}
        model: Any = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes))
        _load(model, weights)
        (node,) = (each for each in optimizer.graph.node if each.op_type == "AdamWOptimizer")
        given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        betas = given.get("alpha", 0.9), given.get("beta", 0.999)
        more = {"eps": given.get("epsilon", 1e-8), "weight_decay": given.get("weight_decay", 0.01)}
        device = next(iter(weights.values())).device
        model = model.to(device).train()
        fused = device.type == "cuda"
        self._optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas, **more, fused=fused)
        self._model, self._batch = wrap(model), batch

    def __call__(self) -> Any:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._model(**self._batch).loss
        loss.backward()
        self._optimizer.step()
        return loss.detach()


def _config(weights: Any) -> dict[str, Any]:
    layers = sum(name.endswith("norm1.scale") for name in weights)
    width, up = weights["0.up.weight" if layers > 1 else "up.weight"].shape
    sizes = {"vocab_size": len(weights["word"]), "max_position_embeddings": len(weights["position"])}
    heads = width // (64 if width >= 64 else 4)
    sizes |= {"hidden_size": width, "intermediate_size": up, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**sizes, "num_labels": len(weights["classifier.bias"])}


def _ratios(ratio: float) -> dict[str, float]:
    return dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), ratio)


def _load(model: Any, weights: Any) -> None:
    """MatMul's weights are Linear's, transposed."""
    left = dict(weights)

    def put(module: Any, name: str, transposed: bool = True) -> None:
        scale = left.pop(f"{name}.scale" if f"{name}.scale" in left else f"{name}.weight")
        module.weight.data.copy_(scale.T if scale.ndim == 2 and transposed else scale)
        module.bias.data.copy_(left.pop(f"{name}.bias"))

    bert = model.bert
    names = {"word": "word_embeddings", "type": "token_type_embeddings", "position": "position_embeddings"}
    for name, of in names.items():
        getattr(bert.embeddings, of).weight.data.copy_(left.pop(name))
    put(bert.embeddings.LayerNorm, "embeddings")
    several = len(bert.encoder.layer) > 1
    for number, layer in enumerate(bert.encoder.layer):
        own, attention = layer.attention.self, layer.attention.output
        modules = {"q": own.query, "k": own.key, "v": own.value, "out": attention.dense, "norm1": attention.LayerNorm}
        modules |= {"up": layer.intermediate.dense, "down": layer.output.dense, "norm2": layer.output.LayerNorm}
        for name, module in modules.items():
            put(module, f"{number}.{name}" if several else name)
    put(bert.pooler.dense, "pool", transposed=False)  # of a Gemm with transB
    put(model.classifier, "classifier")
    assert not left, list(left)


def batch_of(model: onnx.ModelProto, count: int, weights: Any, device: str) -> dict[str, torch.Tensor]:
    shapes = {each.name: each.type.tensor_type.shape.dim for each in model.graph.input}
    length, random = shapes["input_ids"][1].dim_value, np.random.default_rng(1)
    arrays = {
        "input_ids": random.integers(0, len(weights["word"]), (count, length)),
        "token_type_ids": random.integers(0, 2, (count, length)),
        "attention_mask": np.ones((count, length), np.int64),
        "labels": random.integers(0, len(weights["classifier.bias"]), count),
    }
    return {name: torch.from_numpy(each).to(device) for name, each in arrays.items()}


def timed(steps: dict[str, Callable[[], Any]], seconds: float, wait: Callable[[], Any]) -> dict[str, list[float]]:
    """Milliseconds of a step: of some in a row, the columns in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds * len(steps)
    while time.perf_counter() < end or len(times[next(iter(steps))]) < 3:
        for name, step in steps.items():
            step()
            wait()
            start = time.perf_counter()
            for _ in range(IN_A_ROW):
                step()
            wait()
            times[name].append((time.perf_counter() - start) / IN_A_ROW * 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="one narrow layer, on the CPU")
    parser.add_argument("--batch", type=int, default=32, help="sequences of 128 words (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="whose losses have to agree (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each column (default: %(default)s)")
    parser.add_argument("--ieee", action="store_true", help="matrix products in float32 in full")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    device = "cpu" if options.tiny else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU; --tiny tries the tool on the CPU")
    wait: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.set_float32_matmul_precision("highest")
    case = read(DATA / f"{'bert' if options.tiny else 'bert_base'}.onnx.gz")
    graphs = case.model, case.optimizer
    weights = weights_of(graphs[0], device)
    batch = batch_of(graphs[0], 3 if options.tiny else options.batch, weights, device)

    def columns(ratio: float) -> dict[str, Callable[[], Any]]:
        given = ratio, weights, batch
        return {
            "eager": InPyTorch(graphs[1], *given, lambda model: model),
            "compile": InPyTorch(graphs[1], *given, torch.compile),
            "graphs": FromFile(graphs, *given),
        }

    losses = {name: [float(to_host(step())) for _ in range(options.steps)] for name, step in columns(0.0).items()}
    for name, each in losses.items():
        print(f"{name:8} losses {' '.join(f'{loss:.6f}' for loss in each)}")
    if not np.allclose(losses["graphs"], losses["eager"], rtol=1e-4, atol=1e-5):
        sys.exit("the losses of the graphs are not those of PyTorch")
    torch.set_float32_matmul_precision("highest" if options.ieee or options.tiny else "high")
    steps = columns(0.1)
    times = timed(steps, options.seconds, wait)
    quartiles = {name: statistics.quantiles(each, n=4) for name, each in times.items()}
    rows = [
        [name, f"{middle:.2f}", f"{first:.2f} to {third:.2f}", f"{quartiles['graphs'][1] / middle:.3f}"]
        for name, (first, middle, third) in quartiles.items()
    ]
    print(table(["step", "ms", "quartiles", "graphs' time / its"], rows))
    if options.json:
        found = {"machine": machine(device == "cuda"), "losses": losses, "quartiles": quartiles}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

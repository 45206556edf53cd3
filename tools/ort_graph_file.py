"""The training graphs that tests/onnx_graphs/ort_graphs.py writes, read: for the tests and for tools/onnx_bench.py."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

__all__ = ["RANDOM", "Case", "read", "with_dropout"]

RANDOM = ("Dropout", "BiasDropout", "BitmaskDropout")
"""Operators that draw numbers; their second input is the ratio of elements that are dropped."""


class Case(NamedTuple):
    """A training graph, and by name what ONNX Runtime was given and gave."""

    model: Any
    optimizer: Any
    inputs: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    updated: dict[str, np.ndarray]
    loss: np.ndarray


def read(path: Path) -> Case:
    model = onnx.load_from_string(gzip.decompress(path.read_bytes()))
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    parts: dict[str, dict[str, np.ndarray]] = {"input": {}, "value": {}, "updated": {}}
    for name in list(arrays):
        part, _, rest = name.partition("/")
        if part in parts and rest:
            parts[part][rest] = arrays.pop(name)
    loss, optimizer = arrays.pop("loss", np.empty(0)), arrays.pop("optimizer", np.empty(0, np.uint8))
    own = [each for each in model.graph.initializer if each.name in arrays]
    del model.graph.initializer[:]
    model.graph.initializer.extend(own)
    return Case(
        model, onnx.load_from_string(optimizer.tobytes()), parts["input"], parts["value"], parts["updated"], loss
    )


def with_dropout(model: Any, ratio: float) -> Any:
    """A copy of the graph whose dropouts have this ratio. Their gradients read the same number."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    names = {node.input[1] for node in changed.graph.node if node.op_type in RANDOM}
    for each in changed.graph.initializer:
        if each.name in names:
            each.CopyFrom(onnx.numpy_helper.from_array(np.array(ratio, np.float32), each.name))
    return changed

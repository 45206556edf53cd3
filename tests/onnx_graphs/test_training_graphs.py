"""Training graphs of ONNX Runtime from file: every node against its own run, and ten steps of training against its own.

data/ has four small models' graphs with ONNX Runtime's results: see ort_graphs.py, which makes them.
"""

from __future__ import annotations

import gzip
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("array_api_compat", reason="needs the extra onnx")

import gradkern.onnx  # noqa: E402  after onnx is known to be there
from gradkern.onnx.arrays import to_host  # noqa: E402

HERE = Path(__file__).parent
MODELS = ("mlp", "resnet", "bert", "gpt2")
RANDOM = ("Dropout", "BiasDropout", "BitmaskDropout")
KINDS = ["numpy", pytest.param("torch", marks=pytest.mark.torch)]


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
    loss, optimizer = arrays.pop("loss"), arrays.pop("optimizer")
    own = [each for each in model.graph.initializer if each.name in arrays]
    del model.graph.initializer[:]
    model.graph.initializer.extend(own)
    return Case(
        model, onnx.load_from_string(optimizer.tobytes()), parts["input"], parts["value"], parts["updated"], loss
    )


@cache
def case(name: str) -> Case:
    return read(HERE / "data" / f"{name}.onnx.gz")


def as_kind(kind: str, array: np.ndarray) -> Any:
    """The test's own copy, as an array of that library."""
    if kind == "numpy":
        return array.copy()
    import torch

    return torch.tensor(array)


def close(name: str, ours: Any, theirs: np.ndarray) -> None:
    """float32 results of sums in another order: within 2e-5 of the largest element."""
    ours = np.asarray(to_host(ours))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
    limit = 2e-5 * max(1.0, float(np.abs(theirs.astype(np.float64)).max(initial=0)))
    np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=0, atol=limit, err_msg=name)


def check_nodes(it: Case, kind: str) -> None:
    """Every node, given ONNX Runtime's values, gives ONNX Runtime's; a dropout, what its own mask says."""
    session = gradkern.onnx.load(it.model)
    values = {name: as_kind(kind, each) for name, each in {**it.inputs, **it.values}.items()}
    everything = {**session._initializers, **values, "": None}
    device = None if kind == "numpy" else values[next(iter(it.inputs))].device
    for at, node in enumerate(session._graph.nodes):
        results = session._compute(at, node, everything, device, set(everything), Counter())
        if node.op in RANDOM:
            y, mask = (np.asarray(to_host(each)) for each in results)
            x = np.asarray(to_host(everything[node.inputs[0]]))
            np.testing.assert_allclose(y, x * mask / np.float32(0.75), rtol=1e-6)
            continue
        for name, ours in zip(node.outputs, results, strict=False):
            if name:
                close(f"{node.name}: {name}", ours, it.values[name])
    assert it.updated
    for name in session.updated:  # not among those that ONNX Runtime changed: a gradient of nothing but rounding
        close(name, everything[name], it.updated.get(name, it.inputs[name]))


def train(it: Case, kind: str) -> list[float]:
    """The losses of ten steps from file, as ONNX Runtime's Module and Optimizer make them."""
    training, optimizer = gradkern.onnx.load(it.model), gradkern.onnx.load(it.optimizer)
    buffers = [name for name in training.updated if name.endswith("_grad.accumulation.buffer")]
    names = [name.removesuffix("_grad.accumulation.buffer") for name in buffers]
    feed = {name: as_kind(kind, each) for name, each in it.inputs.items()}
    feed["lazy_reset_grad"] = as_kind("numpy", np.array([True]))
    moments = [[feed[name] * 0 for name in names] for _ in range(2)]
    losses = []
    for step in range(1, len(it.loss) + 1):
        losses.append(float(training.run(feed)[training.outputs[0]]))
        updated = optimizer.run(
            {
                "learning_rate": [0.02],
                "step": [step],
                "params": [feed[name] for name in names],
                "gradients": [feed[name] for name in buffers],
                "first_order_moments": moments[0],
                "second_order_moments": moments[1],
            }
        )
        assert all(map(bool, updated.values()))
    return losses


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_node_gives_what_onnx_runtime_gave(name: str, kind: str) -> None:
    check_nodes(case(name), kind)


def without_dropout(it: Case) -> Case:
    """Its ratio is 0, as in the steps that ONNX Runtime trained."""
    model = onnx.ModelProto.FromString(it.model.SerializeToString())
    ratios = {node.input[1] for node in model.graph.node if node.op_type in RANDOM}
    for each in model.graph.initializer:
        if each.name in ratios:
            each.CopyFrom(onnx.numpy_helper.from_array(np.array(0, np.float32), each.name))
    return it._replace(model=model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_from_file_follow_the_losses_of_onnx_runtime(name: str, kind: str) -> None:
    it = without_dropout(case(name))
    losses = train(it, kind)
    assert losses[-1] < 0.7 * losses[0]
    np.testing.assert_allclose(losses, it.loss, rtol=2e-3)

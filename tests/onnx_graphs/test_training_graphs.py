"""Training graphs of ONNX Runtime from file: every node against its own run, and ten steps of training against its own.

data/ has four small models' graphs with ONNX Runtime's results: see ort_graphs.py, which makes them.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("array_api_compat", reason="needs the extra onnx")

from ort_graph_file import RANDOM, Case, read, with_dropout  # noqa: E402  after onnx is known to be there

import gradkern.onnx  # noqa: E402
from gradkern import AttributeValueError, DataError, ShapeError  # noqa: E402
from gradkern.onnx.arrays import namespace, to_host  # noqa: E402
from gradkern.onnx.training_ops import TRAINING  # noqa: E402

HERE = Path(__file__).parent
MODELS = ("mlp", "resnet", "bert", "gpt2")
KINDS = [
    "numpy",
    pytest.param("cpu", marks=pytest.mark.torch),
    pytest.param("cuda", marks=[pytest.mark.torch, pytest.mark.gpu]),
]
"""Of arrays: NumPy's, or PyTorch's tensors on that device."""


@pytest.fixture(autouse=True)
def float32_in_full() -> Iterator[None]:
    """ONNX Runtime's results are of a CPU."""
    with gradkern.policy(allow_tf32=False):
        yield


@cache
def case(name: str) -> Case:
    return read(HERE / "data" / f"{name}.onnx.gz")


def as_kind(kind: str, array: np.ndarray) -> Any:
    """The test's own copy."""
    if kind == "numpy":
        return array.copy()
    import torch

    return torch.tensor(array, device=kind)


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
    device = session._device_of({name: values[name] for name in it.inputs})
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


def check_training(it: Case, kind: str) -> None:
    """Ten steps from file have the losses that ONNX Runtime's Module and Optimizer made."""
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
    assert losses[-1] < 0.7 * losses[0]
    np.testing.assert_allclose(losses, it.loss, rtol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_node_gives_what_onnx_runtime_gave(name: str, kind: str) -> None:
    check_nodes(case(name), kind)


def check_operators(it: Case, kind: str) -> None:
    """The operators that none of the models has, each as ONNX Runtime computes it on a CPU."""
    session = gradkern.onnx.load(it.model)
    found = session.run({name: as_kind(kind, each) for name, each in it.inputs.items()}, outputs=list(it.values))
    assert len(found) == len(it.values) > 30
    for name, theirs in it.values.items():
        close(name, found[name], theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_other_operators_give_what_onnx_runtime_gave(kind: str) -> None:
    check_operators(case("operators"), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_operators_that_onnx_runtime_has_for_cuda_alone(kind: str) -> None:
    random = np.random.default_rng(0)
    x, bias, wide = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (4,), (2, 3, 5, 7)))

    def run(op: str, *inputs: Any, **attributes: Any) -> Any:
        entry = TRAINING["com.microsoft", op]
        given = [each if at in entry.host or each is None else as_kind(kind, each) for at, each in enumerate(inputs)]
        found = entry.function(namespace(tuple(given)), *given, **attributes)
        return [np.asarray(to_host(each)) for each in found] if isinstance(found, tuple) else np.asarray(to_host(found))

    parts = run("View", x, np.array([2, 4]), np.array([16]))
    np.testing.assert_array_equal(np.concatenate([each.reshape(-1) for each in parts]), x.reshape(-1))
    assert [each.shape for each in parts] == [(2, 4), (16,)]
    places = np.array([1, 4, 5, 7, 8, 11])
    padded = run("PadAndUnflatten", x, places, np.array([3, 4]))
    np.testing.assert_array_equal(padded.reshape(12, 4)[places], x)
    np.testing.assert_allclose(padded.sum(), x.sum(), rtol=1e-5)
    assert bool(run("All", np.ones(3, bool)))
    assert not bool(run("All", np.array([True, False])))
    np.testing.assert_array_equal(run("PassThrough", x, wide)[1], wide)

    off, on, ratio = np.array(False), np.array(True), np.array(0.25, np.float32)
    np.testing.assert_allclose(run("BiasDropout", x, bias, x, ratio, off)[0], x + bias + x, rtol=1e-6)
    y, mask = run("BiasDropout", x, bias, x, ratio, on, seed=3)
    assert 0 < mask.sum() < mask.size
    np.testing.assert_allclose(y, (x + bias) * mask / 0.75 + x, rtol=1e-5, atol=1e-6)
    again, words = run("BitmaskBiasDropout", x, bias, x, ratio, on, seed=3)
    np.testing.assert_array_equal(again, y)
    assert words.dtype == np.uint32
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(bits[: mask.size], mask.reshape(-1))
    y, words = run("BitmaskDropout", x, ratio, on)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: x.size].reshape(x.shape)
    np.testing.assert_allclose(y, x * bits / 0.75, rtol=1e-6)
    for inner, shape in ((1, (3, 5, 7)), (0, (2, 1, 5, 7))):
        added = random.standard_normal(shape).astype(np.float32)
        y, mask, softmax = run("BiasSoftmaxDropout", wide, added, ratio, axis=3, is_inner_broadcast=inner)
        e = np.exp((wide + added).astype(np.float64))
        np.testing.assert_allclose(softmax, e / e.sum(-1, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(y, softmax * mask / 0.75, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_norms_fit_their_type_where_squares_do_not_and_wrong_numbers_are_refused(kind: str) -> None:
    def run(op: str, *inputs: Any, domain: str = "com.microsoft", **attributes: Any) -> Any:
        entry = TRAINING[domain, op]
        given = [
            as_kind(kind, each) if at not in entry.host and isinstance(each, np.ndarray) else each
            for at, each in enumerate(inputs)
        ]
        return entry.function(namespace(tuple(given)), *given, **attributes)

    for large in (np.full(4, 300, np.float16), np.full(4, 1e30, np.float32), np.full(4, 1 + 1e-9)):
        exact = np.linalg.norm([*large.astype(np.float64)] * 2)
        rtol = float(2 * np.finfo(large.dtype).eps)
        gradients = [as_kind(kind, large.copy()) for _ in range(2)]
        TRAINING["com.microsoft", "InplaceClipGradNorm"].function(namespace((gradients,)), gradients, max_norm=1.0)
        np.testing.assert_allclose(to_host(gradients[1]), large / (exact + 1e-6), rtol=rtol)
    x, on = np.ones((2, 3), np.float32), np.array(True)
    for ratio in (1.0, 1.5, -0.5, np.nan):
        with pytest.raises(AttributeValueError, match=r"^ratio is .*; expected at least 0 and less than 1"):
            run("Dropout", x, np.array(ratio), on, domain="")
    for op, sizes in (
        ("SplitTraining", [np.array([1, 2])]),
        ("SplitTraining", [np.array([3, -1])]),
        ("View", [np.array([2, 2])]),
    ):
        with pytest.raises(ShapeError, match=r"expected sizes with the sum [26]$"):
            run(op, x, *sizes)
    weights = [as_kind(kind, x.copy())]
    with pytest.raises(DataError, match=r"^step is 0; expected 1 or more"):
        run("AdamWOptimizer", np.array(0.1), np.array(0), *[weights] * 4)
    np.testing.assert_array_equal(to_host(weights[0]), x)


@pytest.mark.slow
@pytest.mark.longest
def test_graphs_that_onnx_runtime_builds_now(tmp_path: Path) -> None:
    """Built by onnxruntime-training in an environment of its own: the graphs in data/ are of the same making."""
    uv, python = str(Path(sys.executable).with_name("uv")), tmp_path / "environment" / "bin" / "python"
    wanted = ["onnxruntime-training==1.19.2", "numpy<2", "onnx<1.18"]
    for command in (
        [uv, "venv", "--python", "3.11", python.parents[1]],
        [uv, "pip", "install", "--python", python, *wanted],
        [python, HERE / "ort_graphs.py", tmp_path],
    ):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=1200)
        assert done.returncode == 0, done.stderr
    for name in MODELS:
        built = read(tmp_path / f"{name}.onnx.gz")
        np.testing.assert_allclose(built.loss, case(name).loss, rtol=1e-4)
        check_nodes(built, "numpy")
        check_training(without_dropout(built), "numpy")
    check_operators(read(tmp_path / "operators.onnx.gz"), "numpy")


def without_dropout(it: Case) -> Case:
    """As in the steps that ONNX Runtime trained."""
    return it._replace(model=with_dropout(it.model, 0.0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_from_file_follow_the_losses_of_onnx_runtime(name: str, kind: str) -> None:
    check_training(without_dropout(case(name)), kind)

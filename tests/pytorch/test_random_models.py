"""Random models, by way of torch.compile(backend="gradkern"), accelerate() and enable(), against eager in float64."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.random_models import KINDS, Drawn, Images, Rows
from torch._dynamo.backends.debugging import aot_eager

import gradkern.torch
from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import fusion
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.thorough,
    pytest.mark.usefixtures("one_thread", "compiled_anew"),
    pytest.mark.filterwarnings("ignore:.*that is not a leaf Tensor:UserWarning"),  # Dynamo looks, behind a break
]


def rewritten(graph_module: Any, inputs: Any) -> Any:
    """The backend's first stage with autograd's graphs as they are: nothing is compiled."""
    rewrite(graph_module, gates_of(True))
    return aot_eager(graph_module, inputs)


def lived(model: Any, run: Any) -> dict[str, Any]:
    """Two steps whose gradients add up, then a call in evaluation: all that is computed or left, by name, and which
    gradients share memory.
    """
    found: dict[str, Any] = {}
    model.train()
    for count in model.sizes:
        x = model.example(count).requires_grad_()
        torch.manual_seed(1)  # of dropout
        results = run(x)
        wanted = [each for each in results if each.requires_grad]
        torch.stack([(each.sin() * (0.5 + each.detach().cos())).sum() for each in wanted]).sum().backward()
        found[f"dx {count}"] = x.grad
        for place, each in enumerate(results):
            found |= {f"y {count} {place}": each.detach().clone(), f"strides {count} {place}": each.stride()}
    gradients = {name: each.grad for name, each in model.named_parameters()}
    owners: dict[int, list[str]] = {}
    for name, each in gradients.items():
        if each is not None:
            owners.setdefault(each.untyped_storage().data_ptr(), []).append(name)
    if model.evaluated:
        model.eval()
        with torch.no_grad():
            found |= {f"evaluated {place}": each for place, each in enumerate(run(model.example(3)))}
    found |= {f"d {name}": each for name, each in gradients.items()}
    found |= {name: each.detach().clone() for name, each in (*model.named_parameters(), *model.named_buffers())}
    return found | {"shared": [each for each in owners.values() if len(each) > 1]}


Way = Callable[[Drawn], dict[str, Any]]


def compiled(backend: Any, **options: Any) -> Way:
    return lambda model: lived(model, torch.compile(model, backend=backend, **options))


def outcome(model: Drawn, way: Way) -> dict[str, Any]:
    """What it finds; nothing of a model of which PyTorch says that a saved tensor was modified in place."""
    try:
        return way(model)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return {}


def compare(seed: int, kind: type[Drawn], way: Way) -> bool:
    """Whether eager computes the model; if so, the other way computes the same. Eager refuses some.

    Where PyTorch's own compiled models differ from eager, either is right: they give zeros where eager has no gradient,
    for one, and save the statistics that a norm in evaluation had, where eager sees those of later.
    """
    model = kind(seed)
    expected = outcome(copy.deepcopy(model), lambda eager: lived(eager, eager))
    if not expected:
        return False
    try:
        found = outcome(copy.deepcopy(model), way)
        if differing(found, expected):
            theirs = outcome(model, compiled(aot_eager))
            names = differing(found, theirs) & differing(found, expected)
            torch.testing.assert_close(*[{name: each[name] for name in names} for each in (found, expected)])
    except Exception as error:
        error.add_note(f"{kind.__name__}({seed}), {model.graphs} graphs, sizes {model.sizes}: {model.calls}")
        raise
    return True


def differing(found: dict[str, Any], expected: dict[str, Any]) -> set[str]:
    """The names of what is not the same, but for rounding."""
    largest = max([1.0, *[float(each.abs().max()) for each in expected.values() if torch.is_tensor(each)]])
    return {name for name in {*found, *expected} if not _same(found.get(name), expected.get(name), 1e-9 * largest)}


def _same(found: Any, expected: Any, bound: float) -> bool:
    if not torch.is_tensor(found) or not torch.is_tensor(expected):
        return found is expected if torch.is_tensor(found) or torch.is_tensor(expected) else found == expected
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-7, atol=bound)


def of_seeds(seeds: range, kind: type[Drawn], way: Way) -> Counter[str]:
    """Compare these models. Returns what was taken, and the "models" that eager computes."""
    found: Counter[str] = Counter()
    for seed in seeds:
        found["models"] += compare(seed, kind, way)
        found.update(each.fusion for each in findings.findings() if not each.reason)
        torch.compiler.reset()
        gradkern.torch.forget()
    return found


def seeds(request: pytest.FixtureRequest, few: int, many: int) -> range:
    """The same few, or with --long as many others."""
    if not request.config.getoption("--long"):
        return range(few)
    first = random.SystemRandom().randrange(1 << 30)
    print(f"seeds {first} to {first + many - 1}")
    return range(first, first + many)


@pytest.mark.parametrize("kind", KINDS)
def test_rewritten_models_compute_what_eager_does(
    request: pytest.FixtureRequest, kind: type[Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    drawn = seeds(request, 6, 1000)
    found = of_seeds(drawn, kind, compiled(rewritten))
    assert found.pop("models") >= 0.8 * len(drawn)
    assert set(found) >= TAKEN[kind]
    assert found.total() >= 5 * len(drawn)


TAKEN: dict[type[Drawn], set[str]] = {
    Images: {
        *("batch_norm", "batch_norm + relu", "batch_norm + leaky_relu", "batch_norm + silu", "batch_norm + relu6"),
        *("batch_norm + hardswish", "batch_norm + elu", "batch_norm + gelu", "batch_norm + add"),
        *("batch_norm + add + relu", "batch_norm + add + leaky_relu", "depthwise conv"),
    },
    Rows: {"add + layer_norm", "add + rms_norm", "linear + gelu"},
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
@pytest.mark.parametrize("kind", KINDS)
def test_models_through_inductor_compute_what_eager_does(request: pytest.FixtureRequest, kind: type[Drawn]) -> None:
    options = {"gradkern": True, "fallback_random": True}
    drawn = seeds(request, 1, 30)
    found = of_seeds(drawn, kind, compiled("gradkern", options=options))
    assert found.pop("models")
    assert found.total() >= 3 * len(drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_accelerated_models_compute_what_eager_does(request: pytest.FixtureRequest, kind: type[Drawn]) -> None:
    replaced: list[str] = []

    def way(model: Drawn) -> dict[str, Any]:
        replaced.extend(gradkern.torch.accelerate(model).replaced)
        return lived(model, model)

    drawn = seeds(request, 20, 1000)
    assert of_seeds(drawn, kind, way)["models"] >= 0.8 * len(drawn)
    assert len(replaced) >= 2 * len(drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_models_compute_what_eager_does_when_all_is_enabled(request: pytest.FixtureRequest, kind: type[Drawn]) -> None:
    taken: list[int] = []

    def way(model: Drawn) -> dict[str, Any]:
        with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
            found = lived(model, model)
        taken.append(gradkern.torch.report().taken)
        return found

    drawn = seeds(request, 20, 1000)
    assert of_seeds(drawn, kind, way)["models"] >= 0.8 * len(drawn)
    assert sum(taken) >= 2 * len(drawn)

"""PyTorch's own samples: gradkern's gradients against PyTorch's autograd in float64, in every type and any memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import ml_dtypes
import pytest
import torch
from helpers import opinfo
from helpers.calls import run_any
from helpers.opinfo import INPUT_OF, LAYOUTS, Problem
from helpers.terms import terms
from helpers.tolerance import assert_within_terms

import gradkern
import gradkern.torch
from gradkern.arrays.host import torch_as_numpy

pytestmark = [
    pytest.mark.torch,
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:Using padding='same'"),  # PyTorch's remark on its own samples
    pytest.mark.filterwarnings("ignore:gradkern.*not used, as it is wrong:RuntimeWarning"),  # of a library's engine
]

OPERATORS = gradkern.operators()
BUILDERS = {
    "nn.functional.layer_norm": opinfo.layer_norm,
    "native_layer_norm": opinfo.layer_norm,
    "nn.functional.rms_norm": opinfo.rms_norm,
    "nn.functional.batch_norm": opinfo.batch_norm,
    "native_batch_norm": opinfo.native_batch_norm,
    "_native_batch_norm_legit": opinfo.native_batch_norm,
    "nn.functional.gelu": opinfo.gelu,
    "nn.functional.conv1d": opinfo.conv,
    "nn.functional.conv2d": opinfo.conv,
    "nn.functional.conv3d": opinfo.conv,
}
SAMPLES = {
    ("nn.functional.layer_norm", "LayerNormalizationGrad"): 6,
    ("nn.functional.layer_norm", "InvertibleLayerNormalizationGrad"): 6,
    ("native_layer_norm", "LayerNormalizationGrad"): 20,
    ("nn.functional.rms_norm", "SimplifiedLayerNormalizationGrad"): 6,
    ("nn.functional.batch_norm", "BatchNormalizationGrad"): 5,
    ("nn.functional.batch_norm", "DmlBatchNormalizationGrad"): 6,
    ("native_batch_norm", "BatchNormalizationGrad"): 6,
    ("native_batch_norm", "DmlBatchNormalizationGrad"): 4,
    ("_native_batch_norm_legit", "BatchNormalizationGrad"): 6,
    ("_native_batch_norm_legit", "DmlBatchNormalizationGrad"): 4,
    ("nn.functional.gelu", "BiasGeluGrad_dX"): 4,
    ("nn.functional.gelu", "BiasFastGeluGrad_dX"): 4,
    ("nn.functional.conv1d", "ConvGrad"): 10,
    ("nn.functional.conv2d", "ConvGrad"): 30,
    ("nn.functional.conv3d", "ConvGrad"): 20,
}
"""How many samples at least PyTorch has of each function that each operator differentiates."""
NOT_TAKEN = {("nn.functional.batch_norm", 3): "rank 1; expected at least rank 2, (N, C, spatial...)"}
"""The samples that no operator takes, by their place among the function's, with the reason."""
UPSTREAM: dict[str, str] = {
    name: "InputGradient" if name.startswith("Dml") else each.inputs[0].name for name, each in OPERATORS.items()
}
POLICY = {"search": "heuristic", "allow_tf32": False}
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """More would wait for each other: the samples are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problems(name: str, operator: str) -> list[Problem]:
    """Every sample of a function that this operator takes."""
    build = opinfo.invertible_layer_norm if operator.startswith("Invertible") else BUILDERS[name]
    every = [build(sample) for place, sample in enumerate(opinfo.samples(name)) if (name, place) not in NOT_TAKEN]
    return [each for each in every if each.operator == operator]


def calls() -> Iterator[Any]:
    """Every type of every function in every layout; the native functions' samples are much the same, and dense. On the
    CPU, which copies what is not dense before a kernel sees it, each type but float32 has one such layout, in turn, and
    --long has all.
    """
    others = [layout for layout in LAYOUTS if layout != "dense"]
    for name, operator in SAMPLES:
        for number, row in enumerate(OPERATORS[operator].combinations):
            turn = others[(number + len(name)) % len(others)]
            for layout in LAYOUTS if name.startswith("nn.") else ["dense"]:
                taken = layout in ("dense", turn) or set(row.values()) == {"float32"}
                label = f"{name}-{operator}-{'-'.join(row.values())}-{layout}"
                for device, marks in (("cpu", () if taken else pytest.mark.slow), ("cuda", pytest.mark.gpu)):
                    yield pytest.param(name, operator, row, layout, device, id=f"{label}-{device}", marks=marks)


def cast(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    return tensor.detach().to(getattr(torch, dtype))


def check(problem: Problem, row: dict[str, str], layout: str, device: str) -> None:
    """One call in these types, with every tensor in this layout."""
    operator, place = OPERATORS[problem.operator], LAYOUTS[layout]
    types = {each.name: row[each.type] for each in (*operator.inputs, *operator.outputs)}
    leaves = {name: place(cast(each, types[name])) for name, each in problem.leaves.items()}
    constants = {name: place(cast(each, types[name])) for name, each in problem.constants.items()}
    wide = {name: each.double().clone().requires_grad_() for name, each in leaves.items()}
    values = wide | {name: each.double() for name, each in constants.items()}
    y = problem.function(values)
    upstream = UPSTREAM[problem.operator]
    grad = place(cast(torch.randn_like(y), types[upstream]))
    exact = torch.autograd.grad(y, list(wide.values()), grad.double())
    assert all(each.isfinite().all() for each in exact)
    derived = problem.derived({name: each.detach() for name, each in values.items()})
    statistics = {name: cast(each, types[name]) for name, each in derived.items()}
    if layout != "expanded":  # whose elements differ
        statistics = {name: place(each) for name, each in statistics.items()}
    expected = {each.name for each in operator.inputs if not each.optional}
    inputs = {upstream: grad, **constants, **statistics}
    inputs |= {INPUT_OF[name]: each for name, each in leaves.items() if INPUT_OF.get(name) in expected}
    assert set(inputs) == expected
    binding = {key: row[each.binds] for key, each in operator.attributes.items() if each.binds}
    result = run_any(
        problem.operator,
        **{name: place_on(each, device) for name, each in inputs.items()},
        outputs=tuple(leaves),
        policy=POLICY,
        **problem.attributes,
        **binding,
    )
    known = {name: torch_as_numpy(each) for name, each in inputs.items()}
    of = terms(problem.operator, known, problem.attributes)
    coarsest = max((float(ml_dtypes.finfo(types[name]).eps) for name in statistics), default=0.0)
    for name, each in zip(leaves, exact, strict=True):
        got = getattr(result, name)
        assert got.device.type == device
        assert got.dtype is getattr(torch, types[name])
        assert got.shape == leaves[name].shape
        assert_within_terms(torch_as_numpy(got.cpu()), each.numpy(), of[name], given=coarsest)


def place_on(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The tensor on a device, with the strides it has here."""
    if device == "cpu" or not tensor.numel():
        return tensor.to(device)
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((extent,), (1,)).to(device)
    return memory.as_strided(tensor.shape, tensor.stride())


@pytest.mark.parametrize(("name", "operator"), list(SAMPLES))
def test_no_sample_has_vanished(name: str, operator: str) -> None:
    assert len(problems(name, operator)) >= SAMPLES[name, operator]


def test_the_samples_that_no_operator_takes_are_refused() -> None:
    for (name, place), reason in NOT_TAKEN.items():
        x = opinfo.samples(name)[place].input
        with pytest.raises(gradkern.ShapeError, match=re.escape(reason)):
            gradkern.run("BatchNormalizationGrad", x, x, x, x, x)


@pytest.mark.parametrize(("name", "operator", "row", "layout", "device"), list(calls()))
def test_gradients_of_every_sample_in_every_type_and_layout(
    name: str, operator: str, row: dict[str, str], layout: str, device: str
) -> None:
    for problem in problems(name, operator):
        check(problem, row, layout, device)


# --- gradkern.torch in PyTorch's place --------------------------------------------------------------------------------

TAKEN_OVER = [name for name in BUILDERS if name.startswith("nn.")]
DTYPES = ["float32", "float64", "bfloat16", "float16"]


def left_to_pytorch(name: str, place: int, device: str) -> str | None:
    """What is said of a sample that gradkern.torch leaves to PyTorch; None where it takes it."""
    if name == "nn.functional.rms_norm" and device == "cpu":
        return ""  # PyTorch makes it of other functions there, and has no kernel of its own
    if place == 4 and name == "nn.functional.batch_norm":
        return ""  # it is empty, and PyTorch asks no kernel
    if place == 4 and name.endswith("_norm"):
        return "it is empty"
    return None


@devices
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TAKEN_OVER)
def test_pytorchs_samples_with_gradkern_in_place_of_its_kernels(
    name: str, dtype: str, layout: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cuda":
        monkeypatch.setattr(import_module("torch.backends.cudnn").conv, "fp32_precision", "ieee")  # it has no types
    with gradkern.torch.enabled(devices=device, min_bytes=0, plan="now"):
        for place, sample in enumerate(opinfo.samples(name)):
            if (name, place) not in NOT_TAKEN:
                problem, reason = BUILDERS[name](sample), left_to_pytorch(name, place, device)
                assert take_over(problem, dtype, layout, device, reason), f"sample {place}: {problem}"


def take_over(problem: Problem, dtype: str, layout: str, device: str, reason: str | None) -> bool:
    """Whether gradkern gives a sample's gradient, where it is asked a second time, or says the reason why not."""
    place = LAYOUTS[layout]
    leaves = {name: place(cast(each, dtype)) for name, each in problem.leaves.items()}
    constants = {name: cast(each, dtype) for name, each in problem.constants.items()}
    wide = {name: each.double().clone().requires_grad_() for name, each in leaves.items()}
    known = wide | {name: each.double() for name, each in constants.items()}
    exactly = problem.function(known)
    grad = place(cast(torch.randn_like(exactly), dtype))
    exact = torch.autograd.grad(exactly, list(wide.values()), grad.double())

    given = {name: place_on(each.detach(), device).requires_grad_() for name, each in leaves.items()}
    y = problem.function(given | {name: each.to(device) for name, each in constants.items()})
    upstream = place_on(grad, device)
    gradkern.torch.forget()
    torch.autograd.grad(y, list(given.values()), upstream, retain_graph=True)  # by PyTorch, while a plan is made
    results = torch.autograd.grad(y, list(given.values()), upstream)
    report = gradkern.torch.report()
    if reason is not None:
        said = [row.reason for row in report]
        return report.taken == 0 and bool(said) == bool(reason) and all(reason in each for each in said)
    known = {name: each.detach() for name, each in known.items()}
    inputs = {INPUT_OF[name]: each for name, each in leaves.items() if name in INPUT_OF}
    inputs |= {UPSTREAM[problem.operator]: grad, **constants, **problem.derived(known)}
    expected = {each.name for each in OPERATORS[problem.operator].inputs if not each.optional}
    numbers = {name: torch_as_numpy(each) for name, each in inputs.items() if name in expected}
    of = terms(problem.operator, numbers, problem.attributes)
    saved = float(ml_dtypes.finfo(dtype).eps)  # PyTorch may save statistics in this type
    for name, mine, its in zip(leaves, results, exact, strict=True):
        assert (mine.dtype, mine.shape) == (leaves[name].dtype, leaves[name].shape)
        assert_within_terms(torch_as_numpy(mine.cpu()), its.numpy(), of[name], given=saved)
    return report.taken == 1

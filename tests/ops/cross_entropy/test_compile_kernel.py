"""The kernels of cross entropy compile for every type, layout and architecture without a spilled register."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

from gradkern.call import Call, Refusal, Tensor
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.rows import EmptyPlan
from gradkern.ops.cross_entropy.cuda.plan import plan

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[str, str, tuple[int, ...], tuple[tuple[str, Any], ...]]
SHAPES = [
    (1 << 16, 10), (1 << 16, 129), (1 << 14, 1000), (16384, 32000), (16384, 50257), (8192, 128256), (4096, 151936),
    (64, 262144), (8, 21, 1 << 16), (8, 1000, 256),
]  # fmt: skip
OPTIONS: list[tuple[tuple[str, Any], ...]] = [
    (),
    (("label_smoothing", 0.1), ("weight", True)),
    (("z_loss", 0.1), ("softcap", 30.0), ("entropy", True)),
    (("softcap", 30.0), ("capped", 1)),
    (("probabilities", True),),
]
KINDS: list[Kind] = [
    *(("CrossEntropy", dtype, shape, ()) for dtype, shape in product((b, f, d), SHAPES)),
    *(("CrossEntropy", b, shape, options) for shape, options in product(SHAPES[::3], OPTIONS[1:])),
    *((operator, dtype, shape, ()) for operator, dtype, shape in
      product(("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"), (b, f), SHAPES)),
]  # fmt: skip


def call_of(operator: str, dtype: str, shape: tuple[int, ...], options: tuple[tuple[str, Any], ...]) -> Call:
    def tensor(kind: str, sizes: tuple[int, ...]) -> Tensor:
        return Tensor(np.dtype(kind), sizes, c_strides(sizes, np.dtype(kind).itemsize), 16)

    chosen, rows = dict(options), (shape[0], *shape[2:])
    U = d if dtype == d else f
    attributes: dict[str, Any] = {"reduction": "mean", "ignore_index": -100}
    axes = {"N": shape[0], "C": shape[1], "spatial": shape[2:]}
    data = tensor(dtype, shape)
    if operator == "SoftmaxCrossEntropyLoss":
        inputs, outputs = (
            {"scores": data, "labels": tensor("int64", rows)},
            {"output": tensor(dtype, ()), "log_prob": data},
        )
    elif operator == "SoftmaxCrossEntropyLossGrad":
        inputs = {"dY": tensor(dtype, ()), "log_prob": data, "label": tensor("int64", rows)}
        outputs = {"d_logits": data}
    else:
        inputs, outputs = {"X": data}, {"loss": tensor(U, ()), "dX": data}
        if chosen.pop("probabilities", False):
            inputs["probabilities"] = data
        else:
            inputs["labels"] = tensor("int32", rows)
        if chosen.pop("weight", False):
            inputs["weight"] = tensor(U, shape[1:2])
        if chosen.pop("entropy", False):
            outputs["entropy"] = tensor(U, rows)
        attributes |= {"label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0, "empty": "nan", **chosen}
    return Call(operator, inputs, outputs, attributes, axes, frozenset(), "cuda:0", Policy())


@pytest.mark.torch
def test_what_has_rows_has_a_plan() -> None:
    """The others are copied first: most of them are refused."""
    import torch

    from gradkern.torch.operators import has_rows, new_like

    def planned(x: Any) -> bool:
        def tensor(made: Any) -> Tensor:
            return Tensor(np.dtype(f), tuple(made.shape), tuple(4 * step for step in made.stride()), 4)

        call = call_of("CrossEntropy", f, tuple(x.shape), ())
        call = replace(
            call, inputs={**call.inputs, "X": tensor(x)}, outputs={**call.outputs, "dX": tensor(new_like(x))}
        )
        with dry_run(DryRunDevice(0, (9, 0), 132, SHARED_MEMORY[9, 0])):
            try:
                plan(call)
            except Refusal:
                return False
        return True

    def empty(*sizes: int) -> Any:
        return torch.empty(sizes)

    known = [
        *(empty(4, 6), empty(4, 8)[:, :6], empty(4, 12)[:, ::2], empty(6, 4).t(), empty(1, 6).expand(4, 6)),
        *(empty(2, 5, 6).transpose(1, 2), empty(2, 5, 6)[:, :-1].transpose(1, 2), empty(5, 2, 6).permute(1, 2, 0)),
        *(empty(2, 6, 4, 3), empty(2, 4, 3, 6).permute(0, 3, 1, 2), empty(2, 6, 4, 3).transpose(2, 3)),
        *(empty(2, 6, 5, 4)[:, :, 1:, 1:], empty(1, 6, 5, 4)[:, :, 1:, 1:], empty(2, 6, 5, 3)[:, :, 1:]),
        *(empty(2, 4, 3, 8).permute(0, 3, 1, 2)[:, :6], empty(2, 6, 1, 1), empty(2, 1, 4, 3), empty(3, 6, 4)[:1]),
        *(empty(2, 4, 6, 3).transpose(1, 2), empty(2, 1, 6).expand(2, 4, 6).transpose(1, 2), empty(3, 5, 6)[:, 1:]),
    ]
    for x in known:
        assert not has_rows(x) or planned(x), (x.shape, x.stride())
        assert has_rows(x.contiguous())
        assert has_rows(x.movedim(1, -1).contiguous().movedim(-1, 1))
    assert [planned(x) for x in known[5:8]] == [has_rows(x) for x in known[5:8]] == [True, False, False]


@pytest.mark.parametrize("empty", ["zero", "nan"])
def test_the_mean_of_no_rows_is_filled_without_a_kernel(empty: str) -> None:
    with dry_run(DryRunDevice(0, (9, 0), 132, SHARED_MEMORY[9, 0])) as device:
        made = plan(call_of("CrossEntropy", f, (0, 5), (("empty", empty),)))
    assert isinstance(made, EmptyPlan)
    assert not device.specs
    assert dict(zip(made.sizes, made.fills, strict=True)) == {4: 0xFF if empty == "nan" else 0, 0: 0}


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::9], HOPPER), *zip(KINDS[4::17], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS[::11], OTHERS)],
        covered=2,
    ),
)
def test_no_register_is_spilled(kind: Kind, capability: tuple[int, int]) -> None:
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call_of(*kind))
    assert device.specs
    for spec in device.specs:
        compiled = made_of(spec)
        assert compiled.spilled == 0, spec.name
        assert "ld.local" not in compiled.ptx, spec.name

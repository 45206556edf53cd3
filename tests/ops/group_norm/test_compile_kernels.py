"""The kernels of group norms compile for every type, layout and architecture without a spilled register."""

from __future__ import annotations

import re
from itertools import cycle, product

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters
from memory_orders import strides_in_order

from gradkern.call import Call, Refusal, Tensor
from gradkern.policy import Policy

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.ops.group_norm.cuda.plan import plan

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[str, str, str, tuple[int, ...], int, str]
SHAPES = [((32, 320, 64, 64), 32), ((8, 512, 128, 128), 32), ((16, 24, 7, 7), 24), ((64, 1024), 32)]
KINDS: list[Kind] = [
    (operator, dtype, order, shape, groups, activation)
    for operator, dtype, order, (shape, groups), activation in product(
        ("GroupNormGrad", "GroupNormalization", "SkipGroupNorm"),
        (b, h, f, d),
        ("C", "channels_last"),
        SHAPES,
        ("silu", "gelu", "none"),
    )
]


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::23], HOPPER), *zip(KINDS[5::47], cycle(OTHERS), strict=False)],
        product(KINDS, [*HOPPER, *OTHERS]),
        covered=3,
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(kind: Kind, capability: tuple[int, int]) -> None:
    shape, call = kind[3], call_of(kind)
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call)
    for spec in device.specs:
        compiled = made_of(spec)
        assert compiled.spilled == 0, spec.name
        assert "ld.local" not in compiled.ptx
        assert ("griddepcontrol.wait" in compiled.ptx) == (capability >= (9, 0) and "_whole_" not in spec.name), (
            spec.name
        )
        if not {"groups", "parameters"} & {*spec.name.split("_")} and shape != SHAPES[2][0]:
            whole = r"cp\.async\.c[ag]\.shared\.global.*, (8|16);" if "_whole_" in spec.name else r"ld\.global\.v"
            assert re.search(whole, compiled.ptx)


@pytest.mark.parametrize("order", ["C", "channels_last"])
@pytest.mark.parametrize("shape", [(32, 320, 64, 64), (8, 512, 128, 128), (2, 32, 128, 128, 128), (5, 96, 200, 200)])
def test_blocks_of_two_passes_fill_their_turns_on_the_device(order: str, shape: tuple[int, ...]) -> None:
    with dry_run(DryRunDevice(0, (8, 0), 108, SHARED_MEMORY[8, 0])) as device:
        made = plan(call_of(("GroupNormGrad", b, order, shape, 32, "silu")))
    assert isinstance(made, LaunchesPlan)
    spec = next(iter(device.specs))
    if "_sums_" in spec.name:
        turns = made.launches[0].grid / (108 * spec.blocks_per_processor)
        assert turns / -(-turns // 1) > 0.8


def call_of(kind: Kind) -> Call:
    operator, dtype, order, shape, groups, activation = kind
    wide = d if dtype == d else f

    def data() -> Tensor:
        return Tensor(np.dtype(dtype), shape, strides_in_order(shape, np.dtype(dtype).itemsize, order), 16)

    def flat(*shape: int) -> Tensor:
        return Tensor(np.dtype(wide), shape, strides_in_order(shape, np.dtype(wide).itemsize, "C"), 16)

    statistics = {name: flat(shape[0], groups) for name in ("mean", "inv_std")}
    if operator == "GroupNormGrad":
        inputs = {"dY": data(), "X": data(), **statistics, "gamma": flat(shape[1]), "beta": flat(shape[1])}
        outputs = {"dX": data(), "dgamma": flat(shape[1]), "dbeta": flat(shape[1])}
    else:
        inputs, outputs = {"X": data(), "scale": flat(shape[1]), "bias": flat(shape[1])}, {"Y": data(), **statistics}
    if operator == "SkipGroupNorm":
        inputs = {"X": data(), "gamma": flat(shape[1]), "beta": flat(shape[1]), "skip": data()}
        inputs["bias"] = Tensor(np.dtype(dtype), (shape[1],), (np.dtype(dtype).itemsize,), 16)
        outputs["S"] = data()
    attributes = {"groups": groups, "activation": activation, "activation_alpha": 0.01, "epsilon": 1e-5}
    axes = {"N": shape[0], "C": shape[1], "spatial": shape[2:], "G": groups}
    return Call(operator, inputs, outputs, attributes, axes, frozenset(), "cuda:0", Policy())


def test_data_at_no_multiple_of_its_element_is_refused() -> None:
    X = Tensor(np.dtype(f), (4, 8, 3, 3), strides_in_order((4, 8, 3, 3), 4, "C"), 2)
    attributes = {"activation": "none", "activation_alpha": 0.01, "epsilon": 1e-5}
    axes = {"N": 4, "C": 8, "spatial": (3, 3), "G": 4}
    call = Call("GroupNormalization", {"X": X}, {"Y": X}, attributes, axes, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, (9, 0), 132, SHARED_MEMORY[9, 0])), pytest.raises(Refusal, match="end to end"):
        plan(call)

"""The depthwise kernels compile for every architecture: all in registers, no spill worth the name."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, parameters
from helpers.depthwise import Depthwise, make, multiply_adds

from gradkern.cuda.device import Device
from gradkern.search.implementation import candidates_of

pytestmark = pytest.mark.thorough

CASES = [
    Depthwise("dX", 2, 96, (56, 56), (7, 7), pads=(3, 3, 3, 3), dtype="float16", channels_last=True),
    Depthwise("dW", 2, 96, (56, 56), (7, 7), pads=(3, 3, 3, 3), dtype="bfloat16", channels_last=True),
    Depthwise("dX", 2, 32, (14, 14), (7, 7), pads=(3, 3, 3, 3), dtype="float32"),
    Depthwise("dW", 2, 32, (28, 28), (5, 5), pads=(2, 2, 2, 2), dtype="float64"),
    Depthwise("Y", 2, 96, (56, 56), (7, 7), pads=(3,) * 4, dtype="bfloat16", channels_last=True, biased=True),
    Depthwise("Y", 2, 96, (112, 112), (3, 3), (2, 2), pads=(1,) * 4, dtype="bfloat16", channels_last=True),
    Depthwise("dX", 2, 32, (30, 30), (3, 3), (2, 2), pads=(1, 1, 1, 1), dtype="float16", channels_last=True),
    Depthwise("dX", 2, 53, (9917,), (3,), (2,), pads=(1, 1)),  # rows that no block can have whole
    Depthwise("dW", 2, 8, (16000,), (31,), pads=(15, 15), dtype="bfloat16"),
    Depthwise("dX", 2, 54, (16, 56, 56), (3, 3, 3), pads=(1,) * 6, dtype="bfloat16", channels_last=True),
    Depthwise("dW", 2, 54, (16, 28, 28), (5, 3, 3), (1, 2, 2), pads=(2, 1, 1) * 2, dtype="float16"),
    Depthwise("Y", 2, 54, (16, 28, 28), (3, 3, 3), pads=(1,) * 6, dtype="float32", biased=True),
    Depthwise("dX", 2, 101, (28, 28), (3, 3), pads=(1,) * 4, dtype="bfloat16", channels_last=True),  # no vectors
    Depthwise("dW", 2, 101, (56, 56), (5, 5), pads=(2,) * 4, dtype="float32", channels_last=True),
    Depthwise("dX", 2, 144, (56, 56), (3, 3), pads=(1,) * 4, dtype="float16", channels_last=True),  # two of a thread
    Depthwise("dW", 2, 102, (28, 28), (3, 3), pads=(1,) * 4, dtype="bfloat16", channels_last=True),
]


MMA_CASES = [
    Depthwise("dW", 2, 96, (56, 56), (7, 7), pads=(3, 3, 3, 3), dtype="bfloat16", channels_last=True),
    Depthwise("dW", 2, 240, (28, 28), (5, 5), pads=(2, 2, 2, 2), dtype="float16", channels_last=True),
]


OUTPUT_CASES = [
    Depthwise("dX", 2, 96, (56, 56), (7, 7), pads=(3, 3, 3, 3), dtype="float16", channels_last=True),
    Depthwise("Y", 2, 240, (28, 28), (5, 5), pads=(2,) * 4, dtype="bfloat16", channels_last=True, biased=True),
]


def compiled_mma(index: int, capability: tuple[int, int]) -> dict[str, Any]:
    """expected: of products, of two steps, and once more as half of the warps make them at another time."""
    from gradkern.ops.conv.cuda.depthwise.mma_candidates import fitting
    from gradkern.ops.conv.cuda.depthwise.mma_config import STEP_ROWS, WARP_CHANNELS
    from gradkern.ops.conv.cuda.depthwise.mma_kernel import build

    config, made = first_config(MMA_CASES[index], capability, fitting, build)
    return {**made, "expected": 2 * STEP_ROWS * WARP_CHANNELS * config.taps[0]}


def compiled_mma_output(index: int, capability: tuple[int, int]) -> dict[str, Any]:
    """expected: of products, of a step, and once more as half of the warps make them at another time."""
    from gradkern.ops.conv.cuda.depthwise.mma_candidates import fitting
    from gradkern.ops.conv.cuda.depthwise.mma_config import WARP_CHANNELS
    from gradkern.ops.conv.cuda.depthwise.mma_output_kernel import build

    config, made = first_config(OUTPUT_CASES[index], capability, fitting, build)
    return {**made, "expected": 2 * config.rows * WARP_CHANNELS * config.taps[0]}


def first_config(
    case: Depthwise, capability: tuple[int, int], configs: Callable[..., Any], build: Callable[..., Any]
) -> tuple[Any, dict[str, Any]]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
    from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem

    problem = DepthwiseProblem.of(make(case)[0])
    config = next(configs(problem, Device(0, capability, 132, SHARED_MEMORY[capability])))
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    return config, {"spilled": made.spilled, "products": made.ptx.count("mma.sync"), "ptx": made.ptx}


def compiled(index: int, capability: tuple[int, int]) -> dict[str, Any]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
    from gradkern.ops.conv.cuda.depthwise.kernel import build
    from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
    from gradkern.ops.conv.cuda.depthwise.tiling import configs

    shape = DepthwiseProblem.of(make(CASES[index])[0])
    config = next(configs(shape, Device(0, capability, 132, SHARED_MEMORY[capability])))
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    return {
        "spilled": made.spilled,
        "multiply_adds": made.ptx.count("fma.rn"),
        "expected": multiply_adds(config),
        "asynchronous": config.asynchronous and (any(config.shifted) or max(config.vectors) * config.itemsize >= 4),
        "ptx": made.ptx,
    }


@pytest.mark.parametrize(
    ("case", "capability"),
    parameters(
        [*((case, HOPPER[0]) for case in (0, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15)), (3, (12, 0))],
        [*product(range(len(CASES)), HOPPER), *product((0, 3, 7, 8, 10, 11, 12, 13, 14, 15), OTHERS)],
    ),
)
def test_strips_taps_and_windows_stay_in_registers_and_copies_are_asynchronous(
    case: int, capability: tuple[int, int]
) -> None:
    made = compiled(case, capability)
    assert "ld.local" not in made["ptx"]
    assert made["spilled"] <= 64  # of some hundred registers; measured, it costs nothing
    assert made["multiply_adds"] == made["expected"], "every multiply-add of a strip is one instruction"
    assert ("cp.async." in made["ptx"]) == made["asynchronous"], "where the device can"


@pytest.mark.parametrize("make_it", [compiled_mma, compiled_mma_output])
@pytest.mark.parametrize(("case", "capability"), parameters([(0, (9, 0))], [(1, (8, 0)), (1, (12, 0))]))
def test_on_tensor_cores_every_product_is_one_instruction_and_all_stays_in_registers(
    case: int, capability: tuple[int, int], make_it: Callable[[int, tuple[int, int]], dict[str, Any]]
) -> None:
    made = make_it(case, capability)
    assert "ld.local" not in made["ptx"]
    assert made["spilled"] <= 64
    assert made["products"] == made["expected"]


def test_candidates_are_made_again_from_what_the_store_keeps_of_them() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from gradkern.call import Refusal
    from gradkern.ops.conv.cuda.depthwise import candidates, mma_candidates

    device = Device(0, (9, 0), 132, SHARED_MEMORY[9, 0])
    for case, module, number in (
        (CASES[12], candidates, 3),  # one of them without vectors around channels
        (CASES[14], candidates, 2),
        (MMA_CASES[1], candidates, 3),
        (OUTPUT_CASES[0], mma_candidates, 2),
        (MMA_CASES[1], mma_candidates, 2),
    ):
        problem = make(case)[0]
        found = list(candidates_of(module, problem, device))
        assert len({each.name for each in found}) == number
        for each in found:
            again = module.build(problem, device, json.loads(json.dumps(each.recipe)))
            assert (again.name, again.config) == (each.name, each.config)
    with pytest.raises(Refusal, match="64 channels"):
        mma_candidates.build(problem, device, {"channels": 64})

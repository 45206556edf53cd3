"""The kernel for few channels compiles for every architecture that has its products; which convolutions have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.compiled import HOPPER, SHARED_MEMORY, parameters
from helpers.few_channels import FewChannels, make

from gradkern.cuda.device import Device

pytestmark = pytest.mark.thorough

CASES = [
    FewChannels(2, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3, 3, 3), "float16"),
    FewChannels(2, 3, 32, (224, 224), (3, 3), (2, 2), (1, 1, 1, 1), "bfloat16"),
    FewChannels(2, 4, 96, (64, 64), (8, 8), (4, 4), (2, 2, 2, 2), "bfloat16"),
    FewChannels(1, 3, 64, (4, 224), (3, 3), (1, 1), (1, 1, 1, 1), "float16"),
    FewChannels(1, 3, 64, (4, 1200), (3, 3), (1, 1), (1, 1, 1, 1), "float16"),
]


def compiled(index: int, capability: tuple[int, int]) -> dict[str, Any]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
    from gradkern.ops.conv.cuda.few_channels.candidates import config_of
    from gradkern.ops.conv.cuda.few_channels.kernel import build

    config = config_of(make(CASES[index])[0], Device(0, capability, 132, SHARED_MEMORY[capability]))
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    return {
        "spilled": made.spilled,
        "registers": made.registers,
        "products": made.ptx.count("mma.sync"),
        "expected": config.filter_tiles * config.place_tiles,
        "ptx": made.ptx,
    }


@pytest.mark.parametrize(
    ("case", "capability"),
    parameters([(0, HOPPER[0]), (1, (8, 0))], [(case, each) for case in range(3) for each in (HOPPER[0], (12, 0))]),
)
def test_a_tile_of_columns_is_so_many_products_and_all_stays_in_registers(
    case: int, capability: tuple[int, int]
) -> None:
    made = compiled(case, capability)
    assert "ld.local" not in made["ptx"]
    assert made["spilled"] == 0
    assert made["products"] == made["expected"]


@pytest.mark.parametrize(
    ("case", "capability", "filters"),
    [(0, (9, 0), 64), (0, (12, 0), 64), (3, (9, 0), 32), (4, (9, 0), 16)],
    ids=lambda each: str(each).replace(" ", ""),
)
def test_how_many_filters_a_block_has(case: int, capability: tuple[int, int], filters: int) -> None:
    from gradkern.ops.conv.cuda.few_channels.candidates import config_of

    config = config_of(make(CASES[case])[0], Device(0, capability, 132, SHARED_MEMORY[capability]))
    assert config.block_filters == filters


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"channels": 8}, "few channels"),
        ({"dtype": "float32"}, "16-bit"),
        ({"filters": 20}, "vectors of 8"),
        ({"kernel": (9, 3)}, "up to 8 rows"),
        ({"kernel": (3, 15)}, "taps and channels has no room in registers"),
        ({"spatial": (16, 4000)}, "no room in shared memory"),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(each),
)
def test_what_has_no_kernel_says_why(changed: dict[str, Any], words: str) -> None:
    from gradkern.call import Refusal
    from gradkern.ops.conv.cuda.few_channels.candidates import config_of

    usual = FewChannels(2, 3, 16, (16, 16), (3, 3), (1, 1), (1, 1, 1, 1), "float16")
    device = Device(0, (9, 0), 132, SHARED_MEMORY[9, 0])
    assert config_of(make(usual)[0], device).place_tiles == 2
    with pytest.raises(Refusal, match=words):
        config_of(make(replace(usual, **changed))[0], device)
    with pytest.raises(Refusal, match="this device"):
        config_of(make(usual)[0], Device(0, (7, 5), 40, SHARED_MEMORY[7, 5]))

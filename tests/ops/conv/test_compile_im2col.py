"""Every kernel between ConvGrad's tensors and matrices compiles for every architecture, and spills no register."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from itertools import product

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("nvmath", reason="nvmath-python is not installed")

from helpers.compiled import HOPPER, OTHERS, parameters
from helpers.conv_gemm import Shape, setting

from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.gemm import candidates
from gradkern.ops.conv.cuda.gemm.im2col import Im2colStep
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.search.implementation import candidates_of

pytestmark = pytest.mark.thorough

NHWC = ("nhwc", "nhwc", "nhwc")
SHAPES = [
    Shape(9, 1, 16, 16, (9, 9), (3, 3), begin=(1, 1), end=(1, 1)),
    Shape(9, 1, 16, 16, (9, 9), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1), layouts=NHWC),
    Shape(2, 4, 16, 16, (16, 16), (2, 2), strides=(2, 2)),
    Shape(2, 4, 16, 16, (16, 16), (2, 2), strides=(2, 2), layouts=NHWC),
]


def configs(capability: tuple[int, int]) -> set[Im2colConfig]:
    """What the candidates of the shapes would launch; for one capability of several types."""
    device = Device(0, capability, 132, 65536)
    most = capability == (9, 0)
    types = ("float64", "float32", "bfloat16") if most else ("float32",) if capability < (8, 0) else ("bfloat16",)
    found: set[Im2colConfig] = set()
    for shape in SHAPES if most else SHAPES[:2]:
        for dtype in types if shape.group == 1 else types[-1:]:
            for gradient in ("dX", "dW"):
                made = candidates_of(candidates, setting(shape, gradient, dtype).problem, device)
                steps = (step for each in made for step in each.program.steps)
                found |= {step.config for step in steps if isinstance(step, Im2colStep)}
    return found


def compiled(config: Im2colConfig, capability: tuple[int, int]) -> tuple[int, str]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.conv.cuda.gemm.im2col_kernel import build

    kernel = build(config)
    arguments = len(signature(kernel).parameters)
    made = compile_kernel(kernel, arguments, capability, config.threads, config.blocks_per_processor)
    return made.spilled, made.ptx


CONFIGS = {each: sorted(configs(each), key=repr) for each in (*HOPPER, *OTHERS)}


def in_turn(among: list[tuple[int, int]]) -> Iterator[tuple[Im2colConfig, tuple[int, int]]]:
    """The devices have the same configs: each is compiled for one of them."""
    for place, capability in enumerate(among):
        for config in CONFIGS[capability][place :: len(among)]:
            yield config, capability


def test_every_kernel_is_among_the_configs() -> None:
    assert {config.kernel for config in CONFIGS[9, 0]} == {"gather", "pack", "add_shares", "col2im"}


@pytest.mark.parametrize(
    ("config", "capability"),
    parameters(
        [
            *product(CONFIGS[9, 0][::3], HOPPER),
            *in_turn(OTHERS),
        ],
        ((config, each) for each in (*HOPPER, *OTHERS) for config in CONFIGS[each]),
    ),
)
def test_no_register_is_spilled(config: Im2colConfig, capability: tuple[int, int]) -> None:
    spilled, ptx = compiled(config, capability)
    assert spilled == 0
    assert "ld.local" not in ptx

"""The shortened front end: the same kernels, whatever was compiled before, and Numba's own where it cannot be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda import compile as compiling
from gradkern.cuda.device_code import intrinsics
from gradkern.cuda.front_end.folding import folded
from gradkern.cuda.spec import KernelSpec
from gradkern.ops.bias_gelu.cuda import config as gelu

CONFIG = gelu.choose(
    gelu.BiasGeluConfig("BiasGeluGrad_dX", "float16", "float16", ("dX", "dB"), 8, parameters_at_once=8),
    768,
    1 << 15,
    132,
)
COMPILE = """
import hashlib, json, sys
from gradkern.cuda import compile as compiling
if sys.argv[1] == "other release":
    compiling.TESTED = "0.29."
from dataclasses import replace
from gradkern.kernels.channels.tiles_config import ARGUMENTS
from gradkern.ops.bias_gelu.cuda import config as gelu
from gradkern.ops.bias_gelu.cuda.kernel import build
CONFIG = gelu.{config}
def made(config, capability):
    return compiling.compile_kernel(
        build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor, config.name
    )
if sys.argv[1] == "after others":
    made(replace(CONFIG, operator="BiasFastGeluGrad_dX"), (9, 0))
    made(CONFIG, (9, 0))
kernel = made(CONFIG, (8, 0))
print(json.dumps([compiling.front_end() is None, hashlib.sha256(kernel.cubin).hexdigest(), kernel.spilled, kernel.ptx]))
"""


def compiled(how: str) -> tuple[bool, str, int, str]:
    """In a process of its own: whether Numba's own front end compiled it, the kernel's digest, spills and PTX."""
    code = COMPILE.replace("{config}", repr(CONFIG))
    done = subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True)
    own, digest, spilled, ptx = json.loads(done.stdout)
    return own, digest, spilled, ptx


@pytest.fixture(scope="module")
def alone() -> tuple[bool, str, int, str]:
    return compiled("alone")


def test_the_release_that_it_was_tested_with_is_the_one_that_is_required() -> None:
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        extras: dict[str, list[str]] = tomllib.load(file)["project"]["optional-dependencies"]
    required = [Requirement(each) for each in (*extras["cuda-compilers"], *extras["cu13"])]
    pins = [each.specifier for each in required if each.name == "numba-cuda"]
    assert len(pins) == 2
    for pin in pins:
        assert pin.contains(compiling.TESTED + "99")
        assert not pin.contains("0.31.0")
    assert metadata.version("numba-cuda").startswith(compiling.TESTED)
    assert compiling.front_end() is not None


@pytest.mark.thorough
def test_the_machine_code_is_the_same_in_every_process(alone: tuple[bool, str, int, str]) -> None:
    assert compiled("after others")[1] == alone[1]


@pytest.mark.thorough
def test_every_device_function_is_inlined(alone: tuple[bool, str, int, str]) -> None:
    without, _, spilled, ptx = alone
    assert (without, spilled) == (False, 0)
    assert ".func" not in ptx
    assert "call" not in ptx


@pytest.mark.thorough
def test_another_release_compiles_with_its_own_front_end(alone: tuple[bool, str, int, str]) -> None:
    without, _, spilled, ptx = compiled("other release")
    assert (without, spilled) == (True, 0)
    assert "call" not in ptx
    assert ptx.count("ld.global.v4") == alone[3].count("ld.global.v4")


def test_a_kernel_is_what_numbas_own_front_end_makes_of_it() -> None:
    numba: Any = import_module("numba.cuda")
    cuda, float32 = numba, numba.float32
    store = intrinsics.storer("global", "float32", 1)

    def kernel(to: int, count: int, start: int) -> None:
        values, one = cuda.local.array(4, float32), cuda.local.array(1, float32)
        for n in range(4):
            values[n] = float32(start + n)
        pair, last = (start, count), start
        for turn in range(count):
            if turn % 3 == 1:
                last, start = start, start + pair[1] // 5
                values[turn - count] += float32(last)  # from the end
            while start > 7:
                start -= last
                values[start & 3] *= values[-1]
            one[0] = values[turn & 3] - float32(start)
            store(to + turn * 4, one)

    arguments, bounds = [numba.types.int64] * 3, (128, 1)
    own: Any = compiling.front_end()
    options = {"device": False, "abi": "numba", "output": "ptx", "cc": (9, 0), "launch_bounds": bounds}
    theirs = numba.compile(folded(kernel), numba.types.void(*arguments), **options)[0]
    assert code_of(own.ptx_of(kernel, arguments, (9, 0), bounds)) == code_of(theirs)


def code_of(ptx: str) -> list[str]:
    """The instructions, without names that hold a process's counters."""
    return re.sub(r"\b_Z\w+", "", ptx[ptx.index(".visible .entry") :]).splitlines()


def test_a_front_end_that_cannot_be_imported_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradkern.cuda import front_end

    compiling.front_end.cache_clear()
    with monkeypatch.context() as patch:
        patch.delattr(front_end, "compiler", raising=False)
        patch.setitem(sys.modules, "gradkern.cuda.front_end.compiler", None)
        assert compiling.front_end() is None
    compiling.front_end.cache_clear()
    assert compiling.front_end() is not None


@pytest.mark.thorough
def test_the_kernels_of_a_call_are_lowered_once_for_all_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = compiling.front_end()
    lowered: list[str] = []
    compiled = own._compiled

    def counting(function: Any, arguments: Any, result: Any, inline: bool) -> Any:
        lowered.extend([] if inline else [function.__name__])
        return compiled(function, arguments, result, inline)

    monkeypatch.setattr(own, "_compiled", counting)
    names = ["float16", "bfloat16", "float32", "float64"]
    for capability in ((8, 0), (9, 0)):
        for name in names:
            spec = KernelSpec("gradkern.search.kernels:fill", (name,), "fill", 3, 192, 1, capability)
            assert f".target sm_{capability[0]}{capability[1]}" in spec.compile().ptx
    assert len(lowered) == len(names)

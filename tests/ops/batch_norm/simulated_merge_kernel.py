"""The kernel that merges the statistics of a batch's parts, under the CUDA simulator."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import simulated
from helpers.guarded import Guarded
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern.arrays.kind import dtype_of
from gradkern.ops.batch_norm.cuda.merge_kernel import build
from gradkern.ops.batch_norm.cuda.parts import MERGE_ARGUMENTS as ARGUMENTS

NAME, OUTPUTS = "BatchNormalizationMergeStatistics", ("statistics", "sample_statistics")
RUNNING = ("running_mean", "running_var")


@pytest.mark.parametrize(
    "outputs", [OUTPUTS, OUTPUTS[:1], OUTPUTS[1:], (OUTPUTS[0], *RUNNING), RUNNING[1:]], ids=" ".join
)
@pytest.mark.parametrize(
    ("dtype", "kind"), [("float32", "float32"), ("float32", "bfloat16"), ("float32", "float16"), ("float64", "float64")]
)
@pytest.mark.parametrize("counts", [(7,), (0, 5, 1), (0, 0), ()], ids=str)
def test_parts_are_merged_and_empty_ones_count_for_nothing(
    counts: tuple[int, ...], dtype: str, kind: str, outputs: tuple[str, ...]
) -> None:
    channels, threads = 37, 32
    random = np.random.default_rng(0)
    given = random.uniform(0.5, 2, (len(counts), 2 * channels + 1)).astype(dtype)
    given[:, :channels] += 10
    given[:, -1] = counts
    given[given[:, -1] == 0] = 0
    parts = Guarded(given.shape, given.dtype)
    parts.array[...] = given
    parts.freeze()
    held = {name: Guarded((2 * channels + 1,), given.dtype) for name in outputs if name in OUTPUTS}
    before = {name: random.uniform(0.5, 2, channels).astype(dtype_of(kind)) for name in ("input_mean", "input_var")}
    for name, old in zip(RUNNING, before.values(), strict=True):  # in place
        if name in outputs:
            held[name] = Guarded((channels,), old.dtype)
            held[name].array[...] = old
    momentum = int(np.float64(0.75).view(np.int64))
    numbers = {"part_statistics": parts.address, "parts": len(counts), "channels": channels, "momentum": momentum}
    numbers |= {name: held[to].address for name, to in zip(before, RUNNING, strict=True) if to in held}
    numbers |= {name: each.address for name, each in held.items()}
    arguments = tuple(np.int64(numbers.get(name, 0)) for name in ARGUMENTS)
    simulated.launch(build(dtype, kind, 1e-5, outputs), channels // threads + 1, threads, 1, 0, arguments)
    expected = reference(NAME, {"part_statistics": given, **before}, {"momentum": 0.75})
    for name, each in held.items():
        each.check()
        assert_close(NAME, name, np.array(each.array), expected[name])

"""The kernel that merges the statistics of a batch's parts, under the CUDA simulator."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.guarded import Guarded
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern.cuda.device_code import simulated
from gradkern.ops.batch_norm.cuda.merge_kernel import ARGUMENTS, build

NAME, OUTPUTS = "BatchNormalizationMergeStatistics", ("statistics", "sample_statistics")


@pytest.mark.parametrize("outputs", [OUTPUTS, OUTPUTS[:1], OUTPUTS[1:]], ids=" ".join)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("counts", [(7,), (0, 5, 1), (0, 0), ()], ids=str)
def test_parts_are_merged_and_empty_ones_count_for_nothing(
    counts: tuple[int, ...], dtype: str, outputs: tuple[str, ...]
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
    held = {name: Guarded((2 * channels + 1,), given.dtype) for name in outputs}
    numbers = {"part_statistics": parts.address, "parts": len(counts), "channels": channels}
    numbers |= {name: each.address for name, each in held.items()}
    arguments = tuple(np.int64(numbers.get(name, 0)) for name in ARGUMENTS)
    simulated.launch(build(dtype, 1e-5, outputs), channels // threads + 1, threads, 1, 0, arguments)
    expected = reference(NAME, {"part_statistics": given})
    for name, each in held.items():
        each.check()
        assert_close(NAME, name, np.array(each.array), expected[name])

"""Which channels-last arrays the batch norms' persistent kernel takes, and how it shares them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradkern.call import Refusal, Tensor
from gradkern.strides import c_strides, end_to_end

pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.launch import resident_clusters
from gradkern.kernels.channels import persistent_plan
from gradkern.kernels.channels.channels_last_config import (
    ChannelsLastConfig,
    RowsPartition,
    channels_last_partitions,
    persistent_time,
)
from gradkern.kernels.channels.times import ChannelsLastTimes, times
from gradkern.ops.batch_norm.cuda import persistent
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.search.implementation import candidates_of

H200 = Device(0, (9, 0), 132, 232448)
CLUSTERS = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}  # as the driver says of an H200
TIMES = times(ChannelsLastTimes)
ALL = frozenset({"dX", "scale_sum", "bias_sum"})


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        persistent_plan, "resident_clusters", lambda device, cluster_size, threads: CLUSTERS[cluster_size]
    )


def tensor(shape: tuple[int, ...], dtype: str = "float16", **changes: Any) -> Tensor:
    """Channels last."""
    kind = np.dtype(dtype)
    order = (0, *range(2, len(shape)), 1) if len(shape) > 1 else (0,)
    return end_to_end(Tensor(kind, shape, (0,) * len(shape), 16), order)._replace(**changes)


def problem(shape: tuple[int, ...] = (16, 64, 7, 7), dtype: str = "float16", **changes: Any) -> Problem:
    X, vector = tensor(shape, dtype), tensor(shape[1:2], "float32")
    return replace(Problem(X, X, vector, vector, vector, X, vector, vector), **changes)


def made(size: tuple[int, int], data: str = "float16", width: int = 8, memory: int = 232448) -> list[RowsPartition]:
    config = ChannelsLastConfig(data, "float32", "float32", ALL, memory, width)
    return channels_last_partitions(config, size, CLUSTERS, TIMES)


@pytest.mark.parametrize(
    ("data", "width"), [("bfloat16", 8), ("float16", 2), ("float16", 1), ("float32", 4), ("float32", 1), ("float64", 2)]
)
@pytest.mark.parametrize("size", [(120, 448), (3136, 2048), (8192, 1024), (1, 8), (7, 40), (20000, 16), (433, 1736)])
@pytest.mark.parametrize("memory", [232448, 101376])
def test_every_partition_fits_the_memory_and_every_element_is_somebodys(
    size: tuple[int, int], data: str, width: int, memory: int
) -> None:
    rows, channels = size
    found = made(size, data, width, memory)
    assert found or rows > 3000  # more than all multiprocessors hold, or too narrow
    for each in found:
        assert each.shared_bytes <= memory
        assert each.row_bytes == channels * ITEMSIZE[data]
        assert each.items * each.vectors * width >= channels > (each.items - 1) * each.vectors * width
        assert each.cluster_size * each.steps * each.at_once >= rows >= each.cluster_size
        assert 1 <= each.vectors <= 32
        assert each.at_once * each.vectors <= each.config.threads
        assert each.vectors * width <= each.config.threads  # a thread for each channel of a group
        assert each.warps_at % 16 == each.blocks_at % 16 == each.data_at % 128 == 0
        whole_sectors = each.vectors * each.config.vector % 32 == 0
        assert whole_sectors or each.items == 1
    assert found == sorted(found, key=lambda each: persistent_time(each, TIMES))


def test_rows_that_fit_no_cluster_have_no_partition() -> None:
    assert made((301056, 96)) == []
    assert made((3136, 2048), memory=16384) == []


def test_a_search_tries_the_two_that_should_take_least_time() -> None:
    names = [each.name for each in candidates_of(persistent, problem((64, 2048, 7, 7)), H200)]
    assert names == ["persistent_2_slices_4_vectors", "persistent_16_slices_20_vectors"]


def test_a_recipe_gives_the_candidate_again() -> None:
    for candidate in candidates_of(persistent, problem(), H200):
        assert persistent.build(problem(), H200, candidate.recipe).name == candidate.name
    with pytest.raises(Refusal, match="no channel fits 3 blocks"):
        persistent.build(problem(), H200, {"cluster_size": 3, "vectors": 1})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (problem(dX=None), "without dX nothing is read twice"),
        (problem(dY=tensor((16, 64, 7, 7), strides=(12544, 2, 1792, 256))), "dY: it does not lie end to end in the"),
        (problem((128, 64, 112, 112)), "a group of its channels does not fit the shared memory of a cluster of blocks"),
    ],
)
def test_what_it_cannot_take_is_refused_with_the_reason(given: Problem, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        next(candidates_of(persistent, given, H200))


def test_activations_are_known_where_x_tells_their_derivative() -> None:
    X, vector = tensor((16, 64, 7, 7)), tensor((64,), "float32")
    names = [each.name for each in candidates_of(persistent, problem(activation="relu", B=vector), H200)]
    assert names == [each.name for each in candidates_of(persistent, problem(), H200)]
    with pytest.raises(Refusal, match="it knows no second gradient, no residual and no activation that Y tells"):
        next(candidates_of(persistent, problem(activation="relu", Y=X), H200))
    first = Tensor(X.dtype, X.shape, c_strides(X.shape, 2), 16)
    with pytest.raises(Refusal, match="in C order it knows no activation; dY: it does not lie end to end"):
        next(candidates_of(persistent, problem(activation="relu", B=vector, dY=first, X=first, dX=first), H200))


def test_narrower_vectors_where_an_array_begins_within_one() -> None:
    (first, _) = candidates_of(persistent, problem(X=tensor((16, 64, 7, 7), alignment=8)), H200)
    assert first.recipe["vectors"] % 4 == 0  # whole sectors of vectors of 8 bytes


def test_one_kernel_serves_all_sizes_of_one_type() -> None:
    device = DryRunDevice(0, (9, 0), 132, 232448)
    with dry_run(device):
        for shape in ((16, 64, 7, 7), (64, 2048, 7, 7), (8192, 1024)):
            for candidate in candidates_of(persistent, problem(shape), device):
                candidate.prepare()
    assert len(device.specs) == 1


def test_a_device_that_need_not_be_there_has_as_many_clusters_as_have_room() -> None:
    assert resident_clusters(DryRunDevice(0, (9, 0), 132, 232448), 8, 256) == 16

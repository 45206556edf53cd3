"""Which channels the batch norms' persistent kernel takes, and how it shares them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradkern.call import Refusal, Tensor
from gradkern.strides import c_strides

pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.kernels.channels.persistent_config import (
    PersistentConfig,
    resident_partitions,
    single_pass_partition,
    single_pass_time,
    streaming_time,
)
from gradkern.kernels.channels.times import SinglePassTimes, times
from gradkern.ops.batch_norm.cuda import persistent
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.dml_batch_norm.cuda import plan as dml
from gradkern.policy import Policy
from gradkern.search.implementation import candidates_of

H200 = Device(0, (9, 0), 132, 232448)
TIMES = times(SinglePassTimes)
ALL = frozenset({"dX", "scale_sum", "bias_sum"})


def tensor(shape: tuple[int, ...], dtype: str = "float16", **changes: Any) -> Tensor:
    kind = np.dtype(dtype)
    return Tensor(kind, shape, c_strides(shape, kind.itemsize), 16)._replace(**changes)


def problem(shape: tuple[int, ...] = (16, 8, 28, 28), **changes: Any) -> Problem:
    X, vector = tensor(shape), tensor(shape[1:2], "float32")
    return replace(Problem(X, X, vector, vector, vector, X, vector, vector), **changes)


def config(data: str = "float16", memory: int = 232448, centred: bool = True) -> PersistentConfig:
    return PersistentConfig(data, "float32", "float32", ALL, None, centred, memory)


def constant(data: str, memory: int = 232448) -> PersistentConfig:
    return config(data, memory, centred=False)


def made(sizes: tuple[int, int, int], data: str = "float16", memory: int = 232448, most: int = 16) -> list[Any]:
    return list(resident_partitions(config(data, memory), sizes, most, 132))


@pytest.mark.parametrize("data", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "sizes",
    [
        *((64, 256, 3136), (32, 512, 784), (64, 2048, 49), (64, 60, 784), (7, 12, 196), (1, 5, 4096), (3, 16, 9)),
        *((1, 1001, 3969), (33, 203, 49), (9, 45, 900), (64, 24, 1225), (40, 131, 169), (5, 67, 3599)),
    ],
)
@pytest.mark.parametrize("memory", [232448, 101376])
def test_every_form_fits_its_memory_and_every_image_is_somebodys(
    sizes: tuple[int, int, int], data: str, memory: int
) -> None:
    images, channels, length = sizes
    plane = length * ITEMSIZE[data]
    found = made(sizes, data, memory)
    assert all(partition.slots * partition.batch >= partition.images_each for _, partition in found)
    configs = [*found, *filter(None, [single_pass_partition(constant(data, memory), sizes, 16, 132, TIMES)])]
    assert configs or length == 9 or memory == 101376  # of short rows and large planes in little memory there is none
    for config, partition in configs:
        assert config.ring_at + partition.ring_bytes(config) <= config.shared_bytes == memory
        assert partition.images_each == -(-images // config.cluster_size) > 0
        assert partition.items * config.group >= channels == partition.channels > (partition.items - 1) * config.group
        assert (partition.plane_bytes, partition.image) == (plane, channels * plane)
        assert partition.plane == length // config.width
        assert config.edges == (length % config.width > 0)
        starts = [image * partition.image + item * config.group * plane for image in (0, 1) for item in (0, 1)]
        assert config.shifted == any(start % 16 for start in starts)
        assert partition.pitch >= config.group * plane + (16 if config.shifted else 0)
        assert partition.pitch % 16 == 0
        assert config.width * ITEMSIZE[data] <= 16
        assert not config.edges or (config.width * ITEMSIZE[data] == 16 and length >= 160)
        assert config.channel_threads % 32 == 0
        assert partition.elements == images * length


@pytest.mark.parametrize(
    ("sizes", "group"),
    [
        ((64, 256, 3136), 1),
        ((64, 2048, 49), 8),  # copies are short, and would begin within units
        ((33, 203, 49), 8),
        ((64, 1024, 196), 2),
        ((8, 1000, 2500), 2),
        ((9, 45, 900), 1),  # 45 are no pairs
        ((64, 768, 289), 1),  # with edges it takes as long
        ((1, 1001, 3969), 4),  # an item is small, and there are many
        ((1, 301, 3969), 2),
        ((1, 100, 3969), 1),
    ],
)
def test_a_group_has_as_many_channels_as_are_worth_it(sizes: tuple[int, int, int], group: int) -> None:
    assert {config.group for config, _ in made(sizes)} == {group}


def test_of_the_slices_that_hold_a_channel_the_fewest_and_twice_as_many() -> None:
    assert [config.cluster_size for config, _ in made((64, 256, 3136))] == [4, 8]
    assert [config.cluster_size for config, _ in made((64, 256, 3136), "float32", most=8)] == [8]
    assert [config.cluster_size for config, _ in made((17, 105, 15625))] == [
        8,
        16,
    ]  # blocks with three images, and with two
    assert [config.cluster_size for config, _ in made((1, 256, 784))] == [1]
    assert made((128, 64, 12544)) == []


@pytest.mark.parametrize("data", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("sizes", [(8, 256, 49), (64, 48, 1024), (128, 64, 90), (600, 256, 784), (1, 512, 15200)])
def test_constant_statistics_take_the_fastest_config_or_are_streamed(sizes: tuple[int, int, int], data: str) -> None:
    slow = replace(TIMES, streaming=1e9)
    found = single_pass_partition(constant(data), sizes, 16, 132, slow)
    if found is None:
        return
    time, streamed = single_pass_time(*found, 132, TIMES), streaming_time(constant(data), sizes, TIMES)
    assert single_pass_partition(constant(data), sizes, 16, 132, TIMES) == (found if time < streamed else None)
    assert single_pass_partition(constant(data), sizes, 16, 132, replace(TIMES, launch=1e9)) is None


def test_constant_statistics_of_planes_too_large_for_the_ring_are_streamed() -> None:
    assert single_pass_partition(constant("float16"), (64, 256, 1 << 20), 16, 132, TIMES) is None


def test_constant_statistics_have_no_more_slices_than_there_are_multiprocessors_or_images() -> None:
    clustered = single_pass_partition(constant("bfloat16"), (128, 64, 90), 16, 132, TIMES)
    assert clustered
    assert clustered[0].cluster_size > 2
    for sizes, processors in (((128, 64, 90), 2), ((2, 64, 90 * 64), 132)):
        found = single_pass_partition(constant("bfloat16"), sizes, 16, processors, TIMES)
        assert found is None or found[0].cluster_size <= 2


def refused(*_: Any) -> Any:
    """Of a kernel that this test leaves out."""
    raise Refusal("it is another one")


@pytest.mark.parametrize(
    ("sizes", "statistics", "taken"),
    [
        ((64, 264, 28, 28), (1, 264, 1, 1), True),
        ((64, 264, 28, 28), (1, 264, 28, 1), False),
        ((64, 264), (1, 264), False),
        ((512, 128, 10, 10), (1, 128, 1, 1), False),
        ((3, 5, 301, 303), (1, 5, 1, 1), False),
        ((16, 64, 56, 56), (1, 64, 1, 1), True),
        ((1, 1, 1), (1, 1, 1), False),
        ((0, 264, 28, 28), (1, 264, 1, 1), False),
    ],
)
def test_directml_takes_it_where_channels_are_the_second_axis_and_it_is_the_faster(
    sizes: tuple[int, ...], statistics: tuple[int, ...], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradkern.ops.dml_batch_norm.cuda.plan.device_of", lambda call: H200)
    monkeypatch.setattr(
        "gradkern.kernels.channels.persistent_plan.persistent_plan",
        lambda config, partition, device, given: ("whole", given),
    )
    monkeypatch.setattr(dml, "_tiles_plan", refused)
    monkeypatch.setattr(dml.streaming_plan, "plan", lambda *_: "walk")
    data, each = tensor(sizes), tensor(statistics)
    inputs = {"Input": data, "InputGradient": data, "Mean": each, "Variance": each, "Scale": each}
    outputs = {"OutputGradient": data, "OutputScaleGradient": each, "OutputBiasGradient": each}
    call = Call("DmlBatchNormalizationGrad", inputs, outputs, {"Epsilon": 1e-5}, {}, frozenset(), "cuda:0", Policy())
    given = ["X", "D", "mean", "deviation", "scale", "dX", "scale_sum", "bias_sum"]
    assert dml.plan(call) == (("whole", given) if taken else "walk")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dX": None}, "without dX nothing is read twice"),
        ({"X": tensor((16, 8, 28, 28), alignment=8)}, "X: it does not begin at a multiple of 16 bytes"),
        ({"dY": tensor((16, 8, 28, 28), strides=(12544, 2, 448, 16))}, "dY: it does not lie end to end in the order"),
    ],
)
def test_what_it_cannot_take_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        list(candidates_of(persistent, problem(**changes), H200))


@pytest.mark.parametrize("shape", [(8192, 256, 4), (128, 64, 112, 112), (64, 3, 7, 7)])
def test_channels_too_large_or_too_small_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(Refusal, match="does not fit the shared memory of a cluster of blocks, or its planes are too"):
        list(candidates_of(persistent, problem(shape), H200))


def test_devices_without_clusters_are_refused() -> None:
    with pytest.raises(Refusal, match=r"from compute capability 9\.0"):
        list(candidates_of(persistent, problem(), Device(0, (8, 0), 108, 166912)))


def test_a_recipe_gives_the_candidate_again() -> None:
    for candidate in candidates_of(persistent, problem(), H200):
        assert persistent.build(problem(), H200, candidate.recipe).name == candidate.name
    with pytest.raises(Refusal, match="no channel fits 16 blocks"):
        persistent.build(problem(), H200, {"cluster_size": 16})

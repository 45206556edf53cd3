"""The batch norms' persistent kernel under the CUDA simulator."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pytest
from helpers import dml_batch_norm as constant
from helpers.batch_norm import OUTPUTS, Case, case
from helpers.simulate_persistent import launch

from gradkern.kernels.channels import persistent_config
from gradkern.kernels.channels.persistent_config import ARGUMENTS, PersistentConfig, resident_partitions
from gradkern.kernels.channels.persistent_kernel import build
from gradkern.ops.batch_norm.cuda.parts import NAMES
from gradkern.ops.dml_batch_norm.cuda.plan import NAMES as CONSTANT_NAMES

b, h, f, d = "bfloat16", "float16", "float32", "float64"
MEMORY = 1 << 20


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes as small as the simulator wants them are no candidates on a GPU."""
    monkeypatch.setattr(persistent_config, "_LEAST", 0)
    monkeypatch.setattr(persistent_config, "_SHORT", 64)
    monkeypatch.setattr(persistent_config, "_ALIGNED", 256)
    monkeypatch.setattr(persistent_config, "_ALIGNED_WHOLE", 256)
    monkeypatch.setattr(persistent_config, "_SMALL", 32)


def simulate(
    operands: Case | constant.Case,
    cluster_size: int = 1,
    clusters: int = 2,
    outputs: tuple[str, ...] = (),
    in_place: str = "",
    batch: int = 0,
    slots: int = 0,
    team: int = 32,
) -> dict[str, np.ndarray]:
    """The results of a case; batch and slots: of the ring, by default what a device with much memory would choose."""
    centred = isinstance(operands, Case)
    names, epsilon = (NAMES, None) if centred else (CONSTANT_NAMES, constant.EPSILON)
    outputs = outputs or (OUTPUTS if centred else constant.OUTPUTS)
    arrays = {names[name]: array for name, array in operands.inputs.items()}
    X = arrays["X"]
    types = X.dtype.name, arrays["scale"].dtype.name, arrays["mean"].dtype.name
    wanted = frozenset(names[name] for name in outputs)
    sizes = X.shape[0], X.shape[1], prod(X.shape[2:])
    config = PersistentConfig(*types, wanted, epsilon, centred, MEMORY)
    config, partition = next(resident_partitions(config, sizes, 1, 132))
    config = replace(config, threads=32 + team * config.group, cluster_size=cluster_size)
    partition = replace(partition, images_each=-(-X.shape[0] // cluster_size))
    if batch:
        fewest = -(-partition.images_each // batch) if centred else 1
        partition = replace(partition, batch=batch, slots=max(slots, fewest))
    shared_bytes = config.ring_at + partition.ring_bytes(config)
    how = clusters, cluster_size, config.threads, shared_bytes, in_place
    found = launch(build(config), ARGUMENTS, partition, arrays, wanted, *how)
    return {name: found[names[name]] for name in outputs}


def check(operands: Case | constant.Case, **how: Any) -> None:
    operands.check(simulate(operands, **how))


def of_constants(sizes: tuple[int, ...], dtype: str) -> constant.Case:
    return constant.case(sizes, (1, sizes[1], *(1 for _ in sizes[2:])), dtype)


@pytest.mark.parametrize(
    ("sizes", "dtype", "cluster_size"),
    [
        ((4, 3, 5, 8), f, 2),  # planes of whole vectors, some rows at once
        ((6, 3, 8, 16), h, 1),
        ((3, 2, 300), f, 2),  # a plane is more than a team has threads
        ((4, 11, 2, 4), h, 1),  # four channels at once, and three
        ((5, 2, 2, 2, 2, 2), d, 2),
        ((2, 6, 2), d, 1),
        ((5, 4, 1), f, 1),  # single elements, of four channels at once
        ((4, 2, 6, 6), b, 2),  # two channels at once, four elements a vector
        ((4, 8, 7, 7), h, 1),  # eight channels at once, and edges
        ((3, 11, 5, 5), b, 2),  # images begin anywhere, single elements
        ((3, 11, 7, 7), b, 2),  # so do they here, and edges
        ((1, 3, 25, 25), h, 1),
        ((3, 5, 15, 17), f, 2),
        ((2, 3, 13, 5), d, 1),
        ((3, 3, 33), h, 1),
    ],
    ids=str,
)
def test_every_kind_of_plane(sizes: tuple[int, ...], dtype: str, cluster_size: int) -> None:
    check(case(sizes, dtype), cluster_size=cluster_size)
    check(of_constants(sizes, dtype), cluster_size=cluster_size)


@pytest.mark.parametrize(("clusters", "cluster_size"), [(1, 1), (1, 4), (3, 2), (7, 1), (2, 8)])
def test_clusters_with_many_items_with_few_and_with_none(clusters: int, cluster_size: int) -> None:
    check(case((9, 5, 12), f), clusters=clusters, cluster_size=cluster_size)
    check(of_constants((9, 5, 12), f), clusters=clusters, cluster_size=cluster_size)


@pytest.mark.parametrize(
    ("batch", "slots"),
    [(1, 10), (4, 3), *(pytest.param(*each, marks=pytest.mark.every_kernel) for each in [(1, 0), (2, 7), (9, 1)])],
)
def test_a_ring_of_any_length_is_filled_again(batch: int, slots: int) -> None:
    check(case((9, 6, 8), f), clusters=1, batch=batch, slots=slots)
    check(case((9, 6, 8), f), clusters=1, cluster_size=2, batch=batch, slots=slots, in_place="X")
    check(of_constants((9, 6, 8), f), clusters=1, cluster_size=2, batch=batch, slots=max(slots, 2), in_place="D")


def test_a_channel_may_have_several_warps() -> None:
    check(case((5, 2, 6, 6), h), team=64, cluster_size=2)
    check(of_constants((5, 2, 6, 6), h), team=64)


@pytest.mark.parametrize("types", [(h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b), (h, h, h)], ids=" ".join)
def test_every_combination_of_types(types: tuple[str, str, str]) -> None:
    check(case((5, 4, 2, 4), *types), cluster_size=2)


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[::2], OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(case((4, 3, 16), h), outputs=outputs, cluster_size=2)


@pytest.mark.parametrize("outputs", [each for n in (1, 2) for each in combinations(constant.OUTPUTS, n)], ids=" ".join)
def test_only_the_wanted_outputs_are_written_where_statistics_are_constants(outputs: tuple[str, ...]) -> None:
    check(of_constants((4, 3, 16), h), outputs=outputs, cluster_size=2)


@pytest.mark.parametrize("source", ["D", "X"])
def test_dX_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(case((9, 5, 12), f), in_place=source, cluster_size=2)
    check(of_constants((9, 5, 12), f), in_place=source, cluster_size=2)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    check(case((40, 4, 8), f, far=3000), cluster_size=2)


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's remark on the infinite less the infinite
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = case((4, 3, 16), f)
    operands.inputs["dY"][2, 1, 3] = value
    operands.inputs["X"][1, 2, 5] = value
    check(operands, cluster_size=2)
    constants = of_constants((4, 3, 16), f)
    constants.inputs["InputGradient"][2, 1, 3] = value
    constants.inputs["Input"][1, 2, 5] = value
    check(constants, cluster_size=2)

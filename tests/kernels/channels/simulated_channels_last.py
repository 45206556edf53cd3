"""The persistent kernel of channels-last arrays under the CUDA simulator."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import pytest
from helpers.batch_norm import OUTPUTS, Case, case
from helpers.batch_norm_activation import Backward, backward
from helpers.simulate_persistent import launch

from gradkern.kernels.channels.activation_alpha import with_alpha
from gradkern.kernels.channels.channels_last_config import ARGUMENTS, ChannelsLastConfig, RowsPartition
from gradkern.kernels.channels.channels_last_kernel import build
from gradkern.ops.batch_norm.cuda.parts import NAMES

b, h, f, d = "bfloat16", "float16", "float32", "float64"
MEMORY = 1 << 20
Operands = Case | Backward


def simulate(
    operands: Operands,
    vectors: int,
    cluster_size: int = 1,
    clusters: int = 2,
    outputs: tuple[str, ...] = OUTPUTS,
    in_place: str = "",
    threads: int = 64,
) -> dict[str, np.ndarray]:
    """The results of a case, whose data lie with the channels last."""
    activation = with_alpha(operands.attributes) if isinstance(operands, Backward) else "none"
    given = {NAMES[name]: array for name, array in operands.inputs.items()}
    shape, order = given["X"].shape, (0, *range(2, given["X"].ndim), 1)
    arrays = {name: array.transpose(order) if array.shape == shape else array for name, array in given.items()}
    X = arrays["X"]
    types = X.dtype.name, arrays["scale"].dtype.name, arrays["mean"].dtype.name
    wanted = frozenset(NAMES[name] for name in outputs)
    width = gcd(16, shape[1] * X.itemsize) // X.itemsize
    config = ChannelsLastConfig(*types, wanted, MEMORY, width, activation, threads)
    partition = RowsPartition(config, shape[1], X.size // shape[1], vectors, cluster_size, clusters)
    how = clusters, cluster_size, threads, partition.shared_bytes, in_place
    found = launch(build(config), ARGUMENTS, partition, arrays, wanted, *how)
    found["dX"] = found["dX"].transpose(np.argsort(order))
    return {name: found[NAMES[name]] for name in outputs}


def check(operands: Operands, vectors: int, **how: Any) -> None:
    operands.check(simulate(operands, vectors, **how))


@pytest.mark.parametrize(
    ("sizes", "dtype", "vectors", "cluster_size", "threads"),
    [
        ((40, 16), f, 4, 1, 64),  # one item
        ((3, 40, 5, 2), h, 2, 2, 64),  # three items, the last half as large
        ((130, 32), b, 2, 4, 64),  # several rows a thread
        ((9, 8, 3), d, 2, 1, 64),  # more threads than rows
        ((5, 70, 7), h, 9, 2, 64),  # vectors of two elements, three rows a warp
        ((30, 7), f, 3, 1, 64),  # of one, ten rows
        ((70, 13), h, 8, 2, 64),  # of one of 2 bytes, through registers
        ((3, 13, 3, 3), d, 5, 2, 64),
        ((33, 256), b, 32, 2, 256),  # a warp has one row
        ((23, 200), h, 13, 1, 128),  # two
        ((50, 24), h, 1, 16, 64),  # blocks with few rows, and threads with none
    ],
    ids=str,
)
def test_every_kind_of_row(sizes: tuple[int, ...], dtype: str, vectors: int, cluster_size: int, threads: int) -> None:
    check(case(sizes, dtype), vectors, cluster_size=cluster_size, threads=threads)


@pytest.mark.parametrize(("clusters", "cluster_size"), [(1, 1), (1, 4), (3, 2), (7, 1), (2, 8)])
def test_clusters_with_many_items_with_few_and_with_none(clusters: int, cluster_size: int) -> None:
    check(case((70, 40), f), 2, clusters=clusters, cluster_size=cluster_size)


@pytest.mark.parametrize("types", [(h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b), (h, h, h)], ids=" ".join)
def test_every_combination_of_types(types: tuple[str, str, str]) -> None:
    check(case((20, 24, 2), *types), 2, cluster_size=2)


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[::2], OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(case((20, 24, 2), h), 2, outputs=outputs, cluster_size=2)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "silu"])
@pytest.mark.parametrize("types", [(h, f, f), (d, d, d), (b, b, b)], ids=" ".join)
def test_the_gradient_of_an_activation(activation: str, types: tuple[str, str, str]) -> None:
    check(backward((20, 24, 2), *types, activation=activation), 2, cluster_size=2, clusters=1)


@pytest.mark.parametrize("source", ["D", "X"])
def test_dX_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(case((70, 40), f), 2, in_place=source, cluster_size=2, clusters=1)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    check(case((300, 8), f, far=3000), 2, cluster_size=2)


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's remark on the infinite less the infinite
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = case((40, 16), f)
    operands.inputs["dY"][2, 1] = value
    operands.inputs["X"][1, 9] = value
    check(operands, 2, cluster_size=2)

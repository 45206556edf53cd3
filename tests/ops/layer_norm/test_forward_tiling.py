"""How the rows of a layer norm are given to threads, without a GPU: few kernels serve all widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.compiled import OTHERS, SHARED_MEMORY
from helpers.norm_forward import LAYER, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED

from gradkern.call import Tensor
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.dry_run import DryRunDevice, UnloadedKernel, dry_run
from gradkern.dispatch.run import dry_plan_for
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.tiling import choose, choose_non_persistent

OUTPUTS = frozenset({"Y", "mean", "inv_std"})
BF16 = "bfloat16"
CONFIG = NormForwardConfig(LAYER, BF16, BF16, BF16, BF16, "float32", OUTPUTS, 8, 1, 1, 1, scale_width=8, biased=True)


def chosen(columns: int, rows: int = 1 << 20, operator: str = LAYER) -> NormForwardConfig:
    config = replace(CONFIG, operator=operator, biased=operator == LAYER)
    return choose(config, columns, rows, 132, 232448)


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP_SIMPLIFIED])
def test_few_kernels_serve_all_widths(operator: str) -> None:
    widths = range(64, 16384 + 1, 40)
    assert len({chosen(columns, operator=operator) for columns in widths}) <= 45


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP_SIMPLIFIED])
@pytest.mark.parametrize("columns", [64, 72, 768, 1000, 4096, 5000, 16384, 24576, 65536, 200000, 300000])
def test_the_slices_of_a_row_fit_their_threads(columns: int, operator: str) -> None:
    config = chosen(columns, operator=operator)
    slice_columns = config.slice_columns(columns)
    assert (config.blocks_per_row - 1) * slice_columns < columns <= config.blocks_per_row * slice_columns
    assert slice_columns <= config.most_columns
    assert config.unpredicated_vectors * config.lanes * config.width <= config.fewest_columns(columns)
    assert config.shared_bytes <= 232448
    assert config.threads * config.blocks_per_processor <= 2048
    assert (
        config.lanes < 33 or config.groups_per_block < 16
    )  # a group of warps has a named barrier, of which there are 15


SMALL = [(1, 64), (132, 768), (264, 4096), (8, 65536), (1, 200_000), (1000, 1000), (20_000, 100), (30, 9001)]


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED])
@pytest.mark.parametrize(("rows", "columns"), SMALL)
def test_small_arrays_have_blocks_that_end_with_their_first_rows(rows: int, columns: int, operator: str) -> None:
    width = 8 if columns % 8 == 0 else 1
    config = replace(CONFIG, operator=operator, biased=operator == LAYER, width=width, scale_width=width)
    time, config = choose_non_persistent(config, columns, rows, 132) or (0.0, CONFIG)
    slice_columns = config.slice_columns(columns)
    assert time > 4
    assert (config.non_persistent, config.ring) == (True, False)
    assert (config.blocks_per_row - 1) * slice_columns < columns <= config.blocks_per_row * slice_columns
    assert slice_columns <= config.most_columns
    assert config.unpredicated_vectors * config.lanes * config.width <= config.fewest_columns(columns)
    assert config.threads * config.blocks_per_processor <= 2048
    assert config.lanes < 33 or config.groups_per_block < 16


@pytest.mark.parametrize(
    ("rows", "columns", "blocks_per_row"), [(1, 768, {1}), (200, 4096, {1}), (10, 50240, {4, 8}), (3, 65536, {8, 16})]
)
def test_few_wide_rows_are_shared_by_the_blocks_of_a_cluster(rows: int, columns: int, blocks_per_row: set[int]) -> None:
    config = chosen(columns, rows)
    assert config.non_persistent
    assert config.blocks_per_row in blocks_per_row


@pytest.mark.parametrize(
    ("operator", "rows", "columns"), [(SIMPLIFIED, 371, 29552), (LAYER, 2048, 4096), (LAYER, 1, 1 << 22)]
)
def test_where_more_is_to_be_moved_blocks_stay(operator: str, rows: int, columns: int) -> None:
    """The first two took 1.16 and 1.10 times as long otherwise, on an H200 and an H100."""
    assert not chosen(columns, rows, operator).non_persistent


def test_other_devices_and_what_is_added_to_every_row_have_no_such_blocks() -> None:
    assert choose_non_persistent(replace(CONFIG, source="async"), 768, 100, 132) is None
    assert choose_non_persistent(replace(CONFIG, operator=SKIP, shifted=True), 768, 100, 132) is None


def test_units_of_memory_are_taken_where_they_are_faster() -> None:
    """SkipLayerNormalization of 1242 x 3233 in float16, on an H200: 16.0 by units, 19.1 by single elements."""
    single = replace(
        CONFIG,
        operator=SKIP,
        data="float16",
        upstream="float16",
        result="float16",
        width=1,
        scale_width=1,
        biased=False,
    )
    single = replace(single, aligned=False, outputs=OUTPUTS | {"sum"})
    aligned_config = replace(single, width=8, aligned_vectors=True, aligned=True)
    assert choose(single, 3233, 1242, 132, 232448, aligned_config) == choose(aligned_config, 3233, 1242, 132, 232448)
    assert choose(single, 3233, 100, 132, 232448, aligned_config).non_persistent


@pytest.mark.parametrize("capability", [(9, 0), *OTHERS])
@pytest.mark.parametrize("data", ["bfloat16", "float32", "float64"])
def test_every_device_has_the_shared_memory_for_what_is_chosen(capability: tuple[int, int], data: str) -> None:
    width = {"bfloat16": 8, "float32": 4, "float64": 2}[data]
    source = {(7, 5): "plain", (8, 0): "async"}.get(capability, "bulk")
    for operator in (LAYER, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED):
        config = replace(
            CONFIG,
            operator=operator,
            data=data,
            upstream=data,
            result=data,
            parameter="float32",
            width=width,
            source=source,
        )
        for columns in (8, 128, 1024, 4096, 16384, 65536, 262144):
            for rows in (10, 1 << 20):
                made = choose(config, columns, rows, 132, SHARED_MEMORY[capability])
                assert made.shared_bytes <= SHARED_MEMORY[capability]


@pytest.mark.parametrize(
    ("operator", "data", "rows", "columns", "non_persistent"),
    [  # share of torch.add's bandwidth with blocks that end with their first rows, and with a ring, on an H200
        (LAYER, "float16", 12420, 4072, False),  # 0.77, 0.90
        (LAYER, "float16", 916343, 128, True),  # 0.96, 0.87
        (SKIP, "bfloat16", 5588, 3320, True),  # 0.95, 0.91
        (SKIP_SIMPLIFIED, "bfloat16", 10618, 5120, True),  # 0.96, 0.92
        (LAYER, "float32", 5070, 3072, False),  # 0.96, 0.98
        (LAYER, "float32", 4969, 17152, False),  # 0.81, 0.90
        (LAYER, "float32", 122946, 227, True),  # 0.94, 0.87
        (SIMPLIFIED, "float32", 35393, 2176, True),  # 0.97, 0.92
        (SKIP_SIMPLIFIED, "float32", 37282, 437, True),  # 0.95, 0.82
        (LAYER, "float64", 2092, 9216, False),  # 0.80, 0.90
        (SIMPLIFIED, "float64", 30626, 1206, True),  # 0.95, 0.89
        (SIMPLIFIED, "float64", 3480, 8120, True),  # 0.91, 0.88
        (SKIP, "float64", 15419, 1280, True),  # 0.96, 0.91
    ],
)
def test_rows_have_a_ring_or_blocks_of_their_own_where_that_was_faster(
    operator: str, data: str, rows: int, columns: int, non_persistent: bool
) -> None:
    widest = 16 // ITEMSIZE[data]
    width = min(widest, columns & -columns)
    config = replace(
        CONFIG, operator=operator, data=data, upstream=data, result=data, parameter=data, width=width, scale_width=width
    )
    config = replace(config, biased="Simplified" not in operator, aligned=width == widest)
    config = replace(config, outputs=OUTPUTS | {"sum"} if "Skip" in operator else OUTPUTS)
    assert choose(config, columns, rows, 132, 232448).non_persistent == non_persistent


@pytest.mark.parametrize(
    ("operator", "rows", "columns", "aligned_vectors", "parameters"),
    [
        (LAYER, 1923, 34608, False, "registers"),  # 87.0 us, 96.5 with these in shared memory
        (LAYER, 2942, 13528, False, "shared"),  # too many threads for scale and bias beside 32 values
        (SKIP, 453, 29049, True, "registers"),  # 38.4, 41.3
        (SKIP_SIMPLIFIED, 1730, 8258, True, "registers"),
        (SKIP_SIMPLIFIED, 33570, 658, True, "registers"),  # no bias
    ],
)
def test_parameters_are_in_registers_where_there_is_room(
    operator: str, rows: int, columns: int, aligned_vectors: bool, parameters: str
) -> None:
    config = replace(
        CONFIG,
        operator=operator,
        data="float16",
        upstream="float16",
        result="float16",
        aligned_vectors=aligned_vectors,
        scale_width=1,
    )
    config = choose(replace(config, biased=operator != SKIP_SIMPLIFIED), columns, rows, 132, 232448)
    assert config.ring
    assert config.parameters == parameters


@pytest.mark.parametrize("most", [16, 8, 1])
def test_rows_are_shared_by_blocks_where_the_device_has_room_for_them(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan asks the driver how many clusters find room; where none does, a block has a row."""
    as_before = UnloadedKernel.resident_blocks

    def resident_blocks(kernel: UnloadedKernel, threads: int, cluster: int = 1) -> int:
        return as_before(kernel, threads, cluster) if cluster <= most else 0

    monkeypatch.setattr(UnloadedKernel, "resident_blocks", resident_blocks)
    x, row = Tensor(np.dtype("float32"), (3, 12800), (51200, 4), 256), Tensor(np.dtype("float32"), (12800,), (4,), 256)
    with dry_run(DryRunDevice(0, (9, 0), 132, 232448)) as device:
        dry_plan_for(SIMPLIFIED, {"X": x, "scale": row}, "cuda", device="cuda:0")
    blocks_per_row = [int(spec.name.rsplit("_", 1)[1].split("x")[0]) for spec in device.specs]
    assert blocks_per_row == ([16] if most == 16 else [16, 1])


def test_a_small_device_has_no_clusters_that_it_cannot_hold() -> None:
    for processors in (1, 4, 16):
        _, config = choose_non_persistent(CONFIG, 50240, 3, processors) or (0.0, CONFIG)
        assert config.blocks_per_row <= processors

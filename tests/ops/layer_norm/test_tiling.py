"""How rows of a layer norm's gradient are given to threads: every column once, in what a device has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.layer_norm import ALL_OUTPUTS, INVERTIBLE, LAYER

from gradkern.call import Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.dispatch.run import dry_plan_for
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.tiling import choose

NAMES = ("scale", "bias")
TYPES = ("bfloat16", "bfloat16", "bfloat16", "bfloat16", "float32")
CONFIG = LayerNormConfig(LAYER, *TYPES, frozenset(ALL_OUTPUTS[LAYER]), 8, 1, 1, 1, scale_width=8)


def chosen(columns: int, rows: int = 1 << 20) -> LayerNormConfig:
    return choose(CONFIG, columns, rows, 132, 232448)


@pytest.mark.parametrize("columns", [64, 72, 768, 1000, 4096, 5000, 16384, 65536, 200000, 262144, 300000])
def test_the_slices_of_a_row_fit_their_threads(columns: int) -> None:
    config = chosen(columns)
    slice_columns = config.slice_columns(columns)
    assert (config.blocks_per_row - 1) * slice_columns < columns <= config.blocks_per_row * slice_columns
    assert slice_columns <= config.most_columns
    assert (
        config.unpredicated_vectors * config.lanes * config.width
        <= columns - (config.blocks_per_row - 1) * slice_columns
    )


@pytest.mark.parametrize("apart", ["scale", "bias"])
def test_no_parameter_is_read_in_wider_pieces_than_its_address_allows(apart: str) -> None:
    """Those of a model may lie anywhere in one flat array."""
    half = np.dtype("float16")
    rows = Tensor(half, (64, 1024), (2048, 2), 16)
    inputs = {"Y_grad": rows, "Y": rows, "inv_std_var": Tensor(np.dtype("float32"), (64,), (4,), 16)}
    for alignment in (16, 8, 4, 2):
        given = inputs | {name: Tensor(half, (1024,), (2,), alignment if name == apart else 16) for name in NAMES}
        with dry_run(DryRunDevice(0, (9, 0), 132, 232448)) as device:
            dry_plan_for(INVERTIBLE, given, "cuda", device="cuda:0", outputs=("X_grad",))
        (spec,) = device.specs
        assert min(16, spec.constants[0].scale_width * half.itemsize) == alignment


@pytest.mark.parametrize("more", [(), ("X_grad_sum",)])
@pytest.mark.parametrize("shared_bytes", [232448, 101376])
def test_a_thread_has_registers_for_what_it_holds(shared_bytes: int, more: tuple[str, ...]) -> None:
    """Values of a row, twice, scales and the sums: with one group of many threads they once did not fit."""
    wanted = replace(CONFIG, outputs=CONFIG.outputs.union(more))
    for columns in (8 * int(64 * 1.03**step) for step in range(155)):
        config = choose(wanted, columns, 1 << 20, 132, shared_bytes)
        registers = 65536 // (-(-config.threads // 128) * 128)
        assert not config.row_in_registers or config.per_thread * (3 + config.sums) + 16 <= registers


def test_rows_whose_ring_does_not_fit_are_cut_further_rather_than_read_without_one() -> None:
    """554 x 32616 of float64 by the invertible norm, whose parameters take half the memory: 184 us for 128."""
    types = ("float64", "float64", "float64", "float64", "float64")
    config = LayerNormConfig(INVERTIBLE, *types, frozenset(ALL_OUTPUTS[INVERTIBLE]), 2, 1, 1, 1, scale_width=2)
    config = choose(config, 32616, 554, 132, 232448)
    assert (config.source, config.row_in_registers) == ("bulk", True)
    assert config.shared_bytes <= 232448

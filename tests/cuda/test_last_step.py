"""How the partial sums of all blocks are shared out at the end (columns.last_step)."""

from __future__ import annotations

import pytest

from gradkern.cuda.device_code.columns import last_step

# Of gradients of layer norms on an H200: columns of all results, partial rows, threads of a block, blocks, and the
# microseconds that the whole call took by chunk and loads ahead.
MEASURED: list[tuple[int, int, int, int, dict[tuple[int, int], float]]] = [
    (293, 264, 256, 264, {(4, 5): 20.96, (4, 2): 21.98, (8, 6): 21.84, (16, 6): 22.11, (32, 3): 25.34}),
    (160, 264, 128, 264, {(4, 5): 18.14, (4, 2): 18.66, (8, 6): 19.36, (16, 6): 20.64, (32, 2): 31.50}),
    (8704, 132, 384, 132, {(4, 2): 46.02, (8, 3): 44.26, (16, 6): 43.52, (32, 2): 43.94, (32, 6): 43.14}),
    (4992, 132, 480, 132, {(4, 2): 19.36, (8, 3): 18.66, (16, 3): 18.29, (16, 5): 18.14, (32, 6): 18.53}),
    (31104, 17, 256, 132, {(4, 1): 28.51, (8, 2): 26.27, (16, 2): 24.54, (32, 2): 24.32, (64, 2): 23.97}),
    (106478, 17, 416, 132, {(4, 1): 54.14, (16, 1): 29.12, (32, 2): 24.90, (128, 2): 23.58, (128, 6): 22.72}),
    (93418, 9, 384, 132, {(4, 1): 43.26, (16, 1): 18.78, (32, 1): 14.66, (128, 2): 11.97}),
]


@pytest.mark.parametrize(("results", "rows", "threads", "blocks", "times"), MEASURED)
def test_it_is_near_the_fastest_that_was_measured(
    results: int, rows: int, threads: int, blocks: int, times: dict[tuple[int, int], float]
) -> None:
    assert times[last_step(results, rows, threads, blocks, list(times))] <= 1.02 * min(times.values())


@pytest.mark.parametrize("threads", [32, 96, 288, 512, 1024])
@pytest.mark.parametrize("results", [1, 100, 4000, 130_000])
@pytest.mark.parametrize("rows", [1, 17, 132, 5000])
def test_a_block_has_a_thread_for_every_four_columns_of_a_share(threads: int, results: int, rows: int) -> None:
    chunk, ahead = last_step(results, rows, threads, 132)
    assert 1 <= chunk <= threads
    assert chunk & (chunk - 1) == 0
    assert ahead == 1 or rows > (ahead - 1) * (threads // chunk)  # no load without a row


def test_boards_of_about_the_same_size_share_it_out_alike() -> None:
    assert len({last_step(4096, 160, 256, blocks) for blocks in (114, 132, 148, 170)}) == 1

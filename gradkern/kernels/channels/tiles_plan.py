"""From a matrix and the config of its tiles to a launch of the tiles kernel (tiles_kernel.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of_config, named
from gradkern.cuda.launches_plan import LaunchesPlan, plan_of
from gradkern.kernels.channels.tiles_config import ARGUMENTS, BLOCKS, TilesConfig


def tiles_plan(
    name: str,
    builder: str,
    config: TilesConfig,
    size: tuple[int, int],
    fold: int,
    strides: Mapping[str, int],
    given: Sequence[str],
    device: Device,
) -> LaunchPlan | LaunchesPlan:
    """The plan of `config` for `size`, the array's rows and columns; `fold` of its rows are one row of the kernel.

    name     prefix of the plan's name
    strides  of D, X and dX, in bytes from row to row of the array
    given    the kernel's names of the tensors, in the order of their addresses in a call
    """
    rows, columns = size
    numbers = {"rows": rows // fold, "tail": rows % fold * columns, "repeat": columns}
    chunks, large, times = config.heights(columns * fold, -(-rows // fold), BLOCKS * device.processors)
    numbers |= {"large": large, "times": times}
    numbers |= config.sizes(columns * fold) | {f"{each}_stride": fold * stride for each, stride in strides.items()}
    kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS))
    grid = chunks * numbers["slices"]
    partial = chunks * config.column_sums.partial_bytes(columns * fold) if config.persistent else 0
    if config.persistent:
        grid = min(grid, kernel.resident_blocks(config.threads))
        if not grid:
            raise Refusal(f"no block of {config.threads} threads fits the device")
    given = [*given, *(("partial", "counter") if config.persistent else ())]
    launch = Launch(kernel, grid, config.threads, *named(ARGUMENTS, numbers, given), cooperative=config.persistent)
    what = "tiles" if config.persistent else "single_block" if config.single_block else "stream"
    folded = f"_fold{fold}" if fold > 1 else ""
    shape = f"{numbers['slices']}x{config.lanes}x{config.width}_rows{config.groups_per_block}x{config.unroll}{folded}"
    return plan_of(f"{name}_{what}_{shape}", partial, launch, device)


def parameters_at_once(width: int, columns: int, parameters: Sequence[Tensor]) -> int:
    """TilesConfig.parameters_at_once for vectors of this many elements, that may end in another row."""
    count = gcd(width, columns)
    while count > 1 and any(each.alignment % min(16, count * each.dtype.itemsize) for each in parameters):
        count //= 2
    return count


def has_long_rows(rows: int, columns: int, strides: Sequence[int]) -> bool:
    """TilesConfig.long_rows, from the kernel's columns and strides."""
    return max(rows, 16 * columns, *strides) > 1 << 30

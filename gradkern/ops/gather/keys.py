"""Which row of dX each index of a gather names: the same arithmetic for all three operators, and both providers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gradkern.call import Call


@dataclass(frozen=True, slots=True)
class Gather:
    """A gather's gradient as sums of rows: dX is `rows` rows of `columns` elements, for each of `arrays`, and dY has
    `count` rows. The row that element n of `count` is added to has the number

        sum over d of strides[d] n_d  +  sum over q of steps[q] indices[n, q]

    where n_d are its coordinates in an array of `sizes`, and each index is in [-bounds[q], bounds[q]). An element with
    another index is added to none, nor is one whose row is `dropped`.
    """

    source: str
    count: int
    arrays: int
    rows: int
    columns: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    bounds: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: int = -1


def gather_of(call: Call) -> Gather:
    axes = call.axes
    if call.operator == "GatherGrad":
        rows, count = axes["V"], prod(axes["gathered"])
        dropped = call.attributes["padding_idx"]
        dropped = -1 if dropped is None else dropped % max(1, rows)
        return Gather("dY", count, prod(axes["before"]), rows, prod(axes["after"]), (), (), (rows,), (1,), dropped)
    if call.operator == "PadAndUnflatten":
        rows = axes["d0"] * axes["d1"]
        return Gather("input", axes["total"], 1, rows, prod(axes["after"]), (), (), (rows,), (1,))
    if call.operator == "GatherNDGrad":
        indexed, batch = axes["indexed"], prod(axes["batch"])
        steps = _strides(indexed)
        rows, count = batch * prod(indexed), batch * prod(axes["gathered"])
        sizes = (batch, prod(axes["gathered"])) if batch != 1 else ()
        strides = (prod(indexed), 0) if batch != 1 else ()
        return Gather("update", count, 1, rows, prod(axes["slice"]), sizes, strides, indexed, steps)
    shape = (*axes["before"], axes["V"], *axes["after"])
    given = (*axes["outer"], axes["K"], *axes["inner"])
    axis, along = len(axes["before"]), _strides(shape)
    sizes, strides = list[int](), list[int]()
    for n, size in enumerate(given):
        stride = 0 if n == axis else along[n]
        if sizes and strides[-1] == size * stride:  # one dimension of both arrays, or with the index's no dimension
            sizes[-1], strides[-1] = sizes[-1] * size, stride
        else:
            sizes.append(size)
            strides.append(stride)
    sizes, strides = (tuple(sizes), tuple(strides)) if any(strides) else ((), ())
    return Gather("dY", prod(given), 1, prod(shape), 1, sizes, strides, (axes["V"],), (along[axis],))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, of an array in C order."""
    return tuple(prod(shape[n + 1 :]) for n in range(len(shape)))

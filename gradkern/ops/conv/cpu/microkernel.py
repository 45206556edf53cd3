"""The innermost loops of both products of the implicit GEMM: a block of results in the CPU's vector registers.

They are written as LLVM's vectors, since Numba has none, and a loop that it makes vector code of keeps no block of
results in registers. A block is as large as they hold, beside what each step loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.cpu.compile import instruction, ir, make_array, target

_INT64, _INT32 = ir.IntType(64), ir.IntType(32)
_FUSED = ("contract",)  # a product and a sum are one instruction where the CPU has it


def _vector_bytes() -> tuple[int, int]:
    """How many bytes a vector register has, and how many registers there are."""
    triple, _, features = target()
    names = features.split(",")
    if "+avx512f" in names:
        return 64, 32
    if "+avx" in names:
        return 32, 16
    return 16, 32 if triple.startswith(("aarch64", "arm64")) else 16


_BYTES, _REGISTERS = _vector_bytes()
PANEL, _VECTORS = (8, 3) if _REGISTERS == 32 else (6, 2)  # results at each of so many vectors of positions
DOT_FILTERS, DOT_ROWS = (4, 6) if _REGISTERS == 32 else (3, 3)


def lanes(dtype: np.dtype) -> int:
    """How many elements of this type a vector register holds."""
    return _BYTES // dtype.itemsize


def positions_of_block(dtype: np.dtype) -> int:
    """How many positions product_block computes."""
    return _VECTORS * lanes(dtype)


@instruction
def product_block(
    typing: Any,
    panel: Any,
    panel_at: Any,
    count: Any,
    rows: Any,
    at: Any,
    offsets: Any,
    result: Any,
    result_at: Any,
    pitch: Any,
) -> Any:
    """result[r, p] += sum over k of  panel[k, r] * rows[at + offsets[k] + p], for PANEL results r and the positions p
    of a block. count, how many k there are, is at least 1.
    """
    element = panel.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, panel_at, count, _, at, _, _, result_at, pitch = arguments
        panel, rows, offsets, result = (_data(context, builder, signature, arguments, i) for i in (0, 3, 5, 6))
        vector, item = _vector_of(context, element)
        width = vector.count
        loop = _Loop(builder, count, [vector] * (PANEL * _VECTORS))
        source = builder.gep(rows, [builder.add(at, builder.load(builder.gep(offsets, [loop.index])))])
        seen = [_load(builder, source, _INT64(j * width), vector, item) for j in range(_VECTORS)]
        weights = builder.gep(panel, [builder.add(panel_at, builder.mul(loop.index, _INT64(PANEL)))])
        sums: list[Any] = []
        for r in range(PANEL):
            weight = _splat(builder, builder.load(builder.gep(weights, [_INT64(r)])), vector)
            for j in range(_VECTORS):
                sums.append(_multiply_add(builder, weight, seen[j], loop.values[len(sums)]))
        loop.end(_INT64(1), sums)
        for r in range(PANEL):
            line = builder.gep(result, [builder.add(result_at, builder.mul(pitch, _INT64(r)))])
            for j in range(_VECTORS):
                total = builder.fadd(_load(builder, line, _INT64(j * width), vector, item), sums[r * _VECTORS + j])
                place = builder.bitcast(builder.gep(line, [_INT64(j * width)]), vector.as_pointer())
                builder.store(total, place, align=item)
        return context.get_dummy_value()

    i = types.int64
    return types.void(panel, i, i, rows, i, offsets, result, i, i), generate


def _dot_block(filters: int, row_count: int) -> Any:
    """dot_block for so many filters and rows."""

    @instruction
    def dot_block(
        typing: Any, left: Any, left_at: Any, pitch: Any, rows: Any, at: Any, offsets: Any, offset_at: Any, count: Any,
        sums: Any,
    ) -> Any:  # fmt: skip
        """sums[m, r] = sum over p < count of  left[left_at + m*pitch + p] * rows[at + offsets[offset_at + r] + p], for
        some filters m and rows r; sums has whole vectors. count is a multiple of the vector's lanes and at least that.
        """
        element = left.dtype

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, left_at, pitch, _, at, _, offset_at, count, _ = arguments
            left, rows, offsets, sums = (_data(context, builder, signature, arguments, i) for i in (0, 3, 5, 8))
            vector, item = _vector_of(context, element)
            lefts = [builder.gep(left, [builder.add(left_at, builder.mul(pitch, _INT64(m)))]) for m in range(filters)]
            places = [builder.gep(offsets, [builder.add(offset_at, _INT64(r))]) for r in range(row_count)]
            rights = [builder.gep(rows, [builder.add(at, builder.load(place))]) for place in places]
            loop = _Loop(builder, count, [vector] * (filters * row_count))
            factors = [_load(builder, line, loop.index, vector, item) for line in lefts]
            totals: list[Any] = [None] * len(loop.values)
            for r in range(row_count):
                seen = _load(builder, rights[r], loop.index, vector, item)
                for m in range(filters):
                    place = m * row_count + r
                    totals[place] = _multiply_add(builder, factors[m], seen, loop.values[place])
            loop.end(_INT64(vector.count), totals)
            for number, sum_of in enumerate(_sums_of_lanes(builder, totals, vector.count)):
                place = builder.bitcast(builder.gep(sums, [_INT64(number * vector.count)]), vector.as_pointer())
                builder.store(sum_of, place, align=item)
            return context.get_dummy_value()

        i = types.int64
        return types.void(left, i, i, rows, i, offsets, i, i, sums), generate

    return dot_block


class _Loop:
    """for (index = 0; index < count; index += step), with values that each round makes anew and that begin as zero."""

    def __init__(self, builder: Any, count: Any, kinds: list[Any]) -> None:
        self._builder, self._count = builder, count
        before, self._body = builder.block, builder.append_basic_block("loop")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.index = builder.phi(_INT64)
        self.index.add_incoming(_INT64(0), before)
        self.values = [builder.phi(kind) for kind in kinds]
        for value, kind in zip(self.values, kinds, strict=True):
            value.add_incoming(ir.Constant(kind, None), before)

    def end(self, step: Any, values: list[Any]) -> None:
        """End the body, with the values of the next round."""
        builder = self._builder
        following = builder.add(self.index, step)
        self.index.add_incoming(following, self._body)
        for value, new in zip(self.values, values, strict=True):
            value.add_incoming(new, self._body)
        behind = builder.append_basic_block("behind")
        builder.cbranch(builder.icmp_signed("<", following, self._count), self._body, behind)
        builder.position_at_end(behind)


def _data(context: Any, builder: Any, signature: Any, arguments: Any, number: int) -> Any:
    return make_array(signature.args[number])(context, builder, arguments[number]).data


def _vector_of(context: Any, element: Any) -> tuple[Any, int]:
    item = element.bitwidth // 8
    return ir.VectorType(context.get_value_type(element), _BYTES // item), item


def _load(builder: Any, line: Any, at: Any, vector: Any, item: int) -> Any:
    return builder.load(builder.bitcast(builder.gep(line, [at]), vector.as_pointer()), align=item)


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, _INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, vector.count), None))


def _sums_of_lanes(builder: Any, vectors: list[Any], count: int) -> list[Any]:
    """Vectors of the sums of each vector's lanes, in their order: pairs of lanes are added up, of two vectors at a time
    into one, until no vector has two lanes of the same sum.
    """
    even, odd = (ir.Constant(ir.VectorType(_INT32, count), list(range(first, 2 * count, 2))) for first in (0, 1))
    lanes_left = count
    while lanes_left > 1:
        paired = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
        vectors = [
            builder.fadd(*(builder.shuffle_vector(pair[0], pair[-1], mask) for mask in (even, odd))) for pair in paired
        ]
        lanes_left //= 2
    return vectors


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=_FUSED), c, flags=_FUSED)


dot_block = _dot_block(DOT_FILTERS, DOT_ROWS)
dot_9, dot_3, dot_1 = (_dot_block(1, taps) for taps in (9, 3, 1))

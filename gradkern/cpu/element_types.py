"""Element types in memory and in arithmetic.

Numba has no 16-bit floats on the CPU, so a float16 array reaches a kernel viewed as uint16 and a bfloat16 array as
int16; `load` and `store` convert. Arithmetic is float32 for every type but float64: a kernel written with load, store,
real and zeros serves all four types, and rounds once, at the store. All of it is vectorised.

load and store take nonnegative indices without a check.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numba
import numpy as np
from numba import types

from gradkern.cpu.compile import INLINE, by_types, instruction, ir, make_array, target

_STORED_AS = {
    np.dtype(np.float16): np.dtype(np.uint16),
    np.dtype(ml_dtypes.bfloat16): np.dtype(np.int16),
    np.dtype(np.bool): np.dtype(np.uint8),
}
# Numba gives its fastmath flags to instructions that have none; one harmless flag keeps reassociation away.
_AS_WRITTEN = ("nsz",)
_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


def kernel_dtype(dtype: np.dtype) -> np.dtype:
    """The element type in a kernel for arrays of `dtype`."""
    return _STORED_AS.get(dtype, dtype)


def array_type(dtype: np.dtype) -> Any:
    """Numba's type of a flat array of `dtype` in a kernel."""
    return types.Array(numba.from_dtype(kernel_dtype(dtype)), 1, "C")


def arithmetic(dtype: np.dtype) -> np.dtype:
    """The type of arithmetic on `dtype`."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def arithmetic_type(array: Any) -> Any:
    """Numba's type of arithmetic on the elements of an array of this type."""
    return types.float64 if array.dtype == types.float64 else types.float32


@instruction
def load(typing: Any, array: Any, index: Any) -> Any:
    """array[index] in the arithmetic type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_element(context, builder, signature, arguments))
        if array.dtype == types.uint16:
            return from_half(builder, value)
        if array.dtype == types.int16:
            return builder.bitcast(builder.shl(builder.zext(value, _I32), _I32(16)), _F32)
        return value

    return arithmetic_type(array)(array, types.intp), generate


@instruction
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index] = value, rounded to the nearest, ties to even, if the array's type is narrower."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = arguments[2]
        if array.dtype == types.uint16:
            stored = to_half(builder, stored)
        elif array.dtype == types.int16:
            stored = _to_bfloat16(builder, stored)
        builder.store(stored, _element(context, builder, signature, arguments))
        return context.get_dummy_value()

    return types.void(array, types.intp, arithmetic_type(array)), generate


OVER = ((True, types.boolean), (0, types.int64), (0.0, types.float64))
"""What stands for an output that is written over the first, second or third input; and its Numba type."""


@by_types(**INLINE)
def destination(output: Any, upstream: Any, data: Any, third: Any = None) -> Any:
    """The target of an output: its own array, or one of these inputs if `output` is what OVER has for it.

    With the same array as two arguments, loops would run one element at a time: LLVM checks at run time whether an
    output overlaps an input, and runs the vector code only if not. Here it sees one array.
    """

    def own(output: Any, upstream: Any, data: Any, third: Any = None) -> Any:
        return output

    def over_upstream(output: Any, upstream: Any, data: Any, third: Any = None) -> Any:
        return upstream

    def over_data(output: Any, upstream: Any, data: Any, third: Any = None) -> Any:
        return data

    def over_third(output: Any, upstream: Any, data: Any, third: Any = None) -> Any:
        return third

    over = zip(OVER, (over_upstream, over_data, over_third), strict=True)
    return next((target for (_, kind), target in over if kind == output), own)


def _copying(count: int) -> Any:
    """copy(source, at, target, to): copies `count` elements as one vector."""

    @instruction
    def copy(typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def place(array: Any, index: int) -> Any:
                first = builder.gep(make_array(array)(context, builder, arguments[index]).data, [arguments[index + 1]])
                return builder.bitcast(first, ir.VectorType(first.type.pointee, count).as_pointer())

            item = source.dtype.bitwidth // 8
            builder.store(builder.load(place(source, 0), align=item), place(target, 2), align=item)
            return context.get_dummy_value()

        return types.void(source, types.intp, target, types.intp), generate

    return copy


_copy_4, _copy_8 = _copying(4), _copying(8)


@by_types(**INLINE)
def copy_line(source: Any, at: Any, target: Any, to: Any, count: Any) -> Any:
    """target[to + j] = source[at + j] for j < count, of arrays that do not overlap and have one arithmetic type.

    For the short lines of images, where a loop would end before its vector code begins: without a conversion, the last
    vector ends with the line and overlaps the previous one.
    """

    def by_vectors(source: Any, at: Any, target: Any, to: Any, count: Any) -> Any:
        if count >= 8:
            for j in range(0, count - 8, 8):
                _copy_8(source, at + j, target, to + j)
            _copy_8(source, at + count - 8, target, to + count - 8)
        elif count >= 4:
            _copy_4(source, at, target, to)
            _copy_4(source, at + count - 4, target, to + count - 4)
        else:
            for j in range(count):
                store(target, to + j, load(source, at + j))

    def by_elements(source: Any, at: Any, target: Any, to: Any, count: Any) -> Any:
        for j in range(count):
            store(target, to + j, load(source, at + j))

    return by_vectors if source.dtype == target.dtype else by_elements


@by_types(**INLINE)
def real(array: Any, value: Any) -> Any:
    """`value` in the arithmetic type of `array`. A bare literal is float64 and would make float32 arithmetic wide."""
    kind = arithmetic_type(array)

    def convert(array: Any, value: Any) -> Any:
        return kind(value)

    return convert


def summand_type(array: Any, output: Any) -> Any:
    """The Numba type of `summand`."""
    alone = output == types.none and array.dtype == types.float32
    return types.float64 if alone else arithmetic_type(array)


@by_types(**INLINE)
def summand(array: Any, output: Any, value: Any) -> Any:
    """`value` in the type of sums over `array`'s elements.

    It is float64 for float32, too, if only sums are written (`output` is None): then it costs no time. Products of two
    elements are exact in it, and sums with cancellation keep their digits.
    """
    kind = summand_type(array, output)

    def convert(array: Any, output: Any, value: Any) -> Any:
        return kind(value)

    return convert


@by_types()
def zeros(array: Any, size: Any) -> Any:
    """A new array of zeros in the arithmetic type of `array`: an accumulator."""
    kind = arithmetic_type(array)

    def allocate(array: Any, size: Any) -> Any:
        return np.zeros(size, kind)

    return allocate


def _element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.gep(make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])


# float16. LLVM's half type becomes one vector instruction where the CPU has it: x86 since F16C (2012), ARM always.
# Otherwise it calls functions that Numba does not link (the process crashes), so the bits are converted by hand.


def _has_half_instructions() -> bool:
    triple, _, features = target()
    return triple.startswith(("aarch64", "arm64")) or "+f16c" in features.split(",")


def half_by_instruction(builder: Any, value: Any) -> Any:
    return builder.fpext(builder.bitcast(value, ir.HalfType()), _F32)


def half_by_bits(builder: Any, value: Any) -> Any:
    """Shift exponent and fraction into place, then multiply by 2^112, the difference of the exponents' biases. The
    product is exact and makes subnormals normal. Inf and NaN keep the largest exponent.
    """
    wide = builder.zext(value, _I32)
    magnitude = builder.shl(builder.and_(wide, _I32(0x7FFF)), _I32(13))
    scaled = builder.fmul(builder.bitcast(magnitude, _F32), _F32(2.0**112), flags=_AS_WRITTEN)
    special = builder.icmp_unsigned(">=", magnitude, _I32(0x7C00 << 13))
    bits = builder.select(special, builder.or_(magnitude, _I32(0x7F800000)), builder.bitcast(scaled, _I32))
    sign = builder.shl(builder.and_(wide, _I32(0x8000)), _I32(16))
    return builder.bitcast(builder.or_(bits, sign), _F32)


def round_by_instruction(builder: Any, value: Any) -> Any:
    return builder.bitcast(builder.fptrunc(value, ir.HalfType()), _I16)


def round_by_bits(builder: Any, value: Any) -> Any:
    """Normal results: re-bias, add just below half a unit and the last bit that stays, cut; the carry may run into the
    exponent. Subnormal results: adding 0.5 makes the float32 adder round at 2^-24, float16's smallest step.
    """
    bits = builder.bitcast(value, _I32)
    magnitude = builder.and_(bits, _I32(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, _I32(13)), _I32(1))
    biased = builder.add(builder.sub(magnitude, _I32(112 << 23)), builder.add(_I32(0xFFF), odd))
    normal = builder.lshr(biased, _I32(13))
    shifted = builder.fadd(builder.bitcast(magnitude, _F32), _F32(0.5), flags=_AS_WRITTEN)
    subnormal = builder.sub(builder.bitcast(shifted, _I32), _I32(0x3F000000))
    result = builder.select(builder.icmp_unsigned("<", magnitude, _I32(113 << 23)), subnormal, normal)
    overflow = builder.icmp_unsigned(">=", magnitude, _I32(0x477FF000))  # 65520, halfway from the largest to 2^16
    result = builder.select(overflow, _I32(0x7C00), result)
    nan = builder.icmp_unsigned(">", magnitude, _I32(0x7F800000))
    result = builder.select(nan, _I32(0x7E00), result)
    sign = builder.and_(builder.lshr(bits, _I32(16)), _I32(0x8000))
    return builder.trunc(builder.or_(result, sign), _I16)


from_half, to_half = (
    (half_by_instruction, round_by_instruction) if _has_half_instructions() else (half_by_bits, round_by_bits)
)


def _to_bfloat16(builder: Any, value: Any) -> Any:
    """The upper half of a float32, rounded. A NaN's fraction must not be rounded away or into the sign."""
    bits = builder.bitcast(value, _I32)
    odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
    rounded = builder.lshr(builder.add(bits, builder.add(_I32(0x7FFF), odd)), _I32(16))
    quiet = builder.or_(builder.lshr(bits, _I32(16)), _I32(0x0040))
    nan = builder.icmp_unsigned(">", builder.and_(bits, _I32(0x7FFFFFFF)), _I32(0x7F800000))
    return builder.trunc(builder.select(nan, quiet, rounded), _I16)

"""The kernel of arrays that are computed element by element, for a config and an operator's arithmetic.

A thread loads all its vectors of all inputs before it uses the first; a block's vectors are side by side. The last
block also computes the elements behind the last whole vector, one a thread. Rows consist of whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.kernels.elementwise.config import BITS, ElementwiseConfig, ElementwiseTypes


def elementwise_kernel(
    types: ElementwiseTypes,
    config: ElementwiseConfig,
    element: Callable[..., Any],
    outputs: Sequence[str] = (),
    arrays: int = 1,
) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (ARGUMENTS) an int64. element(x0, x1, x2, r), a
    device function, is the output's element; x of inputs that are not there repeat the last, r is a local array of the
    launch's numbers in the type of arithmetic. outputs: of elements that are tuples, the contract's names; those that
    are not wanted are not stored. arrays: with more than one, each an input with its output, the arguments are the only
    number and those of `config.arguments_of`.
    """
    if outputs:
        element = _wanted(types, element, outputs)
    WIDTH, VECTORS, THREADS, ROWS = config.width, config.vectors, config.threads, types.rows
    INPUTS, OUTPUTS, NUMBERS = len(types.inputs), len(types.outputs), len(types.numbers)
    FLOAT = float64 if types.compute == "float64" else float32
    kinds = (*types.inputs, *types.inputs[-1:] * 2)[:3]
    WORDS_0, WORDS_1, WORDS_2 = (1 if each == BITS else max(1, WIDTH * ITEMSIZE[each] // 4) for each in kinds)
    WORDS = (WORDS_0, WORDS_0 + WORDS_1, WORDS_0 + WORDS_1 + WORDS_2)[INPUTS - 1]
    HELD = VECTORS * WORDS
    (load_0, unpack_0), (load_1, unpack_1), (load_2, unpack_2) = (_input(types, each, WIDTH) for each in kinds)
    (first_0, alone_0), (first_1, alone_1), (first_2, alone_2) = (_input(types, each, 1, False) for each in kinds)
    written = (*types.outputs, *types.outputs[-1:] * 2)[:3]
    O0, O1, O2 = (WIDTH * ITEMSIZE[each] for each in written)
    store_0, store_1, store_2 = (i.storer("global", each, WIDTH, types.native_bfloat16) for each in written)
    one_0, one_1, one_2 = (i.storer("global", each, 1, types.native_bfloat16) for each in written)
    number_0, number_1, number_2 = (_number_loader(each, types.compute) for each in (*types.numbers, "", "", "")[:3])

    @device_function
    def compute(y0: Any, y1: Any, y2: Any, e: int, x0: Any, x1: Any, x2: Any, r: Any) -> None:
        more = x1 if INPUTS > 1 else x0
        last = x2 if INPUTS > 2 else more
        if OUTPUTS == 1:
            y0[e] = element(x0[e], more[e], last[e], r)
        elif OUTPUTS == 2:
            y0[e], y1[e] = element(x0[e], more[e], last[e], r)
        else:
            y0[e], y1[e], y2[e] = element(x0[e], more[e], last[e], r)

    @device_function
    def of_block(
        thread: Any, block: Any, blocks: Any,
        a0: int, a1: int, a2: int, b0: int, b1: int, b2: int, n0: int, n1: int, n2: int,
        size: int, columns: int, multiplier: int, shift: int, s0: int, s1: int, s2: int, t0: int, t1: int, t2: int,
    ) -> None:  # fmt: skip
        whole = size // WIDTH
        first = block * (VECTORS * THREADS) + thread
        words = cuda.local.array(HELD, int32)
        x0, x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        y0, y1, y2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        r = cuda.local.array(3, FLOAT)
        if NUMBERS > 0:
            r[0] = number_0(n0)
        if NUMBERS > 1:
            r[1] = number_1(n1)
        if NUMBERS > 2:
            r[2] = number_2(n2)
        row, column = int64(0), int64(0)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < whole:
                if ROWS:
                    row = int64(i.divided(int32(v), int32(multiplier), int32(shift)))
                    column = v - row * columns
                load_0(words, j * WORDS, a0, v, row * s0, column)
                if INPUTS > 1:
                    load_1(words, j * WORDS + WORDS_0, a1, v, row * s1, column)
                if INPUTS > 2:
                    load_2(words, j * WORDS + WORDS_0 + WORDS_1, a2, v, row * s2, column)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < whole:
                unpack_0(x0, words, j * WORDS, v)
                if INPUTS > 1:
                    unpack_1(x1, words, j * WORDS + WORDS_0, v)
                if INPUTS > 2:
                    unpack_2(x2, words, j * WORDS + WORDS_0 + WORDS_1, v)
                for e in range(WIDTH):
                    compute(y0, y1, y2, e, x0, x1, x2, r)
                column = v
                if ROWS:
                    row = int64(i.divided(int32(v), int32(multiplier), int32(shift)))
                    column = v - row * columns
                store_0(b0 + row * t0 + column * O0, y0)
                if OUTPUTS > 1:
                    store_1(b1 + row * t1 + column * O1, y1)
                if OUTPUTS > 2:
                    store_2(b2 + row * t2 + column * O2, y2)
        if WIDTH > 1 and not ROWS:
            n = whole * WIDTH + thread
            if block == blocks - 1 and n < size:
                first_0(words, 0, a0, n, int64(0), int64(0))
                alone_0(x0, words, 0, n)
                if INPUTS > 1:
                    first_1(words, 0, a1, n, int64(0), int64(0))
                    alone_1(x1, words, 0, n)
                if INPUTS > 2:
                    first_2(words, 0, a2, n, int64(0), int64(0))
                    alone_2(x2, words, 0, n)
                compute(y0, y1, y2, 0, x0, x1, x2, r)
                one_0(b0 + n * (O0 // WIDTH), y0)
                if OUTPUTS > 1:
                    one_1(b1 + n * (O1 // WIDTH), y1)
                if OUTPUTS > 2:
                    one_2(b2 + n * (O2 // WIDTH), y2)

    def kernel(
        a0: int, a1: int, a2: int, b0: int, b1: int, b2: int, n0: int, n1: int, n2: int,
        size: int, columns: int, multiplier: int, shift: int, s0: int, s1: int, s2: int, t0: int, t1: int, t2: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        of_block(
            thread, block, cuda.gridDim.x, a0, a1, a2, b0, b1, b2, n0, n1, n2,
            size, columns, multiplier, shift, s0, s1, s2, t0, t1, t2,
        )  # fmt: skip

    if arrays == 1:
        return kernel
    find = array_of_block(arrays, outputs=True)

    def several(n0: int, *of_arrays: int) -> None:
        thread, number = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        a, b, size, begin, end = find(number, of_arrays)
        of_block(thread, number - begin, end - begin, a, a, a, b, b, b, n0, n0, n0, size, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    return several


def array_of_block(arrays: int, outputs: bool = False, first: int = 0) -> Callable[[Any, Any], Any]:
    """A device function of a block's number and the arguments of the arrays: the address, the output's address and the
    size of the block's array, its first block and the one behind its last.
    """
    FIELDS = 3 + outputs
    INPUT, OUTPUT = FIELDS * first, FIELDS * first + outputs
    SIZE, END, BEFORE = FIELDS * first + 1 + outputs, FIELDS * first + 2 + outputs, FIELDS * first - 1
    FIRST, LAST = first == 0, first == arrays - 1
    rest: Any = None if LAST else array_of_block(arrays, outputs, first + 1)

    @device_function
    def find(block: Any, of_arrays: Any) -> Any:
        begin = int64(0) if FIRST else of_arrays[BEFORE]
        if LAST:
            return of_arrays[INPUT], of_arrays[OUTPUT], of_arrays[SIZE], begin, of_arrays[END]
        if block < of_arrays[END]:
            return of_arrays[INPUT], of_arrays[OUTPUT], of_arrays[SIZE], begin, of_arrays[END]
        return rest(block, of_arrays)

    return find


def _wanted(types: ElementwiseTypes, element: Callable[..., Any], outputs: Sequence[str]) -> Callable[..., Any]:
    """The element, with those of its values that are written."""
    FIRST, SECOND, THIRD = (*(outputs.index(name) for name in types.written), 0, 0)[:3]
    OUTPUTS = len(types.written)

    @device_function
    def wanted(x0: Any, x1: Any, x2: Any, r: Any) -> Any:
        every = element(x0, x1, x2, r)
        if OUTPUTS == 1:
            return every[FIRST]
        if OUTPUTS == 2:
            return every[FIRST], every[SECOND]
        return every[FIRST], every[SECOND], every[THIRD]

    return wanted


def _input(types: ElementwiseTypes, kind: str, width: int, rows: bool = True) -> tuple[Callable[..., Any], ...]:
    """Device functions of an input's vectors of this width: load(words, place, address, number, row's offset, number in
    the row), and unpack(values, words, place, number).
    """
    WIDTH, ROWS = width, types.rows and rows
    if kind == BITS:
        load_word = i.word_loader("global", 4)
        ZERO, ONE = (0.0, 1.0) if types.compute == "float64" else (float32(0), float32(1))

        @device_function
        def load_bits(words: Any, place: int, address: int, v: int, row: int, column: int) -> None:
            load_word(words, place, address + (v * WIDTH >> 5 << 2))

        @device_function
        def unpack_bits(values: Any, words: Any, place: int, v: int) -> None:
            bits = words[place] >> int32(v * WIDTH & 31)
            for e in range(WIDTH):
                values[e] = ONE if (bits >> e) & 1 else ZERO

        return load_bits, unpack_bits
    BYTES = width * ITEMSIZE[kind]
    load_words, unpack_words = i.word_loader("global", BYTES), i.unpacker(kind, width)

    @device_function
    def load(words: Any, place: int, address: int, v: int, row: int, column: int) -> None:
        if ROWS:
            load_words(words, place, address + row + column * BYTES)
        else:
            load_words(words, place, address + v * BYTES)

    @device_function
    def unpack(values: Any, words: Any, place: int, v: int) -> None:
        unpack_words(values, words, place)

    return load, unpack


def _number_loader(kind: str, compute: str) -> Callable[[int], Any]:
    """A device function of an argument: the number in the type of arithmetic. The argument has its bits, or, with a
    `kind`, is the address of one of that type.
    """
    FLOAT = float64 if compute == "float64" else float32
    if not kind:
        return i.float_of_bits(compute)
    if "float" in kind:
        load, HELD = i.loader("global", kind, 1), float64 if kind == "float64" else float32

        @device_function
        def real(address: int) -> Any:
            one = cuda.local.array(1, HELD)
            load(one, address)
            return FLOAT(one[0])

        return real
    load_integer, _ = integer_access(kind == "int64")

    @device_function
    def whole(address: int) -> Any:
        return FLOAT(load_integer(address, 0))

    return whole

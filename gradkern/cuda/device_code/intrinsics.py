"""Device functions missing in Numba: vector access by address, asynchronous copies, barriers, clusters.

This is the only module that uses Numba's extension API and inline PTX. Kernels address memory as PTX does: global
memory by 64-bit integers, shared memory by 32-bit integers. A launch passes 8 bytes per tensor, and one access moves up
to 16 bytes (Numba's array accesses assume only the element's alignment and are never widened).

Under the CUDA simulator, tests replace this module by tests/helpers/simulated.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

from gradkern.cuda.device_code.columns import reciprocal

_WORD, _HALF = ir.IntType(32), ir.IntType(16)
_LLVM = {
    "int32": (ir.IntType(32), "r"),
    "int64": (ir.IntType(64), "l"),
    "float32": (ir.FloatType(), "f"),
    "float64": (ir.DoubleType(), "d"),
}

_ITEMSIZE = {"bool": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


_ANY = None
"""In the place of an argument's type: an array, or whatever is given."""


def _address(space: str) -> Any:
    return types.int32 if space.startswith("shared") else types.int64


def _device_function(emit: Callable[..., Any], *takes: Any, result: Any = types.void) -> Any:
    """The device function of arguments of these types: emit(builder, *arguments) emits its code and returns its result.
    Of an array it gets the address of the first element.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given = [
            cgutils.create_struct_proxy(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, values, strict=True)
        ]
        made = emit(builder, *given)
        return context.get_dummy_value() if result is types.void else made

    def declare(_typing: Any, *given: Any) -> Any:
        return result(*(own if kind is _ANY else kind for kind, own in zip(takes, given, strict=True))), lower

    names = ["typing", *(f"argument{index}" for index in range(len(takes)))]  # the arity, for Numba
    parameters = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in names]
    declare.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    declare.__name__ = emit.__name__
    return intrinsic(declare)


def _get(builder: Any, array: Any, count: int, first: Any = 0) -> list[Any]:
    """So many elements of an array."""
    return [builder.load(_place(builder, array, index, first)) for index in range(count)]


def _put(builder: Any, array: Any, elements: Sequence[Any], first: Any = 0) -> None:
    for index, element in enumerate(elements):
        builder.store(element, _place(builder, array, index, first))


def _place(builder: Any, array: Any, index: int, first: Any = 0) -> Any:
    """The address of an element; `first` is a number, or one that the code computes."""
    return builder.gep(array, [_WORD(first + index) if isinstance(first, int) else builder.add(first, _WORD(index))])


def _ptx(result: str | None, arguments: str, text: str, pure: bool = False) -> Callable[..., Any]:
    """A device function: inline PTX with scalar arguments and results of the named types.

    pure=False: it is executed as often and in the order written, and may change memory.
    """
    takes = arguments.split()
    returned = _LLVM[result] if result else (ir.VoidType(), "")
    constraints = [f"={returned[1]}"] if result else []
    constraints += [_LLVM[each][1] for each in takes] + ([] if pure else ["~{memory}"])

    def emit(builder: Any, *values: Any) -> Any:
        kind = ir.FunctionType(returned[0], [_LLVM[each][0] for each in takes])
        function = ir.InlineAsm(kind, text, ",".join(constraints), not pure)
        # convergent: it must not be moved under another condition, as the set of threads that execute it matters
        return builder.call(function, list(values), attrs=() if pure else ("convergent",))

    return _device_function(emit, *(getattr(types, each) for each in takes), result=getattr(types, result or "void"))


def _shared_memory(builder: Any) -> Any:
    name = "gradkern_shared_memory"
    memory = builder.module.globals.get(name)
    if memory is None:
        memory = ir.GlobalVariable(builder.module, ir.ArrayType(ir.IntType(8), 0), name, addrspace=3)
        memory.linkage, memory.align = "external", 128
    return builder.ptrtoint(memory, _WORD)


shared_memory = _device_function(_shared_memory, result=types.int32)  # the address of the block's dynamic memory

# --- vector access ---------------------------------------------------------------------------------------------------


@cache
def loader(space: str, dtype: str, width: int) -> Callable[..., Any]:
    """A device function load(values, address): `width` elements of `dtype` at `address`, as float32 (float64 stays, and
    bool is 0 or 1 in the type of `values`).

    `values` is a local array of at least `width`; `address` must be a multiple of min(16, width * itemsize). Loads
    are never reordered with barriers, nor with stores to the same memory by this thread (X_grad may be X).
    """
    size = width * _ITEMSIZE[dtype]

    def load(builder: Any, values: Any, address: Any) -> None:
        words: list[Any] = []
        for offset in range(0, size, 16):
            words += _load_words(builder, space, address, offset, min(16, size - offset))
        _put(builder, values, _from_words(builder, words, dtype, width, values.type.pointee))

    return _device_function(load, _ANY, _address(space))


@cache
def word_loader(space: str, size: int) -> Callable[..., Any]:
    """A device function load(words, first, address): `size` bytes, 1 to 16, into the int32 words[first:].

    For loads in flight while other values are used: they take no more registers than their bytes, and an `unpacker`
    widens them later. `address` must be a multiple of `size`.
    """
    return _device_function(_into_words(space, size), _ANY, types.int32, _address(space))


@cache
def masked_word_loader(space: str, size: int) -> Callable[..., Any]:
    """A device function load(words, first, address, present): the same, or zeros, and no access, where `present` is
    False. There is no branch, so that the loads of many places are in flight together.
    """
    return _device_function(_into_words(space, size), _ANY, types.int32, _address(space), types.boolean)


def _into_words(space: str, size: int) -> Callable[..., None]:
    """The code of both."""

    def load(builder: Any, words: Any, first: Any, address: Any, *more: Any) -> None:
        present = [builder.zext(each, _WORD) if each.type.width < 32 else each for each in more]
        loaded = _load_words(builder, space, address, 0, size, *present)
        _put(builder, words, [builder.zext(each, _WORD) if size == 2 else each for each in loaded], first)

    return load


@cache
def word_storer(space: str, size: int) -> Callable[..., Any]:
    """A device function store(address, words): `size` bytes, 1 to 16, from int32 words; `address` must be a multiple of
    `size`.
    """

    def store(builder: Any, address: Any, array: Any) -> None:
        words = _get(builder, array, max(1, size // 4))
        if size == 1:
            kind = ir.FunctionType(ir.VoidType(), [address.type, _WORD])
            pointer = "r" if space.startswith("shared") else "l"
            inline = ir.InlineAsm(kind, f"st.{space}.u8 [$0], $1;", f"{pointer},r,~{{memory}}", True)
            builder.call(inline, [address, words[0]])
        else:
            _store_words(builder, space, address, 0, [builder.trunc(words[0], _HALF)] if size == 2 else words)

    return _device_function(store, _address(space), _ANY)


@cache
def unpacker(dtype: str, width: int) -> Callable[..., Any]:
    """A device function unpack(values, words, first): `width` elements of words[first:], converted as by a loader."""

    def unpack(builder: Any, values: Any, packed: Any, first: Any) -> None:
        words = _get(builder, packed, max(1, width * _ITEMSIZE[dtype] // 4), first)
        if width * _ITEMSIZE[dtype] == 2:
            words = [builder.trunc(words[0], _HALF)]
        _put(builder, values, _from_words(builder, words, dtype, width, values.type.pointee))

    return _device_function(unpack, _ANY, _ANY, types.int32)


@cache
def storer(
    space: str, dtype: str, width: int, native_bfloat16: bool = True, evict_last: bool = False
) -> Callable[..., Any]:
    """A device function store(address, values): rounds `width` values to `dtype`, to nearest even, and writes them. As
    bool every value but 0 is true.

    native_bfloat16: the device has the conversion to bfloat16 (compute capability 8.0 and newer). evict_last: the hint
    to evict other lines of the L2 cache first (8.0 and newer).
    """
    size = width * _ITEMSIZE[dtype]

    def store(builder: Any, address: Any, values: Any) -> None:
        words = _to_words(builder, _get(builder, values, width), dtype, native_bfloat16)
        for offset in range(0, size, 16):
            _store_words(builder, space, address, offset, words[offset // 4 : offset // 4 + 4], evict_last)

    return _device_function(store, _address(space), _ANY)


@cache
def rounder(dtype: str, width: int, native_bfloat16: bool = True) -> Callable[..., Any]:
    """A device function round(values): rounds each of `width` values to `dtype`, in place."""

    def round_(builder: Any, values: Any) -> None:
        words = _to_words(builder, _get(builder, values, width), dtype, native_bfloat16)
        _put(builder, values, _from_words(builder, words, dtype, width))

    return _device_function(round_, _ANY)


@cache
def gatherer(space: str, dtype: str, offsets: tuple[int, ...]) -> Callable[..., Any]:
    """A device function gather(values, address): values[n] is the element at address + offsets[n], converted as by a
    loader.
    """

    def gather(builder: Any, values: Any, address: Any) -> None:
        for index, offset in enumerate(offsets):
            words = _load_words(builder, space, address, offset, _ITEMSIZE[dtype])
            _put(builder, values, _from_words(builder, words, dtype, 1), index)

    return _device_function(gather, _ANY, _address(space))


@cache
def gatherer_from(dtype: str, places: tuple[tuple[int, int], ...], width: int = 1) -> Callable[..., Any]:
    """A device function gather(values, addresses): loads `width` elements of shared memory from addresses[place] +
    offset for each (place, offset) of `places`, in their order. addresses: a local array of int64.
    """

    def gather(builder: Any, values: Any, addresses: Any) -> None:
        for index, (place, offset) in enumerate(places):
            address = builder.trunc(_get(builder, addresses, 1, place)[0], _WORD)
            words = _load_words(builder, "shared", address, offset, width * _ITEMSIZE[dtype])
            _put(builder, values, _from_words(builder, words, dtype, width), width * index)

    return _device_function(gather, _ANY, _ANY)


@cache
def scatterer(
    space: str, dtype: str, offsets: tuple[int, ...], native_bfloat16: bool = True, width: int = 1
) -> Callable[..., Any]:
    """A device function scatter(address, values): stores `width` values to each address + offset, in their order,
    converted as by a storer.
    """

    def scatter(builder: Any, address: Any, values: Any) -> None:
        for index, offset in enumerate(offsets):
            elements = _get(builder, values, width, width * index)
            _store_words(builder, space, address, offset, _to_words(builder, elements, dtype, native_bfloat16))

    return _device_function(scatter, _address(space), _ANY)


@cache
def clipped_scatterer(
    dtype: str,
    sizes: tuple[int, int],
    steps: tuple[int, int],
    limits: tuple[int, int],
    native_bfloat16: bool = True,
    width: int = 1,
) -> Callable[..., Any]:
    """A device function scatter(address, values, row, column): stores a tile of `sizes` places to global memory. A
    place is an element, or two of 16 bits.

    The tile's first element is at `address`, place (row, column) of an array of `limits` places; `steps` are the bytes
    from row to row and column to column. Places outside the array are masked, without a branch for each.
    """
    bits = 8 * _ITEMSIZE[dtype] * width
    letter = {16: "h", 32: "r", 64: "l"}[bits]
    text = "{{ .reg .pred p; setp.ne.s32 p, $2, 0; @p st.global.b{bits} [$0+{offset}], $1; }}"

    def scatter(builder: Any, address: Any, values: Any, *first: Any) -> None:
        inside = [  # unsigned comparison: negative indices are larger than every limit
            [builder.icmp_unsigned("<", builder.add(each, _WORD(n)), _WORD(limit)) for n in range(size)]
            for each, size, limit in zip(first, sizes, limits, strict=True)
        ]
        for row in range(sizes[0]):
            for column in range(sizes[1]):
                elements = _get(builder, values, width, width * (row * sizes[1] + column))
                if dtype == "float64":
                    word = builder.bitcast(elements[0], ir.IntType(64))
                else:
                    word = _to_words(builder, elements, dtype, native_bfloat16)[0]
                within = builder.zext(builder.and_(inside[0][row], inside[1][column]), _WORD)
                kind = ir.FunctionType(ir.VoidType(), [address.type, word.type, _WORD])
                line = text.format(bits=bits, offset=row * steps[0] + column * steps[1])
                builder.call(ir.InlineAsm(kind, line, f"l,{letter},r,~{{memory}}", True), [address, word, within])

    return _device_function(scatter, types.int64, _ANY, types.int32, types.int32)


@cache
def multiply_adds(table: tuple[tuple[int, int, int], ...]) -> Callable[..., Any]:
    """A device function add(sums, left, right): sums[s] += left[l] * right[r] for every (s, l, r), in this order.

    Straight-line code of any length: a loop that the compiler does not unroll would keep the arrays out of registers.
    """

    def add(builder: Any, *arrays: Any) -> None:
        def fused(total: Any, left: Any, right: Any) -> Any:
            return builder.fma(left, right, total)

        _accumulate(builder, table, arrays, fused)

    return _device_function(add, _ANY, _ANY, _ANY)


@cache
def scaled_adds(table: tuple[tuple[int, int, float], ...]) -> Callable[..., Any]:
    """A device function add(sums, values): sums[s] += values[v] * factor for every (s, v, factor), in this order.
    Straight-line code of any length, as multiply_adds.
    """

    def add(builder: Any, *arrays: Any) -> None:
        factors = iter([factor for *_, factor in table])

        def scaled(total: Any, value: Any) -> Any:
            factor = next(factors)
            return builder.fadd(total, value) if factor == 1 else builder.fma(value, value.type(factor), total)

        _accumulate(builder, [places for *places, _ in table], arrays, scaled)

    return _device_function(add, _ANY, _ANY)


def _accumulate(
    builder: Any, table: Sequence[tuple[int, ...]], arrays: Sequence[Any], result: Callable[..., Any]
) -> None:
    """For every row of indices, in their order: the first array's element becomes the result of these elements of all
    arrays. Each is loaded once, and stored at the end.
    """
    held: list[dict[int, Any]] = [{} for _ in arrays]
    for indices in table:
        for known, array, index in zip(held, arrays, indices, strict=True):
            if index not in known:
                known[index] = _get(builder, array, 1, index)[0]
        held[0][indices[0]] = result(*(known[index] for known, index in zip(held, indices, strict=True)))
    for index, total in held[0].items():
        _put(builder, arrays[0], [total], index)


@cache
def adds_where_equal(table: tuple[tuple[int, int, int, int], ...], compute: str) -> Callable[..., Any]:
    """A device function add(sums, values, keys, wanted): sums[s] += values[v] if keys[k] == wanted[w], for every
    (s, v, k, w), in this order. Straight-line code of any length, as multiply_adds.
    """
    kind, letter = _LLVM[compute]
    text = f"{{ .reg .pred p; setp.eq.s32 p, $3, $4; @p add.rn.f{compute[-2:]} $0, $0, $2; }}"
    added = ir.InlineAsm(ir.FunctionType(kind, [kind, kind, _WORD, _WORD]), text, f"={letter},0,{letter},r,r", False)

    def add(builder: Any, *arrays: Any) -> None:
        _accumulate(builder, table, arrays, lambda *given: builder.call(added, given))

    return _device_function(add, _ANY, _ANY, _ANY, _ANY)


@cache
def keep_largest(table: tuple[tuple[int, int, int], ...]) -> Callable[..., Any]:
    """A device function keep(largest, places, values, base): for every (l, v, offset), in this order, largest[l] is
    then values[v], and places[l] base + offset, if the value is larger, or the first NaN. Straight-line code.
    """

    def keep(builder: Any, largest: Any, places: Any, given: Any, base: Any) -> None:
        for index in dict.fromkeys(each for each, _, _ in table):
            at, place = (_place(builder, array, index) for array in (largest, places))
            most, found = builder.load(at), builder.load(place)
            for _, value, offset in (each for each in table if each[0] == index):
                (x,) = _get(builder, given, 1, value)
                more = builder.and_(builder.fcmp_unordered(">", x, most), builder.fcmp_ordered("ord", most, most))
                most = builder.select(more, x, most)
                found = builder.select(more, builder.add(base, _WORD(offset)), found)
            builder.store(most, at)
            builder.store(found, place)

    return _device_function(keep, _ANY, _ANY, _ANY, types.int32)


@cache
def matrix_product(dtype: str) -> Callable[..., Any]:
    """A device function multiply(sums, first, left, right): adds A (16 x 16) times B (16 x 8) of 16-bit `dtype` to a
    warp's 16 x 8 matrix of float32: mma.m16n8k16, compute capability 8.0 and newer.

    Lane 4 g + q holds columns 2 q and 2 q + 1 of row g, then of row g + 8, in sums[first:first + 4]; of A, columns 2 q
    and 2 q + 1 of rows g and g + 8, then the same plus 8 columns, in the words left[0:4]; of B, rows 2 q and 2 q + 1,
    then plus 8, of column g, in right[0:2].
    """
    kind = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    text = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
        " {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    )
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)

    def multiply(builder: Any, sums: Any, first: Any, left: Any, right: Any) -> None:
        single = ir.FloatType()
        words = [*_get(builder, left, 4), *_get(builder, right, 2), *_get(builder, sums, 4, first)]
        kind = ir.FunctionType(ir.LiteralStructType([single] * 4), [_WORD] * 6 + [single] * 4)
        result = builder.call(ir.InlineAsm(kind, text, constraints, False), words, attrs=("convergent",))
        _put(builder, sums, [builder.extract_value(result, n) for n in range(4)], first)

    return _device_function(multiply, _ANY, types.int32, _ANY, _ANY)


def _matrix_loader(turned: bool) -> Callable[..., Any]:
    """A device function load(words, address): loads four 8 x 8 matrices of 16-bit numbers from shared memory into
    words[0:4] of a warp's lanes (ldmatrix.x4).

    Lane 8 n + r provides the address of row r of matrix n, a multiple of 16. Lane 4 g + q receives columns 2 q and
    2 q + 1 of row g of each matrix; if turned (.trans), column g of rows 2 q and 2 q + 1.
    """

    how = ".trans" if turned else ""
    text = f"ldmatrix.sync.aligned.m8n8.x4{how}.shared.b16 {{$0,$1,$2,$3}}, [$4];"

    def load(builder: Any, words: Any, address: Any) -> None:
        kind = ir.FunctionType(ir.LiteralStructType([_WORD] * 4), [_WORD])
        asked = ir.InlineAsm(kind, text, "=r,=r,=r,=r,r,~{memory}", True)
        result = builder.call(asked, [address], attrs=("convergent",))
        _put(builder, words, [builder.extract_value(result, n) for n in range(4)])

    return _device_function(load, _ANY, types.int32)


load_matrices, load_turned = _matrix_loader(turned=False), _matrix_loader(turned=True)


def _load_words(builder: Any, space: str, address: Any, offset: int, size: int, present: Any = None) -> list[Any]:
    """The words at `address` + `offset`: one load of 1, 2, 4, 8 or 16 bytes (2 bytes come as one 16-bit word). Zeros,
    without a load, where the word `present` is 0.
    """
    count = max(1, size // 4)
    letter, kind = ("h", _HALF) if size == 2 else ("r", _WORD)
    results = ",".join(f"${index}" for index in range(count))
    results = f"{{{results}}}" if count > 1 else results
    bits = {1: "u8", 2: "b16"}.get(size, "b32")
    text = f"ld.{space}{_vector(count)}.{bits} {results}, [${count}+{offset}];"
    constraints = [f"={'' if present is None else '&'}{letter}"] * count
    constraints += ["r" if space.startswith("shared") else "l"] + ["r"] * (present is not None) + ["~{memory}"]
    if present is not None:
        zeros = " ".join(f"mov.b{16 if size == 2 else 32} ${index}, 0;" for index in range(count))
        text = f"{{ .reg .pred p; setp.ne.s32 p, ${count + 1}, 0; {zeros} @p {text} }}"
    given = [address] if present is None else [address, present]
    result = kind if count == 1 else ir.LiteralStructType([kind] * count)
    function = ir.InlineAsm(ir.FunctionType(result, [each.type for each in given]), text, ",".join(constraints), True)
    loaded = builder.call(function, given)
    return [loaded] if count == 1 else [builder.extract_value(loaded, index) for index in range(count)]


def _store_words(
    builder: Any, space: str, address: Any, offset: int, words: list[Any], evict_last: bool = False
) -> None:
    pointer = "r" if space.startswith("shared") else "l"
    count = len(words)
    bits = words[0].type.width
    if bits == 8:  # registers have 16 bits at least
        words = [builder.zext(words[0], _HALF)]
    operands = ",".join(f"${index + 1}" for index in range(count))
    values = f"{{{operands}}}" if count > 1 else operands
    text = f"{_vector(count)}.b{bits} [$0+{offset}], {values}"
    if evict_last:
        policy = "{ .reg .b64 policy; createpolicy.fractional.L2::evict_last.b64 policy, 1.0;"
        text = f"{policy} st.{space}.L2::cache_hint{text}, policy; }}"
    else:
        text = f"st.{space}{text};"
    constraints = ",".join([pointer] + ["h" if bits < 32 else "r"] * count + ["~{memory}"])
    kind = ir.FunctionType(ir.VoidType(), [address.type] + [word.type for word in words])
    builder.call(ir.InlineAsm(kind, text, constraints, True), [address, *words])


def _vector(count: int) -> str:
    return "" if count == 1 else f".v{count}"


def _from_words(builder: Any, words: list[Any], dtype: str, width: int, result: Any = None) -> list[Any]:
    """The elements packed in `words`, widened to float32; float64 stays; bool is 0 or 1 of type `result`."""
    single, double = ir.FloatType(), ir.DoubleType()
    if dtype == "bool":
        places = [(words[n // 4], 8 * (n % 4)) for n in range(width)]
        held = [builder.and_(word, word.type(0xFF << shift)) for word, shift in places]
        return [builder.select(builder.icmp_unsigned("!=", each, each.type(0)), result(1), result(0)) for each in held]
    if dtype == "float32":
        return [builder.bitcast(word, single) for word in words]
    if dtype == "float64":
        long = ir.IntType(64)
        pairs = [
            builder.or_(builder.zext(low, long), builder.shl(builder.zext(high, long), long(32)))
            for low, high in zip(words[0::2], words[1::2], strict=True)
        ]
        return [builder.bitcast(pair, double) for pair in pairs]
    if width == 1:
        halves = [words[0]]
        if dtype == "bfloat16":
            return [builder.bitcast(builder.shl(builder.zext(words[0], _WORD), _WORD(16)), single)]
    elif dtype == "bfloat16":  # a bfloat16 is the upper half of a float32
        return [
            builder.bitcast(bits, single)
            for word in words
            for bits in (builder.shl(word, _WORD(16)), builder.and_(word, _WORD(0xFFFF0000)))
        ]
    else:
        halves = [builder.trunc(bits, _HALF) for word in words for bits in (word, builder.lshr(word, _WORD(16)))]
    widen = ir.InlineAsm(ir.FunctionType(single, [_HALF]), "cvt.f32.f16 $0, $1;", "=f,h", False)
    return [builder.call(widen, [each]) for each in halves]


def _to_words(builder: Any, elements: list[Any], dtype: str, native_bfloat16: bool) -> list[Any]:
    if dtype == "bool":
        return _to_bytes(builder, elements)
    if dtype == "float32":
        return [builder.bitcast(element, _WORD) for element in elements]
    if dtype == "float64":
        long = ir.IntType(64)
        pairs = [builder.bitcast(element, long) for element in elements]
        return [builder.trunc(part, _WORD) for pair in pairs for part in (pair, builder.lshr(pair, long(32)))]
    single = ir.FloatType()
    if dtype == "bfloat16" and not native_bfloat16:
        halves = [_round_to_bfloat16(builder, element) for element in elements]
    elif len(elements) == 1:
        name = "bf16" if dtype == "bfloat16" else "f16"
        text = f"cvt.rn.{name}.f32 $0, $1;"
        return [builder.call(ir.InlineAsm(ir.FunctionType(_HALF, [single]), text, "=h,f", False), elements)]
    elif dtype == "bfloat16":
        pack = ir.InlineAsm(ir.FunctionType(_WORD, [single, single]), "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", False)
        return [builder.call(pack, pair) for pair in zip(elements[0::2], elements[1::2], strict=True)]
    else:
        narrow = ir.InlineAsm(ir.FunctionType(_HALF, [single]), "cvt.rn.f16.f32 $0, $1;", "=h,f", False)
        halves = [builder.call(narrow, [element]) for element in elements]
    if len(halves) == 1:
        return halves
    return [
        builder.or_(builder.zext(low, _WORD), builder.shl(builder.zext(high, _WORD), _WORD(16)))
        for low, high in zip(halves[0::2], halves[1::2], strict=True)
    ]


def _to_bytes(builder: Any, elements: list[Any]) -> list[Any]:
    """1 for each element that is not 0, four to a word of 32 bits; fewer in a word of their own."""
    kind = ir.IntType(8 * min(4, len(elements)))
    words: list[Any] = []
    for n, element in enumerate(elements):
        bit = builder.zext(builder.fcmp_unordered("!=", element, element.type(0)), kind)
        shifted = builder.shl(bit, kind(8 * (n % 4)))
        words = [*words, shifted] if n % 4 == 0 else [*words[:-1], builder.or_(words[-1], shifted)]
    return words


def _round_to_bfloat16(builder: Any, element: Any) -> Any:
    """Round to nearest even with integer instructions, for devices without the conversion. NaN stays a (quiet) NaN."""
    bits = builder.bitcast(element, _WORD)
    odd = builder.and_(builder.lshr(bits, _WORD(16)), _WORD(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, _WORD(0x7FFF))), _WORD(16))
    nan = builder.fcmp_unordered("uno", element, element)
    return builder.trunc(builder.select(nan, _WORD(0x7FFF), rounded), _HALF)


store_word = _ptx(None, "int32 int32", "st.shared.b32 [$0], $1;")  # of shared memory
load_word = _ptx("int32", "int32", "ld.shared.b32 $0, [$1];")


@cache
def float_of_bits(compute: str) -> Callable[..., Any]:
    """A device function value(bits): reinterprets an integer kernel argument as float32 or float64."""
    double = compute == "float64"

    def value(builder: Any, bits: Any) -> Any:
        if double:
            return builder.bitcast(bits, ir.DoubleType())
        return builder.bitcast(builder.trunc(bits, _WORD), ir.FloatType())

    return _device_function(value, types.int64, result=types.float64 if double else types.float32)


# --- halves of words -------------------------------------------------------------------------------------------------

low_halves = _ptx("int32", "int32 int32", "prmt.b32 $0, $1, $2, 0x5410;", pure=True)  # of both, in order
high_halves = _ptx("int32", "int32 int32", "prmt.b32 $0, $1, $2, 0x7632;", pure=True)
low_and_high = _ptx("int32", "int32 int32", "prmt.b32 $0, $1, $2, 0x7610;", pure=True)
high_and_low = _ptx("int32", "int32 int32", "prmt.b32 $0, $1, $2, 0x5432;", pure=True)


@cache
def largest_halves(dtype: str) -> Callable[..., Any]:
    """f(word, word): the larger of both low halves, and of both high ones, as bfloat16 or float16."""
    return _ptx("int32", "int32 int32", f"max.{'bf16' if dtype == 'bfloat16' else 'f16'}x2 $0, $1, $2;", pure=True)


# total + value, unless the integers are equal
add_unless = _ptx(
    "float32",
    "float32 float32 int32 int32",
    "{ .reg .pred p; setp.ne.s32 p, $3, $4; mov.f32 $0, $1; @p add.f32 $0, $1, $2; }",
    pure=True,
)

# byte n of a word, n from 0 to 3, as a number from 0 to 255
byte = _ptx("int32", "int32 int32", "{ .reg .b32 s; add.s32 s, $2, 0x4440; prmt.b32 $0, $1, 0, s; }", pure=True)

# --- arithmetic ------------------------------------------------------------------------------------------------------
# The device's approximate exponential and reciprocal in float32: relative errors near 2^-22; subnormals become 0.

exp2_approximate = _ptx("float32", "float32", "ex2.approx.ftz.f32 $0, $1;", pure=True)
# 1 / sqrt(x), also for subnormal x
inverse_root_approximate = _ptx("float32", "float32", "rsqrt.approx.f32 $0, $1;", pure=True)
reciprocal_approximate = _ptx("float32", "float32", "rcp.approx.ftz.f32 $0, $1;", pure=True)

# In float64 the device has only a reciprocal with error 2^-20, of the upper half of x. The caller does Newton steps.
reciprocal_approximate_double = _ptx("float64", "float64", "rcp.approx.ftz.f64 $0, $1;", pure=True)

positive_part = _ptx("float32", "float32", "max.f32 $0, $1, 0f00000000;", pure=True)  # 0 for NaN

fused = _ptx("float64", "float64 float64 float64", "fma.rn.f64 $0, $1, $2, $3;", pure=True)

# value * 2^k without float64 instructions, given 1.5 * 2^52 + k; both numbers must be normal.
times_power_of_2 = _ptx(
    "float64",
    "float64 float64",
    "{ .reg .b32 l, h, k, z; mov.b64 {l, h}, $1; mov.b64 {k, z}, $2; shl.b32 k, k, 20; add.s32 h, h, k;"
    " mov.b64 $0, {l, h}; }",
    pure=True,
)

# Both are nonnegative. Numba divides in 64 bits: a subroutine, and a cold launch waits for its instructions.
quotient = _ptx("int32", "int32 int32", "div.u32 $0, $1, $2;", pure=True)

_DIVIDED = "{ .reg .b32 t; shl.b32 t, $1, 1; mul.hi.u32 t, t, %s; shr.u32 $0, t, %s; }"  # multiplier, shift


@cache
def quotient_by(divisor: int) -> Callable[..., Any]:
    """A device function quotient(value): value // divisor for 0 <= value < 2^31. It takes three instructions;
    `quotient` takes about fifteen, even for a constant divisor.
    """
    multiplier, shift = reciprocal(divisor)
    return _ptx("int32", "int32", _DIVIDED % (multiplier, shift), pure=True)


# base + row * stride. In plain code the compiler widens one factor outside the loop and multiplies in 64 bits.
row_address = _ptx("int64", "int64 int32 int32", "mad.wide.s32 $0, $2, $3, $1;", pure=True)
row_address_long = _ptx("int64", "int64 int64 int64", "mad.lo.s64 $0, $2, $3, $1;", pure=True)

# value // divisor for 0 <= value < 2^31, with the two numbers of columns.reciprocal(divisor): as fast as a division by
# a compile-time constant, for many divisions by one number that is only known at the launch.
divided = _ptx("int32", "int32 int32 int32", _DIVIDED % ("$2", "$3"), pure=True)


@cache
def at_most(native: bool) -> Callable[..., Any]:
    """f(value, bound): the minimum; NaN if `value` is NaN. native: one instruction, from compute capability 8.0 on."""
    text = "{ .reg .pred p; setp.gt.f32 p, $1, $2; selp.f32 $0, $2, $1, p; }"
    return _ptx("float32", "float32 float32", "min.NaN.f32 $0, $1, $2;" if native else text, pure=True)


# --- the block: barriers, shuffles -----------------------------------------------------------------------------------

named_barrier = _ptx(None, "int32 int32", "bar.sync $0, $1;")  # (number 1..15, threads)


@cache
def barrier_number(number: int) -> Callable[[int], None]:
    """wait(threads): the barrier with this constant number. Code with `named_barrier` reserves all 16 barriers."""
    return _ptx(None, "int32", f"bar.sync {number}, $0;")


warp_barrier = _ptx(None, "", "bar.warp.sync 0xffffffff;")
# Between a launch and one that overlaps it (launch.Launch): this one lets it begin, and it waits for all that this one
# writes. Compute capability 9.0 and newer; no-ops in other launches.
begin_next_launch = _ptx(None, "", "griddepcontrol.launch_dependents;")
wait_for_launch_before = _ptx(None, "", "griddepcontrol.wait;")


def _shuffles(mode: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Of float32 and of float64."""
    text = f"shfl.sync.{mode}.b32 {{}}, {{}}, $2, 0x1f, 0xffffffff;"
    halves = f"{text.format('l', 'l')} {text.format('h', 'h')}"
    double = f"{{ .reg .b32 l, h; mov.b64 {{l, h}}, $1; {halves} mov.b64 $0, {{l, h}}; }}"
    return _ptx("float32", "float32 int32", text.format("$0", "$1")), _ptx("float64", "float64 int32", double)


shuffle_xor, shuffle_xor_double = _shuffles("bfly")
shuffle_down, shuffle_down_double = _shuffles("down")

# The lanes of the warp with this value, as bits; how many of such are this one's predecessors, and how many there are.
matching = _ptx("int32", "int32", "match.any.sync.b32 $0, $1, 0xffffffff;")
lanes_before = _ptx(
    "int32", "int32", "{ .reg .b32 m; mov.u32 m, %lanemask_lt; and.b32 m, m, $1; popc.b32 $0, m; }", pure=True
)
set_bits = _ptx("int32", "int32", "popc.b32 $0, $1;", pure=True)

# The value itself, opaque to the compiler: a loop whose counter passes through it is not unrolled. For loops outside
# the hot path: a cold launch waits for its instructions to come from memory.
opaque = _ptx("int32", "int32", "mov.b32 $0, $1;")

# --- asynchronous copies into shared memory --------------------------------------------------------------------------
# A transaction barrier (mbarrier) counts arrivals and bytes. `wait` returns when the phase of the given parity is over.

transaction_barrier_init = _ptx(None, "int32 int32", "mbarrier.init.shared::cta.b64 [$0], $1;")
# makes initialised barriers visible to the copy engine and to the cluster
transaction_barrier_fence = _ptx(None, "", "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;")
arrive_and_expect = _ptx(None, "int32 int32", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;")
_WAIT = "{ .reg .pred p; again: mbarrier.try_wait.parity%s.shared::cta.b64 p, [$0], $1; @p bra done; bra again; done: }"
wait = _ptx(None, "int32 int32", _WAIT % "")
wait_cluster = _ptx(None, "int32 int32", _WAIT % ".acquire.cluster")  # the same for writes by another block
# (shared destination, global source, bytes, barrier); the first three are multiples of 16
bulk_copy = _ptx(
    None,
    "int32 int64 int32 int32",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
)


@cache
def async_copy(size: int) -> Callable[..., Any]:
    """copy(shared destination, global source) of 4, 8 or 16 bytes by one thread, from compute capability 8.0."""
    cached = "cg" if size == 16 else "ca"
    return _ptx(None, "int32 int64", f"cp.async.{cached}.shared.global [$0], [$1], {size};")


@cache
def copy_or_zeros(size: int) -> Callable[..., Any]:
    """The same, copy(shared destination, global source, bytes), of `bytes` bytes followed by zeros. Copies of 16 have
    the L2 cache fetch 128 bytes from memory: neighbouring bytes are often read soon, by another block.
    """
    cached = "cg.shared.global.L2::128B" if size == 16 else "ca.shared.global"
    return _ptx(None, "int32 int64 int32", f"cp.async.{cached} [$0], [$1], {size}, $2;")


commit_copies = _ptx(None, "", "cp.async.commit_group;")


@cache
def wait_for_copies(newest: int) -> Callable[..., Any]:
    """wait(): until all but the `newest` committed groups of this thread's copies have arrived."""
    return _ptx(None, "", f"cp.async.wait_group {newest};")


# --- clusters --------------------------------------------------------------------------------------------------------

cluster_barrier = _ptx(None, "", "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")
# the same in two halves: a block can work between them
cluster_arrive = _ptx(None, "", "barrier.cluster.arrive.release.aligned;")
# without order of memory but that of the fences before it
cluster_arrive_relaxed = _ptx(None, "", "barrier.cluster.arrive.relaxed.aligned;")
cluster_wait = _ptx(None, "", "barrier.cluster.wait.acquire.aligned;")
cluster_rank = _ptx("int32", "", "mov.u32 $0, %cluster_ctarank;", pure=True)  # of this block
peer_address = _ptx("int32", "int32 int32", "mapa.shared::cluster.u32 $0, $1, $2;", pure=True)
# (peer's address, two values, peer's transaction barrier): counts as 8 bytes there, or as 16
_SEND_PAIR = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.%s [$0], {$1,$2}, [$3];"
send_pair = _ptx(None, "int32 float32 float32 int32", _SEND_PAIR % "f32")
send_pair_double = _ptx(None, "int32 float64 float64 int32", _SEND_PAIR % "f64")

# --- the grid --------------------------------------------------------------------------------------------------------

# adds to the counter and returns its previous value; a release of this thread's earlier writes
grid_arrive = _ptx(
    "int32", "int64 int64", "{ .reg .b32 a; cvt.u32.u64 a, $2; atom.add.acq_rel.gpu.global.u32 $0, [$1], a; }"
)
# waits until the counter's top bit differs from the given value's
grid_wait = _ptx(
    None,
    "int64 int32",
    "{ .reg .pred p; .reg .b32 v; again: ld.acquire.gpu.global.u32 v, [$0]; xor.b32 v, v, $1;"
    " setp.ge.s32 p, v, 0; @p bra again; }",
)
report = _ptx(None, "int64", "red.relaxed.gpu.global.add.u32 [$0], 1;")  # adds one
take = _ptx("int32", "int64", "atom.relaxed.gpu.global.add.u32 $0, [$1], 1;")  # adds one; returns the old value
look = _ptx("int32", "int64", "ld.relaxed.gpu.global.u32 $0, [$1];")
clear = _ptx(None, "int64", "st.relaxed.gpu.global.u32 [$0], 0;")
memory_fence = _ptx(None, "", "fence.acq_rel.gpu;")

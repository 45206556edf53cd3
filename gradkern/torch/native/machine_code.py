"""The function that PyTorch calls for an operator, compiled to machine code.

PyTorch hands over a stack of words, one for each argument, and takes the results from its first places. A tensor is a
handle that the function owns: it deletes it, or hands it on. An optional argument is 0 or the address of a word that
the function frees; a list or a string is a handle, too.

Nothing here allocates or raises, and all that it knows of Python is that signals may wait. What is not recognised, or
cannot be computed after all, is handed on whole to an operator that Python implements, and what is PyTorch's to one
that calls its kernel: see kernel.py.

Words are int64 throughout, as mixed signs are float64 to Numba.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from gradkern.cpu.compile import INLINE, emitted, instruction, ir, target
from gradkern.torch.native import words as w

FUNCTIONS = 128
"""Operators that one process can register: each has a function of its own that knows its block."""

_TRIES = 4096
"""To lock a mutex, for some 50 us: no longer, as who has it may be Python's thread and wait for the GIL of this one."""

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@emitted(types.int64(types.int64, types.int64))
def load(builder: Any, address: Any, index: Any) -> Any:
    """The word at this place."""
    return builder.load(_place(builder, address, index))


@emitted(types.int64(types.int64, types.int64))
def acquire(builder: Any, address: Any, index: Any) -> Any:
    """The word at this place, and whatever was written before it."""
    return builder.load_atomic(_place(builder, address, index), "seq_cst", 8)


@emitted(types.void(*(types.int64,) * 3))
def store(builder: Any, address: Any, index: Any, word: Any) -> None:
    builder.store(word, _place(builder, address, index))


@emitted(types.void(*(types.int64,) * 3))
def add(builder: Any, address: Any, index: Any, word: Any) -> None:
    """Add to the word at this place."""
    builder.atomic_rmw("add", _place(builder, address, index), word, "seq_cst")


@emitted(types.int64(types.int64, types.int64))
def shifted(builder: Any, word: Any, bits: Any) -> Any:
    """The word shifted to the right, with zeros from the left."""
    return builder.lshr(word, bits)


def _caller(returned: Any) -> Any:
    """A function that calls the C function at an address with words, and returns the word that this returns."""

    @instruction
    def called(typing: Any, function: Any, *given: Any) -> Any:
        count = len(given[0]) if len(given) == 1 and isinstance(given[0], types.BaseTuple) else len(given)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(returned, [_I64] * count)
            values = [builder.extract_value(arguments[1], index) for index in range(count)]
            answer = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), values)
            return answer if returned is _I64 else builder.sext(answer, _I64)

        return types.int64(types.int64, types.StarArgTuple((types.int64,) * count)), generate

    return called


call, call_for_pointer = _caller(_I32), _caller(_I64)


@emitted(types.int64(types.int64, types.int64))
def call_with(builder: Any, function: Any, arguments: Any) -> Any:
    """Call the C function at this address with the words there: it takes no notice of those behind its own."""
    kind = ir.FunctionType(_I32, [_I64] * w.MOST_C_ARGUMENTS)
    values = [builder.load(_place(builder, arguments, _I64(index))) for index in range(w.MOST_C_ARGUMENTS)]
    return builder.sext(builder.call(builder.inttoptr(function, kind.as_pointer()), values), _I64)


def memory(size: int) -> Any:
    """A function: the address of so many words on the stack of the function that calls it."""

    @emitted(types.int64())
    def made(builder: Any) -> Any:
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(_I64, size))
            place.align = 16
        return builder.ptrtoint(place, _I64)

    return made


def _place(builder: Any, address: Any, index: Any) -> Any:
    return builder.inttoptr(builder.add(address, builder.mul(index, _I64(8))), _I64.as_pointer())


four_words, queue_words = memory(4), memory(256)
argument_words, output_words, key_words = memory(w.MOST_ARGUMENTS), memory(w.MOST_OUTPUTS), memory(w.MOST_KEY)
handle_words = memory(w.MOST_ARGUMENTS + w.MOST_OUTPUTS)
c_words = memory(w.MOST_C_ARGUMENTS)
list_words = memory(w.MOST_C_ARGUMENTS // 2 * (w.MOST_NUMBERS + 1))
address_words, pointer_words, config_words = memory(w.MOST_ADDRESSES), memory(128), memory(8)

_PART: Any = {**INLINE, "forceinline": False}


@numba.njit(**_PART)
def _is_defined(shim: int, handle: int) -> bool:
    """Autograd gives an optional tensor that is not there as one that is undefined."""
    got = four_words()
    store(got, 0, 0)
    return call(load(shim, w.IS_DEFINED), handle, got) == 0 and load(got, 0) & 255 != 0


@numba.njit(**_PART)
def _describe(shim: int, handle: int, key: int, at: int, addresses: int, place: int) -> int:
    """Write a tensor's type, device, shape, strides and alignment, from `at` on; where its description ends, or -1 for
    one without the memory of its elements. Without elements it needs none, as what cuDNN's batch norm may put aside.
    """
    if not _is_defined(shim, handle):
        return -1
    got = four_words()
    store(got, 0, 0)
    store(got, 1, 0)
    store(got, 2, 0)
    if call(load(shim, w.GET_DTYPE), handle, got) or call(load(shim, w.GET_DEVICE_TYPE), handle, got + 4):
        return -1
    if call(load(shim, w.GET_DEVICE_INDEX), handle, got + 8) or call(load(shim, w.GET_DIM), handle, got + 24):
        return -1
    dim = load(got, 3)
    if at + 2 * dim + 3 > w.MOST_KEY:
        return -1
    store(key, at, load(got, 0))
    store(key, at + 1, load(got, 1))
    if call(load(shim, w.GET_SIZES), handle, got) or call(load(shim, w.GET_STRIDES), handle, got + 8):
        return -1
    if call(load(shim, w.GET_DATA_PTR), handle, got + 16):
        return -1
    sizes, strides, address = load(got, 0), load(got, 1), load(got, 2)
    if address == 0 and (call(load(shim, w.GET_NUMEL), handle, got) or load(got, 0)):
        return -1
    store(addresses, place, address)
    aligned = (address | 16) & -(address | 16)
    store(key, at + 2, dim * 32 + aligned)
    for axis in range(dim):
        store(key, at + 3 + axis, load(sizes, axis))
        store(key, at + 3 + dim + axis, load(strides, axis))
    return at + 3 + 2 * dim


@numba.njit(**_PART)
def _describe_list(shim: int, handle: int, key: int, at: int) -> int:
    got = four_words()
    if call(load(shim, w.LIST_SIZE), handle, got):
        return -1
    size = load(got, 0)
    if at + size + 1 > w.MOST_KEY:
        return -1
    store(key, at, size)
    for index in range(size):
        store(got, 0, 0)
        if call(load(shim, w.LIST_GET_ITEM), handle, index, got):
            return -1
        store(key, at + 1 + index, load(got, 0))
    return at + 1 + size


@numba.njit(**_PART)
def _describe_string(shim: int, handle: int, key: int, at: int) -> int:
    """Of at most 7 bytes: C's zero behind them is read, too."""
    got = four_words()
    if call(load(shim, w.STRING_LENGTH), handle, got) or call(load(shim, w.STRING_TEXT), handle, got + 8):
        return -1
    length = load(got, 0)
    if length > 7:
        return -1
    store(key, at, load(load(got, 1), 0) & ((1 << 8 * length) - 1))  # a string has room for 15 bytes at least
    return at + 1


@numba.njit(**_PART)
def _flags(shim: int) -> int:
    """PyTorch's flags that a search depends on, as one word; a policy of gradkern's is Python's: -1."""
    if acquire(shim, w.POLICIES):
        return -1
    context = load(shim, w.CONTEXT)
    word = call(load(shim, w.DETERMINISTIC), context) & 255
    word |= (call(load(shim, w.DETERMINISTIC_CUDNN), context) & 255) << 8
    return word | (call(load(shim, w.CUDNN), context) & 255) << 16


@numba.njit(**_PART)
def _key(stack: int, block: int, key: int, addresses: int) -> int:
    """Write the key of a call, and its tensors' addresses. Returns the key's words; 0 where it has none."""
    shim = load(block, w.BLOCK_SHIM)
    at = 0
    for place in range(load(block, w.BLOCK_INPUTS)):
        kind, word = load(block, w.BLOCK_ARGUMENTS + place), load(stack, place)
        if at + 2 > w.MOST_KEY:
            return 0
        if kind & 1:  # optional
            there = word != 0 and (kind != 1 or _is_defined(shim, load(word, 0)))
            store(key, at, 1 if there else 0)
            at += 1
            if not there:
                continue
            word = load(word, 0)
            kind -= 1
        if kind == 0:
            at = _describe(shim, word, key, at, addresses, place)
        elif kind == 2:
            store(key, at, word)
            at += 1
        elif kind == 4:
            at = _describe_list(shim, word, key, at)
        else:
            at = _describe_string(shim, word, key, at)
        if at < 0:
            return 0
    if load(block, w.BLOCK_FLAGS):
        flags = _flags(shim)
        if flags < 0 or at + 1 > w.MOST_KEY:
            return 0
        store(key, at, flags)
        at += 1
    return at


@numba.njit(**_PART)
def _hash(key: int, size: int) -> int:
    value = 0
    for index in range(size):
        value = (value ^ load(key, index)) * -7046029254386353131  # 0x9E3779B97F4A7C15
        value ^= shifted(value, 32)
    return value


@numba.njit(**_PART)
def _find(block: int, key: int, size: int) -> int:
    """The address of the record of calls with this key, or 0."""
    table = acquire(block, w.BLOCK_TABLE)
    if table == 0:
        return 0
    mask, value = load(table, 0), _hash(key, size)
    at = value & mask
    while True:
        record = load(table, 1 + at)
        if record == 0:
            return 0
        if load(record, w.RECORD_HASH) == value and load(record, w.RECORD_KEY_SIZE) == size:
            same = True
            for index in range(size):
                same = same and load(record, w.RECORD_KEY + index) == load(key, index)
            if same:
                return record
        at = (at + 1) & mask


@numba.njit(**_PART)
def _release(shim: int, kind: int, word: int) -> None:
    """Let go of an argument."""
    if kind & 1:
        if word == 0:
            return
        inner = load(word, 0)
        call(load(shim, w.FREE), word)
        word = inner
        kind -= 1
    if kind == 0:
        call(load(shim, w.DELETE_TENSOR), word)
    elif kind == 4:
        call(load(shim, w.DELETE_LIST), word)
    elif kind == 6:
        call(load(shim, w.DELETE_STRING), word)


@numba.njit(**_PART)
def _release_all(shim: int, stack: int, block: int) -> None:
    """Let go of a call's arguments."""
    for place in range(load(block, w.BLOCK_INPUTS)):
        _release(shim, load(block, w.BLOCK_ARGUMENTS + place), load(stack, place))


@numba.njit(**_PART)
def _patch(launch: int, into: int, addresses: int) -> None:
    """Copy the launch's template, with the addresses of this call."""
    template, patches = load(launch, w.LAUNCH_TEMPLATE), load(launch, w.LAUNCH_PATCHES)
    for index in range(load(launch, w.LAUNCH_COUNT)):
        store(into, index, load(template, index))
    for index in range(load(launch, w.LAUNCH_PATCH_COUNT)):
        patch = patches + 24 * index
        store(into, load(patch, 0), load(addresses, load(patch, 1)) + load(patch, 2))


@numba.njit(**_PART)
def _on_cpu(launch: int, addresses: int) -> int:
    """Run a kernel of the CPU provider in this thread: a queue holds its arguments (cpu/jobs.py)."""
    queue = queue_words()
    store(addresses, w.ITSELF, queue)
    _patch(launch, queue, addresses)
    call(load(launch, w.LAUNCH_FUNCTION), queue)
    return load(queue, 6)  # whether it failed


@numba.njit(**_PART)
def _on_gpu(shim: int, launch: int, addresses: int, stream: int) -> int:
    """cuLaunchKernelEx with a parameter block and a configuration of this call's own."""
    values, pointers, config = queue_words(), pointer_words(), config_words()
    _patch(launch, values, addresses)
    for index in range(load(launch, w.LAUNCH_COUNT)):
        store(pointers, index, values + 8 * index)
    template = load(launch, w.LAUNCH_CONFIG)
    for index in range(7):
        store(config, index, load(template, index))
    store(config, 4, stream)
    return call(load(shim, w.LAUNCH_KERNEL), config, load(launch, w.LAUNCH_FUNCTION), pointers, 0)


@numba.njit(**_PART)
def _pack(cudnn: int, plan: int, pack: int, values: int, count: int) -> int:
    """Fill a pack of addresses for a plan of cuDNN's; 0, or why it has not been done."""
    put, kind = load(cudnn, w.CUDNN_SET), load(plan, w.PLAN_POINTER_TYPE)
    numbers = plan + 8 * w.PLAN_NUMBERS
    failed = call(put, pack, load(plan, w.PLAN_IDS), load(plan, w.PLAN_ID_TYPE), count, numbers)
    if failed == 0:
        failed = call(put, pack, load(plan, w.PLAN_POINTERS), kind, count, values)
    if failed == 0:
        failed = call(put, pack, load(plan, w.PLAN_WORKSPACE), kind, 1, values + 8 * count)
    if failed == 0:
        failed = call(load(cudnn, w.CUDNN_FINALIZE), pack)
    return failed


@numba.njit(**_PART)
def _by_cudnn(shim: int, launch: int, addresses: int, stream: int) -> int:
    """Execute a plan of cuDNN's with a pack of addresses of this call's own. cuDNN needs its device to be current."""
    cudnn, plan = load(launch, w.LAUNCH_CUDNN), load(launch, w.LAUNCH_CONFIG)
    values, got = queue_words(), four_words()
    store(got, 0, 0)
    store(got, 1, 0)
    if call(load(shim, w.CURRENT_DEVICE), got) or load(got, 0) != load(cudnn, w.CUDNN_DEVICE):
        return -1
    _patch(launch, values, addresses)
    if call(load(cudnn, w.CUDNN_CREATE), load(plan, w.PLAN_KIND), got + 8):
        return -1
    pack = load(got, 1)
    failed = _pack(cudnn, plan, pack, values, load(launch, w.LAUNCH_COUNT) - 1)
    if failed == 0:
        handle, mutex = load(cudnn, w.CUDNN_HANDLE), cudnn + 8 * w.CUDNN_MUTEX
        failed, tries = 1, 0
        while failed and tries < _TRIES:
            failed = call(load(cudnn, w.CUDNN_TRY_LOCK), mutex)
            tries += 1
        if failed == 0:
            failed = call(load(cudnn, w.CUDNN_SET_STREAM), handle, stream)
            if failed == 0:
                failed = call(load(cudnn, w.CUDNN_EXECUTE), handle, load(launch, w.LAUNCH_FUNCTION), pack)
            call(load(cudnn, w.CUDNN_UNLOCK), mutex)
    call(load(cudnn, w.CUDNN_DESTROY), pack)
    return failed


@numba.njit(**_PART)
def _scratch(block: int, record: int, stream: int, addresses: int) -> int:
    """Write the addresses of the stream's scratch memory; 0 where there is none of this size."""
    streams = acquire(block, w.BLOCK_STREAMS)
    if streams == 0:
        return 0
    for index in range(load(streams, 0)):
        each = streams + 8 + 8 * w.STREAM_SIZE * index
        if (
            load(each, w.STREAM_HANDLE) == stream
            and load(each, w.STREAM_DEVICE) == load(record, w.RECORD_DEVICE)
            and load(each, w.STREAM_BYTES) >= load(record, w.RECORD_SCRATCH)
        ):
            store(addresses, w.COUNTER, load(each, w.STREAM_COUNTER))
            store(addresses, w.BUFFER, load(each, w.STREAM_BUFFER))
            return 1
    return 0


@numba.njit(**_PART)
def _stream(block: int, record: int, addresses: int) -> int:
    """The current stream; -1 while it is captured, or where it has not the scratch memory that the record needs."""
    shim, got = load(block, w.BLOCK_SHIM), four_words()
    store(got, 0, 0)
    store(got, 1, 0)
    if call(load(shim, w.CURRENT_STREAM), load(record, w.RECORD_DEVICE), got):
        return -1
    stream = load(got, 0)
    if stream == 2:  # the default stream of each thread: Python knows whose it is
        return -1
    if stream > 1 and (call(load(shim, w.IS_CAPTURING), stream, got + 8) or load(got, 1) & 0xFFFFFFFF):
        return -1
    if load(record, w.RECORD_SCRATCH) >= 0 and not _scratch(block, record, stream, addresses):
        return -1
    return stream


@numba.njit(**_PART)
def _allocate(shim: int, record: int, addresses: int, made: int, results: int) -> int:
    """Make the outputs; how many could be made. results: the handles of those that are there, 0 where none is."""
    outputs = load(record, w.RECORD_OUTPUTS)
    for index in range(load(record, w.RECORD_OUTPUT_COUNT)):
        each = outputs + 8 * w.OUTPUT_SIZE * index
        if results != 0 and load(each, w.OUTPUT_RESULT) >= 0:
            store(made, index, 0)
            handle = load(results, load(each, w.OUTPUT_RESULT))
            if call(load(shim, w.GET_DATA_PTR), handle, addresses + 8 * (w.MOST_ARGUMENTS + index)):
                return index
            continue
        failed = call(
            load(shim, w.EMPTY_STRIDED),
            load(each, w.OUTPUT_DIM),
            load(each, w.OUTPUT_SIZES),
            load(each, w.OUTPUT_STRIDES),
            load(each, w.OUTPUT_DTYPE),
            load(each, w.OUTPUT_DEVICE_TYPE),
            load(each, w.OUTPUT_DEVICE),
            made + 8 * index,
        )
        if failed:
            return index
        if call(load(shim, w.GET_DATA_PTR), load(made, index), addresses + 8 * (w.MOST_ARGUMENTS + index)):
            return index + 1
    return load(record, w.RECORD_OUTPUT_COUNT)


@numba.njit(**_PART)
def _compute(block: int, record: int, addresses: int) -> bool:
    shim, launches = load(block, w.BLOCK_SHIM), load(record, w.RECORD_LAUNCHES)
    stream = 0
    if load(record, w.RECORD_ON_GPU):
        stream = _stream(block, record, addresses)
        if stream < 0:
            return False
    for index in range(load(record, w.RECORD_LAUNCH_COUNT)):
        launch = launches + 8 * w.LAUNCH_SIZE * index
        if load(launch, w.LAUNCH_CUDNN):
            if _by_cudnn(shim, launch, addresses, stream):
                return False
        elif load(record, w.RECORD_ON_GPU):
            if _on_gpu(shim, launch, addresses, stream):
                return False
        elif _on_cpu(launch, addresses):
            return False
    return True


@numba.njit(**_PART)
def _delete(shim: int, made: int, count: int) -> None:
    """Delete the outputs that a call has made."""
    for index in range(count):
        if load(made, index) != 0:
            call(load(shim, w.DELETE_TENSOR), load(made, index))


@numba.njit(**_PART)
def _answered(stack: int, block: int, record: int, addresses: int) -> bool:
    """Compute a call by its record, and put the results on the stack; False where nothing has changed there."""
    shim, made = load(block, w.BLOCK_SHIM), output_words()
    count = _allocate(shim, record, addresses, made, 0)
    if count < load(record, w.RECORD_OUTPUT_COUNT) or not _compute(block, record, addresses):
        _delete(shim, made, count)
        return False
    _release_all(shim, stack, block)
    for place in range(load(block, w.BLOCK_RESULTS)):
        store(stack, place, 0)
    for index in range(count):
        place = load(load(record, w.RECORD_OUTPUTS) + 8 * w.OUTPUT_SIZE * index, w.OUTPUT_RESULT)
        if place < 0:
            call(load(shim, w.DELETE_TENSOR), load(made, index))
        else:
            store(stack, place, load(made, index))
    for place in range(load(block, w.BLOCK_RESULTS)):
        if load(stack, place) == 0:
            call(load(shim, w.NEW_UNDEFINED), stack + 8 * place)
    add(record, w.RECORD_COUNT, 1)
    return True


@numba.njit(**_PART)
def _is_small(stack: int, block: int) -> bool:
    """Whether the tensor that is measured has fewer bytes than any that is answered."""
    least = load(block, w.BLOCK_LEAST)
    if least == 0:
        return False
    shim, got, tensor = load(block, w.BLOCK_SHIM), four_words(), load(stack, load(block, w.BLOCK_MEASURED))
    store(got, 1, 0)
    if call(load(shim, w.GET_NUMEL), tensor, got) or call(load(shim, w.GET_DTYPE), tensor, got + 8):
        return False
    return load(got, 0) * call(load(shim, w.ELEMENT_SIZE), load(got, 1)) < least


@numba.njit(**_PART)
def _may_raise(block: int) -> bool:
    """Whether PyTorch's kernel may raise as it is not deterministic, and Python is to answer in its place."""
    shim = load(block, w.BLOCK_SHIM)
    return load(block, w.BLOCK_MAY_RAISE) != 0 and call(load(shim, w.DETERMINISTIC), load(shim, w.CONTEXT)) & 255 != 0


@numba.njit(**_PART)
def _left(stack: int, block: int) -> int:
    """Answer a call by its record. Returns the name of the operator that it is handed on to; 0 where it is answered."""
    by_python, original, way = load(block, w.BLOCK_NAME), load(block, w.BLOCK_ORIGINAL), load(block, w.BLOCK_WAY)
    if way != w.BY_RECORDS:
        return original if way == w.BY_PYTORCH else by_python
    if _is_small(stack, block):
        if _may_raise(block):
            return by_python
        add(block, w.BLOCK_SMALL, 1)
        return original
    key, addresses = key_words(), address_words()
    size = _key(stack, block, key, addresses)
    if size == 0:
        return by_python
    add(block, w.BLOCK_ACTIVE, 1)
    record, left = _find(block, key, size), by_python
    if record != 0 and load(record, w.RECORD_BYTES) >= load(block, w.BLOCK_LEAST):
        if load(record, w.RECORD_LEFT) == 0:
            if _answered(stack, block, record, addresses):
                left = 0
        elif not _may_raise(block):
            add(record, w.RECORD_COUNT, 1)
            left = original
    add(block, w.BLOCK_ACTIVE, -1)
    return left


@numba.njit(**_PART)
def _copy_list(shim: int, handle: int, are_bools: int, into: int) -> int:
    """Copy a list's numbers, bools as int32 each; how many words they take, or -1."""
    got = four_words()
    if call(load(shim, w.LIST_SIZE), handle, got) or load(got, 0) > w.MOST_NUMBERS:
        return -1
    size = load(got, 0)
    for index in range(size):
        store(got, 1, 0)
        if call(load(shim, w.LIST_GET_ITEM), handle, index, got + 8):
            return -1
        word = load(got, 1)
        if are_bools == 0:
            store(into, index, word)
        elif index & 1:
            store(into, index >> 1, load(into, index >> 1) | word << 32)
        else:
            store(into, index >> 1, word)
    return size


@numba.njit(**_PART)
def _c_arguments(stack: int, block: int, arguments: int, lists: int) -> int:
    """Write a call's arguments as the C functions that Inductor's C++ calls take them: numbers, handles, the address of
    an optional handle or 0, and of a list its address and length, or the address of that address or 0. Returns how many
    there are, or -1.
    """
    shim, at, end = load(block, w.BLOCK_SHIM), 0, 0
    for place in range(load(block, w.BLOCK_INPUTS)):
        kind, word = load(block, w.BLOCK_ARGUMENTS + place), load(stack, place)
        store(arguments, at, word)
        at += 1
        if kind != 4 and kind != 5:
            continue
        store(arguments, at, 0)
        at += 1
        if kind == 5:
            if word == 0:
                continue
            word = load(word, 0)
        words = lists + 8 * (end + 1)
        size = _copy_list(shim, word, load(block, w.BLOCK_BOOLS) >> place & 1, words)
        if size < 0:
            return -1
        store(lists, end, words)
        store(arguments, at - 2, words if kind == 4 else lists + 8 * end)
        store(arguments, at - 1, size)
        end += size + 1
    return at


@numba.njit(**_PART)
def _by_c_function(stack: int, block: int) -> bool:
    """Let PyTorch's kernel answer, called as a C function; False where nothing has changed, as where it fails."""
    function, shim, results = load(block, w.BLOCK_FUNCTION), load(block, w.BLOCK_SHIM), load(block, w.BLOCK_RESULTS)
    if function == 0:
        return False
    arguments, made = c_words(), output_words()
    at = _c_arguments(stack, block, arguments, list_words())
    if at < 0:
        return False
    for place in range(results):
        store(made, place, 0)
        store(arguments, at + place, made + 8 * place)
    if call_with(function, arguments):
        return False
    _release_all(shim, stack, block)
    for place in range(results):
        if load(made, place) == 0:
            call(load(shim, w.NEW_UNDEFINED), made + 8 * place)
        store(stack, place, load(made, place))
    return True


@numba.njit(**_PART)
def _interrupted(shim: int) -> bool:
    """Whether the handler of a signal, run here, has raised. Python runs it as soon as one of its functions begins, and
    what it raised there, before a line of that function, PyTorch's C functions would lose.
    """
    if call(load(shim, w.PROCESS)) != call(load(shim, w.THREAD)):  # handlers run in the main thread
        return False
    state = call(load(shim, w.TAKE_GIL))
    raised = call(load(shim, w.HANDLE_SIGNALS)) != 0
    if raised:
        found = load(shim, w.RAISED)
        call(load(shim, w.FETCH), found, found + 8, found + 16)
    call(load(shim, w.LEAVE_GIL), state)
    return raised


@numba.njit(**_PART)
def answer(stack: int, block: int) -> None:
    name = _left(stack, block)
    if name == 0 or (name == load(block, w.BLOCK_ORIGINAL) and _by_c_function(stack, block)):
        return
    shim, given = load(block, w.BLOCK_SHIM), argument_words()
    if _interrupted(shim):
        _release_all(shim, stack, block)
        call(load(shim, w.RAISE), load(block, w.BLOCK_RAISER))  # does not return
    count = load(block, w.BLOCK_RESULTS)
    for place in range(load(block, w.BLOCK_INPUTS)):
        store(given, place, load(stack, place))
    failed = call(
        load(shim, w.CALL_DISPATCHER),
        name,
        load(block, w.BLOCK_OVERLOAD),
        given,
        load(block, w.BLOCK_VERSION),
    )
    if failed == 0:
        raised = argument_words()
        store(raised, 0, 0)
        call(load(shim, w.IS_DEFINED), load(given, count), raised)
        call(load(shim, w.DELETE_TENSOR), load(given, count))
        if load(raised, 0) & 255 == 0:
            for place in range(count):
                store(stack, place, load(given, place))
            return
        for place in range(count):  # what Python has put there in place of results
            call(load(shim, w.DELETE_TENSOR), load(given, place))
        call(load(shim, w.RAISE), load(block, w.BLOCK_RAISER))  # does not return
    message = load(block, w.BLOCK_MESSAGE)
    call(load(shim, w.CHECK), 0, message, message, 0, message)  # does not return


# --- calls of places in compiled code, as Python makes them -----------------------------------------------------------

_OF_BYTES = bytes.__basicsize__ - 1
"""Where an object of bytes has them."""


@numba.njit(**_PART)
def _filled(site: int, arguments: int) -> bool:
    """Answer a call by its record, which fills the results that it has been given."""
    block, inputs, handles = load(site, w.SITE_BLOCK), load(site, w.SITE_INPUTS), handle_words()
    store(handles, 0, load(site, w.SITE_NUMBER))
    for index in range(inputs + load(site, w.SITE_RESULTS)):
        store(handles, index + 1, load(arguments, index) + load(site, w.SITE_HANDLE))
    shim, key, addresses, made = load(block, w.BLOCK_SHIM), key_words(), address_words(), output_words()
    size = _key(handles, block, key, addresses)
    if size == 0:
        return False
    add(block, w.BLOCK_ACTIVE, 1)
    record, filled = _find(block, key, size), False
    if record != 0 and load(record, w.RECORD_BYTES) >= 0:
        state = call_for_pointer(load(shim, w.SAVE_THREAD))  # others may run Python while a launch waits
        count = _allocate(shim, record, addresses, made, handles + 8 * (inputs + 1))
        filled = count == load(record, w.RECORD_OUTPUT_COUNT) and _compute(block, record, addresses)
        _delete(shim, made, count)
        call(load(shim, w.RESTORE_THREAD), state)
        if filled:
            add(record, w.RECORD_COUNT, 1)
    add(block, w.BLOCK_ACTIVE, -1)
    return filled


@numba.njit(**_PART)
def fill(itself: int, arguments: int, count: int) -> int:
    """A function of CPython's with positional arguments, the inputs and memory for the results. Returns the results.
    What it is bound to are bytes, the words of the place.
    """
    site = itself + _OF_BYTES
    inputs, results = load(site, w.SITE_INPUTS), load(site, w.SITE_RESULTS)
    shim = load(load(site, w.SITE_BLOCK), w.BLOCK_SHIM)
    if count != inputs + results or not _filled(site, arguments):
        return call_for_pointer(load(shim, w.CALL_PYTHON), load(site, w.SITE_PYTHON), arguments, count, 0)
    found = load(arguments, inputs) if results == 1 else call_for_pointer(load(shim, w.NEW_TUPLE), results)
    for index in range(results if found else 0):
        call(load(shim, w.NEW_REFERENCE), load(arguments, inputs + index))
        if results > 1:
            call(load(shim, w.SET_ITEM), found, index, load(arguments, inputs + index))
    return found


def compiled() -> bytes:
    """The object file: `gradkern_native_N` for every N below FUNCTIONS, `gradkern_blocks`, their blocks' addresses, and
    `gradkern_fill`. It calls nothing by name.
    """
    import llvmlite.binding as llvm  # pyright: ignore[reportMissingTypeStubs]

    names: list[str] = []
    module: Any = None
    for function, count in ((answer, 2), (fill, 3)):
        signature = (types.int64,) * count
        function.compile(signature)
        found: Any = function.overloads[signature]
        names.append(found.fndesc.llvm_func_name)
        part = llvm.parse_assembly(found.library.get_llvm_str())
        if module is None:
            module = part
        else:
            module.link_in(part)
    module.link_in(llvm.parse_assembly(_functions(names[0], names[1], module.triple)))
    for name in names:
        module.get_function(name).linkage = "internal"
    triple, cpu, features = target()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )
    return machine.emit_object(module)


def _functions(answer: str, fill: str, triple: str) -> str:
    """LLVM's text of the functions that PyTorch and Python call, by the names of those above."""
    text = [f'target triple = "{triple}"', f"@gradkern_blocks = global [{FUNCTIONS} x i64] zeroinitializer"]
    text.append(f"declare i32 @{answer}(ptr, ptr, i64, i64)")
    text.append(f"""declare i32 @{fill}(ptr, ptr, i64, i64, i64)
define i64 @gradkern_fill(i64 %itself, i64 %arguments, i64 %count) uwtable {{
  %returned = alloca i64
  %raised = alloca i64
  %status = call i32 @{fill}(ptr %returned, ptr %raised, i64 %itself, i64 %arguments, i64 %count)
  %results = load i64, ptr %returned
  ret i64 %results
}}""")
    text += [
        f"""define void @gradkern_native_{number}(i64 %stack, i64 %inputs, i64 %outputs) uwtable {{
  %returned = alloca i64
  %raised = alloca i64
  %place = getelementptr [{FUNCTIONS} x i64], ptr @gradkern_blocks, i64 0, i64 {number}
  %block = load i64, ptr %place
  %status = call i32 @{answer}(ptr %returned, ptr %raised, i64 %stack, i64 %block)
  ret void
}}"""
        for number in range(FUNCTIONS)
    ]
    return "\n".join(text)

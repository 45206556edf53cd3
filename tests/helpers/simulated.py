"""Python versions of gradkern.cuda.device_code.intrinsics for the CUDA simulator: one coroutine per CUDA thread, memory
by real addresses. `install` has kernels use them.

Numba's simulator lacks shared memory by address, barriers of part of a block, warps, clusters and concurrent blocks,
and its threads are operating-system threads, that cost more than their computation. `launch` runs all blocks of a grid
concurrently. A CUDA thread runs until it waits for others or signals them; the next thread is drawn at random with a
fixed seed. This tests a kernel's own synchronisation: a missing barrier shows as a wrong result, and an extra barrier
or a wrong parity as a deadlock, reported at once as an error.

Makers of intrinsics are cached: device functions that call equal ones are alike, and are folded once.
"""

from __future__ import annotations

import contextvars
import ctypes
import random
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import FunctionType, ModuleType
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numba.cuda
import numpy as np
from greenlet import getcurrent, greenlet
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDALocal

from gradkern.cuda.device_code.alike import once_for_alike
from gradkern.cuda.front_end.folding import folded


class _Thread:
    """One CUDA thread."""

    def __init__(self, block: _Block, number: int) -> None:
        self.block, self.thread_id = block, number
        self.blockIdx, self.threadIdx = Dim3(block.number, 0, 0), Dim3(number, 0, 0)
        self.warp = block.warps[number // 32]
        self.waits_for = ""


class _Launch:
    """State of a launch, shared by its threads. There is one launch at a time."""

    def __init__(self, grid: int, threads: int) -> None:
        self.gridDim, self.blockDim = Dim3(grid, 1, 1), Dim3(threads, 1, 1)
        self.ready: list[tuple[_Thread, greenlet]] = []
        self.running: Any = None
        self.random = random.Random(threads).random
        self.at_counters = _Waiting("a counter in global memory")
        self.caller = getcurrent()

    def draw(self) -> greenlet | None:
        """The next thread to run, of those that are ready; None if none is."""
        ready = self.ready
        if not ready:
            return None
        drawn = int(self.random() * len(ready))
        ready[drawn], ready[-1] = ready[-1], ready[drawn]
        self.running, coroutine = ready.pop()
        return coroutine

    def let_go_on(self) -> None:
        """Switch to another thread directly. Switching through the caller would double the number of switches, most of
        the simulator's time. Only the caller starts threads, so that calls do not nest deeper.
        """
        coroutine = self.draw()
        if coroutine:  # true for threads that have started
            coroutine.switch()
        else:
            self.caller.switch(coroutine)


_launch: Any = None


class _Waiting:
    """Threads that wait for the same event."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.threads: list[tuple[_Thread, greenlet]] = []

    def join(self) -> None:
        """Suspend this thread until another wakes it."""
        thread = _launch.running
        thread.waits_for = self.what
        self.threads.append((thread, getcurrent()))
        _launch.let_go_on()

    def wake(self) -> None:
        _launch.ready += self.threads
        self.threads.clear()


class _Barrier:
    """A reusable barrier of `threads` threads."""

    def __init__(self, threads: int, what: str) -> None:
        self.threads, self.waiting = threads, _Waiting(what)

    def wait(self) -> None:
        if len(self.waiting.threads) + 1 == self.threads:
            self.waiting.wake()
        else:
            self.waiting.join()


class _Warp(_Barrier):
    """The barrier of a warp, and the values that its lanes exchange."""

    def __init__(self, threads: int) -> None:
        _Barrier.__init__(self, threads, "the warp")
        self.given: dict[int, Any] = {}


def _let_others_run() -> None:
    _launch.ready.append((_launch.running, getcurrent()))
    _launch.let_go_on()


_BEYOND = 128  # guard bytes after a block's shared memory


class _Block:
    """State shared by the threads of one block."""

    def __init__(self, number: int, cluster: list[_Block], cluster_barrier: _Barrier, size: int, threads: int) -> None:
        self.number, self.cluster, self.cluster_barrier = number, cluster, cluster_barrier
        self.memory = np.full(size + 128 + _BEYOND, 0xFF, np.uint8)  # 0xFFFF is a NaN in every type
        self.base = -(-self.memory.ctypes.data // 128) * 128
        self.beyond = self.memory[self.base + size - self.memory.ctypes.data :][:_BEYOND]
        self.end = self.memory.ctypes.data + self.memory.size
        self.transactions: dict[int, list[int]] = {}  # address -> [expected arrivals, pending, bytes, phase]
        self.at_transactions: dict[int, _Waiting] = {}
        self.barrier = _Barrier(threads, "the block's barrier")
        self.teams: dict[int, _Barrier] = {}
        self.warps = [_Warp(min(32, threads - first)) for first in range(0, threads, 32)]
        self.arrays = _Shared()

    def check(self) -> None:
        """Raise if the guard bytes behind the block's shared memory were written."""
        written = np.flatnonzero(self.beyond != 0xFF)
        if written.size:
            raise RuntimeError(f"block {self.number} wrote byte {written[0]} after its shared memory")

    def update(self, barrier: int, arrivals: int, size: int) -> None:
        place = barrier - self.base
        state = self.transactions[place]
        state[1] -= arrivals
        state[2] += size
        if state[1] == 0 and state[2] == 0:
            state[1], state[3] = state[0], state[3] ^ 1
            self.at_transactions[place].wake()


class _Shared:
    """The shared arrays of a block, each for one call in the kernel. Numba's takes all calls of a line for one."""

    def __init__(self) -> None:
        self._arrays: dict[Any, Any] = {}

    def array(self, shape: Any, dtype: Any) -> Any:
        caller = sys._getframe(1)
        place = caller.f_code, caller.f_lasti
        if place not in self._arrays:
            self._arrays[place] = _Cuda.local.array(shape, dtype)
        return self._arrays[place]


class _Cuda:
    """Replaces `numba.cuda` in kernels: the parts that they use."""

    local = FakeCUDALocal()
    threadIdx = property(lambda _: _launch.running.threadIdx)
    blockIdx = property(lambda _: _launch.running.blockIdx)
    blockDim = property(lambda _: _launch.blockDim)
    gridDim = property(lambda _: _launch.gridDim)
    shared = property(lambda _: _launch.running.block.arrays)

    def syncthreads(self) -> None:
        _launch.running.block.barrier.wait()


_types: Any = numba.cuda.types
_IN_PYTHON: dict[int, Any] = {  # by identity, as Numba's types call NumPy's
    id(numba.cuda): _Cuda(),
    **{id(getattr(_types, each)): getattr(np, each) for each in ("int32", "int64", "float32", "float64")},
}


_MOST = 2048  # functions kept: those of the configs of several tests


def _in_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel or a device function for Python, with the same constant folding as when it is compiled."""
    made: Any = folded(function)
    names = {name: _IN_PYTHON.get(id(value), value) for name, value in made.__globals__.items()}
    if made is function:
        return FunctionType(made.__code__, names, made.__name__, made.__defaults__, made.__closure__)
    made.__globals__.update(names)
    return made


in_python = once_for_alike(_in_python, _MOST)


def install() -> None:
    """Replace the intrinsics and the decorator of device functions, in a process that has not imported a kernel."""
    name = "gradkern.cuda.device_code"
    function = ModuleType(f"{name}.function")
    function.device_function = in_python  # type: ignore[attr-defined]
    for kind, module in (("intrinsics", sys.modules[__name__]), ("function", function)):
        assert f"{name}.{kind}" not in sys.modules
        sys.modules[f"{name}.{kind}"] = module


def _thread() -> _Thread:
    return _launch.running


def _block() -> _Block:
    return _launch.running.block


def _array(address: int, dtype: str, count: int) -> np.ndarray:
    kind = np.dtype(dtype)
    buffer = (ctypes.c_char * (count * kind.itemsize)).from_address(int(address))
    return np.frombuffer(buffer, kind, count)


def shared_memory() -> np.int64:
    return np.int64(_block().base)


@cache
def loader(space: str, dtype: str, width: int) -> Callable[..., None]:
    wide = "float64" if dtype == "float64" else "float32"

    def load(values: Any, address: int) -> None:
        if int(address) % min(16, width * np.dtype(dtype).itemsize):
            raise ValueError(f"misaligned load of {width} {dtype} at {address}")
        values[:width] = _array(address, dtype, width).astype(wide)

    return load


@cache
def word_loader(space: str, size: int) -> Callable[..., None]:
    def load(words: Any, first: int, address: int) -> None:
        if int(address) % size:
            raise ValueError(f"misaligned load of {size} bytes at {address}")
        raw = bytes(_array(address, "uint8", size)).ljust(4, b"\0")
        words[first : first + len(raw) // 4] = np.frombuffer(raw, np.int32)

    return load


@cache
def masked_word_loader(space: str, size: int) -> Callable[..., None]:
    load = word_loader(space, size)

    def load_present(words: Any, first: int, address: int, present: bool) -> None:
        if present:
            load(words, first, address)
        else:
            words[first : first + max(1, size // 4)] = 0

    return load_present


@cache
def word_storer(space: str, size: int) -> Callable[..., None]:
    def store(address: int, words: Any) -> None:
        if int(address) % size:
            raise ValueError(f"misaligned store of {size} bytes at {address}")
        held = np.array([words[index] for index in range(max(1, size // 4))], np.int32)
        _array(address, "uint8", size)[:] = held.view(np.uint8)[:size]

    return store


@cache
def unpacker(dtype: str, width: int) -> Callable[..., None]:
    wide = "float64" if dtype == "float64" else "float32"
    size = width * np.dtype(dtype).itemsize

    def unpack(values: Any, words: Any, first: int) -> None:
        raw = np.array([words[first + index] for index in range(-(-size // 4))], np.int32).tobytes()[:size]
        values[:width] = np.frombuffer(raw, dtype).astype(wide)

    return unpack


@cache
def storer(
    space: str, dtype: str, width: int, native_bfloat16: bool = True, evict_last: bool = False
) -> Callable[..., None]:
    def store(address: int, values: Any) -> None:
        if int(address) % min(16, width * np.dtype(dtype).itemsize):
            raise ValueError(f"misaligned store of {width} {dtype} at {address}")
        _array(address, dtype, width)[:] = values[:width]

    return store


@cache
def rounder(dtype: str, width: int, native_bfloat16: bool = True) -> Callable[..., None]:
    def round_(values: Any) -> None:
        for index in range(width):
            values[index] = np.array(values[index]).astype(dtype).astype(values[index].dtype)

    return round_


@cache
def gatherer(space: str, dtype: str, offsets: tuple[int, ...]) -> Callable[..., None]:
    load = loader(space, dtype, 1)

    def gather(values: Any, address: int) -> None:
        one = [0]
        for index, offset in enumerate(offsets):
            load(one, address + offset)
            values[index] = one[0]

    return gather


@cache
def gatherer_from(dtype: str, places: tuple[tuple[int, int], ...], width: int = 1) -> Callable[..., None]:
    load = loader("shared", dtype, width)

    def gather(values: Any, addresses: Any) -> None:
        for index, (which, offset) in enumerate(places):
            load(values[width * index :], int(addresses[which]) + offset)

    return gather


@cache
def scatterer(
    space: str, dtype: str, offsets: tuple[int, ...], native_bfloat16: bool = True, width: int = 1
) -> Callable[..., None]:
    store = storer(space, dtype, width)

    def scatter(address: int, values: Any) -> None:
        for index, offset in enumerate(offsets):
            store(address + offset, values[width * index :])

    return scatter


@cache
def clipped_scatterer(
    dtype: str,
    sizes: tuple[int, int],
    steps: tuple[int, int],
    limits: tuple[int, int],
    native_bfloat16: bool = True,
    width: int = 1,
) -> Callable[..., None]:
    store = storer("global", dtype, width)

    def scatter(address: int, values: Any, row: int, column: int) -> None:
        for y in range(sizes[0]):
            for x in range(sizes[1]):
                if 0 <= row + y < limits[0] and 0 <= column + x < limits[1]:
                    store(address + y * steps[0] + x * steps[1], values[width * (y * sizes[1] + x) :])

    return scatter


@cache
def multiply_adds(table: tuple[tuple[int, int, int], ...]) -> Callable[..., None]:
    def add(sums: Any, left: Any, right: Any) -> None:
        for total, one, other in table:
            sums[total] += left[one] * right[other]

    return add


@cache
def scaled_adds(table: tuple[tuple[int, int, float], ...]) -> Callable[..., None]:
    def add(sums: Any, values: Any) -> None:
        for total, value, factor in table:
            sums[total] += values[value] * sums.dtype.type(factor)

    return add


@cache
def adds_where_equal(table: tuple[tuple[int, int, int, int], ...], compute: str) -> Callable[..., None]:
    def add(sums: Any, values: Any, keys: Any, wanted: Any) -> None:
        for total, value, key, other in table:
            if keys[key] == wanted[other]:
                sums[total] += values[value]

    return add


@cache
def keep_largest(table: tuple[tuple[int, int, int], ...]) -> Callable[..., None]:
    def keep(largest: Any, places: Any, values: Any, base: int) -> None:
        for at, value, offset in table:
            if largest[at] == largest[at] and not values[value] <= largest[at]:
                largest[at], places[at] = values[value], base + offset

    return keep


def byte(word: int, number: int) -> np.int32:
    return np.int32(int(word) >> (8 * int(number)) & 255)


@cache
def matrix_product(dtype: str) -> Callable[..., None]:
    kind = np.dtype(dtype)

    def multiply(sums: Any, first: int, left: Any, right: Any) -> None:
        words = left[:4].tobytes() + right[:2].tobytes()
        sums[first : first + 4] += _for_all_lanes(words, products)[_thread().thread_id % 32]

    def products(shares: list[bytes]) -> np.ndarray:
        """Each lane's results, (32, 4), from the operands of all lanes, six words of two numbers each."""
        A = np.frombuffer(b"".join(shares), kind).astype(np.float32).reshape(8, 4, 6, 2)
        right = A[:, :, 4:].reshape(8, 16)
        of_rows = [(A[:, :, rows].reshape(8, 1, 16) * right).sum(2) for rows in ([0, 2], [1, 3])]
        return np.stack([of_rows[n // 2][:, n % 2 :: 2] for n in range(4)], 2).reshape(32, 4)

    return multiply


def load_matrices(words: Any, address: int) -> None:
    words[:4] = _for_all_lanes(int(address), _matrices)[:, _thread().thread_id % 32]


def load_turned(words: Any, address: int) -> None:
    words[:4] = _for_all_lanes(int(address), _turned_matrices)[:, _thread().thread_id % 32]


def _matrices(addresses: list[int]) -> np.ndarray:
    """Of four matrices, whose rows are at these addresses, the word of each lane."""
    if any(each % 16 for each in addresses):
        raise ValueError("rows of matrices are not at multiples of 16 bytes")
    return np.frombuffer(b"".join(ctypes.string_at(each, 16) for each in addresses), np.int32).reshape(4, 32)


def _turned_matrices(addresses: list[int]) -> np.ndarray:
    halves = _matrices(addresses).view(np.uint16).reshape(4, 4, 2, 8)  # matrix, lane of four, row of two, column
    return np.ascontiguousarray(halves.transpose(0, 3, 1, 2)).view(np.int32).reshape(4, 32)


def _for_all_lanes(value: Any, compute: Callable[[list[Any]], Any]) -> Any:
    """What follows from the values of all lanes; the first that arrives computes it."""
    of_lanes = _exchanged(value)
    if 32 not in of_lanes:
        of_lanes[32] = compute([of_lanes[each] for each in range(32)])
    return of_lanes[32]


def _word(low: int, high: int) -> np.int32:
    """Of the low 16 bits of each."""
    word = int(low) & 0xFFFF | (int(high) & 0xFFFF) << 16
    return np.int32(word - (word >> 31 << 32))


def low_halves(first: int, second: int) -> np.int32:
    return _word(first, second)


def high_halves(first: int, second: int) -> np.int32:
    return _word(first >> 16, second >> 16)


def low_and_high(first: int, second: int) -> np.int32:
    return _word(first, second >> 16)


def high_and_low(first: int, second: int) -> np.int32:
    return _word(first >> 16, second)


@cache
def largest_halves(dtype: str) -> Callable[..., np.int32]:
    def largest(first: int, second: int) -> np.int32:
        one, other = (np.array([each], np.int32).view(dtype).astype(np.float32) for each in (first, second))
        return np.fmax(one, other).astype(dtype).view(np.int32)[0]

    return largest


def add_unless(total: Any, value: Any, first: int, second: int) -> Any:
    return total + value if first != second else total


def store_word(address: int, word: int) -> None:
    _array(address, "int32", 1)[0] = word


def load_word(address: int) -> np.int32:
    return _array(address, "int32", 1)[0]


def exp2_approximate(value: Any) -> np.float32:
    return _flushed(np.exp2(np.float32(value)))


def reciprocal_approximate(value: Any) -> np.float32:
    return _flushed(np.float32(1) / np.float32(value))


def reciprocal_approximate_double(value: Any) -> np.float64:
    return np.float64(np.float32(1 / np.float64(value)))


def positive_part(value: Any) -> np.float32:
    return np.fmax(np.float32(value), np.float32(0))


def fused(first: Any, second: Any, third: Any) -> np.float64:
    """Rounded once, if the product and the sum fit the bits of a long double."""
    return np.float64(np.longdouble(first) * np.longdouble(second) + np.longdouble(third))


def times_power_of_2(value: Any, shifted: Any) -> np.float64:
    power = np.float64(shifted) - 1.5 * 2**52
    return np.float64(value) if np.isnan(power) else np.ldexp(np.float64(value), int(power))


def _flushed(value: np.float32) -> np.float32:
    return value * np.float32(0) if abs(value) < np.finfo(np.float32).tiny else value


@cache
def at_most(native: bool) -> Callable[..., Any]:
    return lambda value, bound: bound if value > bound else value


def named_barrier(number: int, threads: int) -> None:
    teams, number = _block().teams, int(number)
    if number not in teams:
        teams[number] = _Barrier(int(threads), f"barrier {number}")
    teams[number].wait()


@cache
def barrier_number(number: int) -> Callable[[int], None]:
    return partial(named_barrier, number)


def begin_next_launch() -> None: ...


def wait_for_launch_before() -> None: ...


def warp_barrier() -> None:
    _launch.running.warp.wait()


def _exchanged(value: Any) -> dict[int, Any]:
    """The values of all lanes of the warp, by lane. Every exchange has its own dictionary: one barrier is enough."""
    thread = _launch.running
    warp = thread.warp
    if len(warp.given) >= warp.threads:  # the dictionary of the previous exchange
        warp.given = {}
    given = warp.given
    given[thread.thread_id % 32] = value
    warp.wait()
    return given


def shuffle_xor(value: Any, lanes: int) -> Any:
    lane = _launch.running.thread_id % 32
    return _exchanged(value)[lane ^ int(lanes)]


shuffle_xor_double = shuffle_xor


def shuffle_down(value: Any, lanes: int) -> Any:
    """The last lanes keep their own value."""
    lane = _launch.running.thread_id % 32
    return _exchanged(value)[lane + int(lanes) if lane + int(lanes) < 32 else lane]


shuffle_down_double = shuffle_down


def matching(value: int) -> int:
    return sum(1 << lane for lane, other in _exchanged(int(value)).items() if other == int(value))


def lanes_before(lanes: int) -> np.int32:
    return set_bits(int(lanes) & ((1 << _launch.running.thread_id % 32) - 1))


def set_bits(value: int) -> np.int32:
    return np.int32(int(value).bit_count())


def inverse_root_approximate(value: Any) -> Any:
    return np.float32(1) / np.sqrt(np.float32(value))


def quotient(value: int, divisor: int) -> int:
    return value // divisor


def row_address(base: int, row: int, stride: int) -> int:
    return np.int64(base) + np.int64(row) * np.int64(stride)


row_address_long = row_address


@cache
def quotient_by(divisor: int) -> Callable[..., int]:
    return lambda value: value // divisor


def divided(value: int, multiplier: int, shift: int) -> int:
    assert 0 <= value < 1 << 31
    return np.int32((2 * int(value) * (int(multiplier) & 0xFFFFFFFF) >> 32) >> int(shift))


@cache
def float_of_bits(compute: str) -> Callable[..., Any]:
    integer = np.int64 if compute == "float64" else np.int32
    return lambda bits: np.asarray(bits).astype(integer).view(compute)[()]


def opaque(value: int) -> int:
    return value


def transaction_barrier_init(barrier: int, arrivals: int) -> None:
    block = _block()
    place = barrier - block.base
    block.transactions[place] = [int(arrivals), int(arrivals), 0, 0]
    block.at_transactions[place] = _Waiting(f"the transaction barrier at {place}")


def transaction_barrier_fence() -> None:
    pass


def arrive_and_expect(barrier: int, size: int) -> None:
    _block().update(barrier, 1, int(size))
    _let_others_run()


def wait(barrier: int, parity: int) -> None:
    block = _block()
    place = barrier - block.base
    state = block.transactions[place]
    while state[3] == int(parity):
        block.at_transactions[place].join()


wait_cluster = wait


def bulk_copy(target: int, source: int, size: int, barrier: int) -> None:
    if int(target) % 16 or int(source) % 16 or int(size) % 16:
        raise ValueError(f"bulk copy of {size} bytes from {source} to {target}: not multiples of 16")
    ctypes.memmove(int(target), int(source), int(size))
    _block().update(barrier, 0, -int(size))


@cache
def async_copy(size: int) -> Callable[..., None]:
    return lambda target, source: copy_or_zeros(size)(target, source, size)


@cache
def copy_or_zeros(size: int) -> Callable[..., None]:
    def copy(target: int, source: int, given: int) -> None:
        if int(target) % size or (given and int(source) % size):
            raise ValueError(f"asynchronous copy of {size} bytes from {source} to {target}: misaligned")
        ctypes.memset(int(target), 0, size)
        ctypes.memmove(int(target), int(source), int(given))

    return copy


def commit_copies() -> None:
    pass


@cache
def wait_for_copies(newest: int) -> Callable[[], None]:
    return lambda: None


def cluster_barrier() -> None:
    _block().cluster_barrier.wait()


def cluster_arrive() -> None:
    pass


cluster_arrive_relaxed = cluster_arrive
cluster_wait = cluster_barrier


def cluster_rank() -> int:
    block = _block()
    return block.cluster.index(block)


def peer_address(address: int, rank: int) -> int:
    block = _block()
    return int(address) - block.base + block.cluster[int(rank)].base


def send_pair(target: int, first: Any, second: Any, barrier: int) -> None:
    _send(target, (first, second), "float32", barrier)


def send_pair_double(target: int, first: Any, second: Any, barrier: int) -> None:
    _send(target, (first, second), "float64", barrier)


def _send(target: int, values: tuple[Any, Any], dtype: str, barrier: int) -> None:
    pair = _array(target, dtype, 2)
    pair[:] = values
    owner = next(each for each in _block().cluster if each.base <= barrier < each.end)
    owner.update(int(barrier), 0, -pair.nbytes)


def grid_arrive(counter: int, amount: int) -> int:
    cell = _array(counter, "uint32", 1)
    before = int(cell[0])
    cell[0] = (before + int(amount)) & 0xFFFFFFFF
    _launch.at_counters.wake()
    _let_others_run()
    return before


def grid_wait(counter: int, before: int) -> None:
    cell = _array(counter, "uint32", 1)
    while not (int(cell[0]) ^ int(before)) & 0x80000000:
        _launch.at_counters.join()


def report(counter: int) -> None:
    grid_arrive(counter, 1)


def take(counter: int) -> int:
    return grid_arrive(counter, 1)


def look(counter: int) -> int:
    _let_others_run()
    return int(_array(counter, "uint32", 1)[0])


def clear(counter: int) -> None:
    _array(counter, "uint32", 1)[0] = 0


def memory_fence() -> None:
    pass


def launch(
    kernel: Callable[..., None], grid: int, threads: int, cluster: int, shared_bytes: int, arguments: Sequence[Any]
) -> None:
    """Run all blocks of the grid concurrently; raise the first error of any thread."""
    global _launch
    run, _launch = partial(in_python(kernel), *arguments), _Launch(grid, threads)
    for first in range(0, grid, cluster):
        peers: list[_Block] = []
        together = _Barrier(cluster * threads, "the cluster")
        peers += [_Block(first + each, peers, together, shared_bytes, threads) for each in range(cluster)]
        for block in peers:
            _launch.ready += [(_Thread(block, number), greenlet(run)) for number in range(threads)]
    everyone = dict(_launch.ready)
    with np.errstate(all="ignore"):
        for coroutine in everyone.values():
            coroutine.gr_context = contextvars.copy_context()
        coroutine = _launch.draw()
        while coroutine is not None:
            try:
                handed = coroutine.switch()
                coroutine = _launch.draw() if handed is None else handed
            except Exception as error:
                thread = _launch.running
                error.add_note(f"in thread {thread.thread_id} of block {thread.block.number}")
                raise
    stuck = [thread for thread, coroutine in everyone.items() if not coroutine.dead]
    if stuck:
        waiting = "; ".join(sorted({f"block {each.block.number}: {each.waits_for}" for each in stuck}))
        raise RuntimeError(f"{len(stuck)} threads wait for ever: {waiting}")
    for block in {thread.block for thread in everyone}:
        block.check()

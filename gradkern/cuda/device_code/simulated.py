"""The plain forms of `intrinsics`, for the CUDA simulator: one Python thread per CUDA thread, memory by real addresses.

Numba's simulator knows neither shared memory by address nor barriers of part of a block, warps, clusters or blocks that
run at the same time. `launch` runs all blocks of a grid at once, so that a kernel's own synchronisation is what is
tested: a barrier too few shows as a wrong result, one too many, or a wrong parity, as a time-out.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import FakeCUDAModule, swapped_cuda_module

from gradkern.cuda.folding import folded

TIMEOUT = 60.0


class _Block:
    """What the threads of one block share."""

    def __init__(self, cluster: list[_Block], shared_bytes: int, threads: int) -> None:
        self.cluster = cluster
        self.memory = np.full(shared_bytes + 128, 0xFF, np.uint8)  # 0xFFFF is a NaN in every type
        self.base = -(-self.memory.ctypes.data // 128) * 128
        self.changed = threading.Condition()
        self.transactions: dict[int, list[int]] = {}  # address -> [expected arrivals, pending, bytes, phase]
        self.teams: dict[int, threading.Barrier] = {}
        self.warps = [threading.Barrier(min(32, threads - first)) for first in range(0, threads, 32)]
        self.exchange: dict[int, Any] = {}

    def update(self, barrier: int, arrivals: int, size: int) -> None:
        with self.changed:
            state = self.transactions[barrier - self.base]
            state[1] -= arrivals
            state[2] += size
            if state[1] == 0 and state[2] == 0:
                state[1], state[3] = state[0], state[3] ^ 1
                self.changed.notify_all()


def _thread() -> Any:
    return threading.current_thread()


def _block() -> _Block:
    return _thread()._manager.block


def _array(address: int, dtype: str, count: int) -> np.ndarray:
    kind = np.dtype(dtype)
    buffer = (ctypes.c_char * (count * kind.itemsize)).from_address(int(address))
    return np.frombuffer(buffer, kind, count)


def shared_memory() -> np.int64:
    return np.int64(_block().base)


def loader(dtype: str, width: int) -> Callable[..., None]:
    wide = "float64" if dtype == "float64" else "float32"

    def load(values: Any, address: int) -> None:
        if int(address) % min(16, width * np.dtype(dtype).itemsize):
            raise ValueError(f"misaligned load of {width} {dtype} at {address}")
        for index, element in enumerate(_array(address, dtype, width).astype(wide)):
            values[index] = element

    return load


def word_loader(size: int) -> Callable[..., None]:
    def load(words: Any, first: int, address: int) -> None:
        if int(address) % size:
            raise ValueError(f"misaligned load of {size} bytes at {address}")
        raw = bytes(_array(address, "uint8", size)).ljust(4, b"\0")
        for index, word in enumerate(np.frombuffer(raw, np.int32)):
            words[first + index] = word

    return load


def word_storer(size: int) -> Callable[..., None]:
    def store(address: int, words: Any) -> None:
        if int(address) % size:
            raise ValueError(f"misaligned store of {size} bytes at {address}")
        _array(address, "int32", size // 4)[:] = [words[index] for index in range(size // 4)]

    return store


def unpacker(dtype: str, width: int) -> Callable[..., None]:
    wide = "float64" if dtype == "float64" else "float32"
    size = width * np.dtype(dtype).itemsize

    def unpack(values: Any, words: Any, first: int) -> None:
        raw = np.array([words[first + index] for index in range(-(-size // 4))], np.int32).tobytes()[:size]
        for index, element in enumerate(np.frombuffer(raw, dtype).astype(wide)):
            values[index] = element

    return unpack


def storer(dtype: str, width: int) -> Callable[..., None]:
    def store(address: int, values: Any) -> None:
        if int(address) % min(16, width * np.dtype(dtype).itemsize):
            raise ValueError(f"misaligned store of {width} {dtype} at {address}")
        _array(address, dtype, width)[:] = [values[index] for index in range(width)]

    return store


def gatherer(dtype: str, offsets: tuple[int, ...]) -> Callable[..., None]:
    load = loader(dtype, 1)

    def gather(values: Any, address: int) -> None:
        one = [0]
        for index, offset in enumerate(offsets):
            load(one, address + offset)
            values[index] = one[0]

    return gather


def scatterer(dtype: str, offsets: tuple[int, ...]) -> Callable[..., None]:
    store = storer(dtype, 1)

    def scatter(address: int, values: Any) -> None:
        for index, offset in enumerate(offsets):
            store(address + offset, [values[index]])

    return scatter


def clipped_scatterer(
    dtype: str, sizes: tuple[int, int], steps: tuple[int, int], limits: tuple[int, int]
) -> Callable[..., None]:
    store = storer(dtype, 1)

    def scatter(address: int, values: Any, row: int, column: int) -> None:
        for y in range(sizes[0]):
            for x in range(sizes[1]):
                if 0 <= row + y < limits[0] and 0 <= column + x < limits[1]:
                    store(address + y * steps[0] + x * steps[1], [values[y * sizes[1] + x]])

    return scatter


def multiply_adds(table: tuple[tuple[int, int, int], ...]) -> Callable[..., None]:
    def add(sums: Any, left: Any, right: Any) -> None:
        for total, one, other in table:
            sums[total] += left[one] * right[other]

    return add


def matrix_product(dtype: str) -> Callable[..., None]:
    kind = np.dtype(dtype)

    def multiply(sums: Any, first: int, left: Any, right: Any) -> None:
        block, thread = _block(), _thread().thread_id
        words = np.array([*(left[n] for n in range(4)), *(right[n] for n in range(2))], np.int32)
        block.exchange[thread] = words.view(kind).astype(np.float32).reshape(6, 2)
        warp_barrier()
        shares = np.stack([block.exchange[thread // 32 * 32 + lane] for lane in range(32)]).reshape(8, 4, 6, 2)
        warp_barrier()
        g, q = divmod(thread % 32, 4)
        for n in range(4):
            row = shares[g][:, [1, 3] if n >= 2 else [0, 2]]
            sums[first + n] += np.float32((row * shares[2 * q + n % 2][:, 4:]).sum())

    return multiply


def _halves(first: int, second: int, device: list[int]) -> np.int32:
    return np.array([first, second], np.int32).view(np.uint16)[device].copy().view(np.int32)[0]


def low_halves(first: int, second: int) -> np.int32:
    return _halves(first, second, [0, 2])


def high_halves(first: int, second: int) -> np.int32:
    return _halves(first, second, [1, 3])


def high_and_low(first: int, second: int) -> np.int32:
    return _halves(first, second, [1, 2])


def store_word(address: int, word: int) -> None:
    _array(address, "int32", 1)[0] = word


def load_word(address: int) -> np.int32:
    return _array(address, "int32", 1)[0]


def exp2_approximate(value: Any) -> np.float32:
    return _flushed(np.exp2(np.float32(value)))


def reciprocal_approximate(value: Any) -> np.float32:
    return _flushed(np.float32(1) / np.float32(value))


def _flushed(value: np.float32) -> np.float32:
    return value * np.float32(0) if abs(value) < np.finfo(np.float32).tiny else value


def at_most(value: Any, bound: Any) -> Any:
    return bound if value > bound else value


def named_barrier(number: int, threads: int) -> None:
    block = _block()
    with block.changed:
        barrier = block.teams.setdefault(int(number), threading.Barrier(int(threads)))
    barrier.wait(TIMEOUT)


def warp_barrier() -> None:
    _block().warps[_thread().thread_id // 32].wait(TIMEOUT)


def shuffle_xor(value: Any, lanes: int) -> Any:
    block, thread = _block(), _thread().thread_id
    block.exchange[thread] = value
    warp_barrier()
    other = block.exchange[thread ^ int(lanes)]
    warp_barrier()
    return other


shuffle_xor_double = shuffle_xor


def inverse_root_approximate(value: Any) -> Any:
    return np.float32(1) / np.sqrt(np.float32(value))


def quotient(value: int, divisor: int) -> int:
    return value // divisor


def unseen(value: int) -> int:
    return value


def transaction_barrier_init(barrier: int, arrivals: int) -> None:
    block = _block()
    block.transactions[barrier - block.base] = [int(arrivals), int(arrivals), 0, 0]


def transaction_barrier_fence() -> None:
    pass


def arrive_and_expect(barrier: int, size: int) -> None:
    _block().update(barrier, 1, int(size))


def wait(barrier: int, parity: int) -> None:
    block = _block()
    with block.changed:
        state = block.transactions[barrier - block.base]
        if not block.changed.wait_for(lambda: state[3] != int(parity), TIMEOUT):
            raise TimeoutError(f"transaction barrier at {barrier - block.base} stays in phase {state}")


wait_cluster = wait


def bulk_copy(target: int, source: int, size: int, barrier: int) -> None:
    if int(target) % 16 or int(source) % 16 or int(size) % 16:
        raise ValueError(f"bulk copy of {size} bytes from {source} to {target}: not multiples of 16")
    ctypes.memmove(int(target), int(source), int(size))
    _block().update(barrier, 0, -int(size))


def async_copy(size: int) -> Callable[..., None]:
    def copy(target: int, source: int) -> None:
        if int(target) % size or int(source) % size:
            raise ValueError(f"asynchronous copy of {size} bytes from {source} to {target}: misaligned")
        ctypes.memmove(int(target), int(source), size)

    return copy


def copy_or_zeros(target: int, source: int, size: int) -> None:
    ctypes.memset(int(target), 0, 16)
    if size:
        async_copy(16)(target, source)


def commit_copies() -> None:
    pass


def no_wait() -> None:
    pass


def cluster_barrier() -> None:
    _thread()._manager.cluster_barrier.wait(TIMEOUT)


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
    owner = next(each for each in _block().cluster if each.base <= barrier < each.base + each.memory.size)
    owner.update(int(barrier), 0, -pair.nbytes)


_grid = threading.Condition()


def grid_arrive(counter: int, amount: int) -> int:
    with _grid:
        cell = _array(counter, "uint32", 1)
        before = int(cell[0])
        cell[0] = (before + int(amount)) & 0xFFFFFFFF
        _grid.notify_all()
    return before


def grid_wait(counter: int, before: int) -> None:
    with _grid:
        cell = _array(counter, "uint32", 1)
        if not _grid.wait_for(lambda: (int(cell[0]) ^ int(before)) & 0x80000000, TIMEOUT):
            raise TimeoutError("the grid barrier was not reached by all blocks")


def report(counter: int) -> None:
    grid_arrive(counter, 1)


def take(counter: int) -> int:
    return grid_arrive(counter, 1)


def look(counter: int) -> int:
    return int(_array(counter, "uint32", 1)[0])


def clear(counter: int) -> None:
    _array(counter, "uint32", 1)[0] = 0


def memory_fence() -> None:
    pass


class _Thread(simulator.BlockThread):
    """A CUDA thread whose block barrier is a threading.Barrier: Numba's own polls every thread, all the time."""

    def syncthreads(self) -> None:
        self._manager.barrier.wait(TIMEOUT)


def launch(
    kernel: Callable[..., None], grid: int, threads: int, cluster: int, shared_bytes: int, arguments: tuple
) -> None:
    """Run all blocks of the grid at once, each thread as a Python thread; raise the first error of any."""
    kernel = folded(kernel)
    module = FakeCUDAModule((grid, 1, 1), (threads, 1, 1), 0)
    with simulator._push_kernel_context(module), swapped_cuda_module(kernel, module), np.errstate(all="ignore"):
        running: list[_Thread] = []
        for first in range(0, grid, cluster):
            peers: list[_Block] = []
            together = threading.Barrier(cluster * threads)
            for index in range(first, first + cluster):
                manager = simulator.BlockManager(kernel, (grid, 1, 1), (threads, 1, 1), False)
                manager.block = _Block(peers, shared_bytes, threads)
                manager.cluster_barrier, manager.barrier = together, threading.Barrier(threads)
                peers.append(manager.block)
                target = partial(kernel, *arguments)
                running += [_Thread(target, manager, (index, 0, 0), (each, 0, 0), False) for each in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    broken = threading.BrokenBarrierError
    failures = [thread.exception for thread in running if thread.exception]
    failures.sort(key=lambda failure: isinstance(failure[0], broken))  # what others waited for in vain comes last
    if failures:
        raise failures[0][0].with_traceback(failures[0][1])

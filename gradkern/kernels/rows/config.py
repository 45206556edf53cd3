"""How a kernel of the row block runs: the mapping of elements to threads, and the configs for a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.kernels.rows.problem import VECTOR, RowsProblem, RowsTypes

BARRIER = 8  # bytes of a transaction barrier

HELD_WORDS = 32  # of 4 bytes, of all inputs, that a thread keeps from the sums to the results
_MOST_BYTES = 64  # of one input: it computes with all at once
_MOST_THREADS = 384  # of a block: two blocks on a multiprocessor take turns to wait
_MOST_THREADS_OF_CLUSTERS = 512  # the same for rows that fit in no other config
_SMALL_BLOCK = 128  # threads of blocks that have several rows
_REGISTERS = 65536  # of a multiprocessor
_SHARED_MEMORY = 228 << 10  # of one of compute capability 9.0 or 10.0
_STAGED = (  # blocks of a cluster, at most so many vectors of a thread, threads of a block at least and at most
    (1, 6, 608, 672),  # 3 % faster than 8 vectors at 32000 classes, and these (on an H200)
    *((1, 8, 32, 832), (8, 8, 224, 256)),  # 3 to 5 % faster than 16 at 50257 and 128256
    *((cluster, 16, 32, 256) for cluster in (1, 2, 4, 8)),
    (8, 16, 32, 768),
)
_LEAST_STAGED = 2500  # vectors of a row


@dataclass(frozen=True, slots=True)
class RowsConfig:
    """The mapping of a row's elements to threads, the same for all rows.

    width     elements of a vector, read and written at once by a thread
    lanes     threads side by side along the contiguous axis, a row or `inner`: a power of two up to 32, or whole warps
    teams     without `inner`, rows of a block, each with its own lanes; with it, threads that share a row
    vectors   of a thread, from all inputs, all in flight at once
    cluster   blocks that share a row, from compute capability 9.0 on; with `inner` no more than teams
    held      the vectors stay on the chip from the sums to the results; else a row is read again for every pass
    staged    where they stay is shared memory, not registers: vectors of 16 bytes, read by the thread that copied them
    shifted   as in RowsProblem
    inner     there is `inner`
    blocks_per_processor  resident at once, a limit for the registers of a thread
    """

    width: int
    lanes: int
    teams: int
    vectors: int
    cluster: int = 1
    held: bool = True
    shifted: bool = False
    inner: bool = False
    blocks_per_processor: int = 1
    staged: bool = False

    @property
    def threads(self) -> int:
        return self.lanes * self.teams

    @property
    def name(self) -> str:
        """The shape, in a profiler and in a plan's name."""
        layout = "inner" if self.inner else "shifted" if self.shifted else "rows"
        again = "_staged" if self.staged else "" if self.held else "_again"
        return f"{layout}_{self.teams}x{self.lanes}x{self.vectors}x{self.width}_cluster{self.cluster}{again}"

    @property
    def slots(self) -> int:
        """Warps that have a part of a row: of a block, or without `inner` of a cluster."""
        if self.inner:
            return self.threads // max(32, self.lanes)
        return self.cluster * self.lanes // 32 if self.lanes > 32 or self.cluster > 1 else 1

    def cluster_bytes(self, types: RowsTypes) -> int:
        """What the blocks of a cluster send to each of them, for one reduction."""
        pair = 2 * ITEMSIZE[types.compute]
        return self.cluster * self.lanes * self.width * pair if self.inner else self.slots * pair

    def slot_bytes(self, types: RowsTypes) -> int:
        """Shared memory for the partial sums of a block's warps, for one reduction."""
        if not self.inner:
            return self.slots * 2 * ITEMSIZE[types.compute] if self.slots > 1 else 0
        values = (2 if types.pairs else 1) * self.slots * self.lanes * self.width
        return round_up(values * ITEMSIZE[types.compute], 16) if self.slots > 1 or self.cluster > 1 else 0

    def partial_bytes(self, types: RowsTypes) -> int:
        """The same with what the blocks of a cluster send; without `inner` these are the warps' own values."""
        if self.cluster == 1:
            return self.slot_bytes(types)
        return self.cluster_bytes(types) + (self.slot_bytes(types) if self.inner else 0)

    def partial_at(self, types: RowsTypes, number: int) -> int:
        """Where those of a reduction begin, behind the barriers of clusters."""
        return 2 * BARRIER + number * self.partial_bytes(types)

    def shared_bytes(self, types: RowsTypes) -> int:
        """Of a block."""
        return self.stage_at(types) + (self.threads * self.vectors * len(types.inputs) * VECTOR if self.staged else 0)

    def stage_at(self, types: RowsTypes) -> int:
        """Where the vectors begin that wait in shared memory."""
        return round_up(self.partial_at(types, types.reductions), VECTOR) if self.partial_bytes(types) else 0


def configs(problem: RowsProblem, capability: tuple[int, int]) -> Iterator[RowsConfig]:
    """The configs to try, best first; the first is right for every device of the capability."""
    yield from (_inner(problem, capability) if problem.inner else _neighbours(problem, capability))


def _most_vectors(problem: RowsProblem) -> int:
    """Of a thread, of each input."""
    widest = max(map(_itemsize, problem.types.inputs))
    words = HELD_WORDS
    if problem.inner and problem.types.compute == "float64":  # whose totals take as many registers
        words = HELD_WORDS * 3 // 4
    return max(1, min(words // _words(problem), _MOST_BYTES // (problem.width * widest)))


def _words(problem: RowsProblem) -> int:
    """Registers that one vector of every input takes."""
    return sum(max(4, problem.width * ITEMSIZE[each]) // 4 for each in problem.types.inputs)


def _registers(problem: RowsProblem) -> int:
    """That a thread needs: more with the totals of all of a vector's rows, and for numbers of two registers."""
    return problem.types.registers + 16 * (problem.inner > 0) + 16 * (problem.types.compute == "float64")


def _neighbours(problem: RowsProblem, capability: tuple[int, int]) -> Iterator[RowsConfig]:
    vectors, most = problem.vectors, _most_vectors(problem)
    if vectors <= 32 * most:
        # A warp or a part of one: no barrier.
        lanes, each = _part_of_warp(problem)
        yield _of_rows(problem, lanes, _SMALL_BLOCK // lanes, each)
        return
    yield from _staged(problem, capability)
    lanes = round_up(-(-vectors // (2 * most)), 32)
    few = problem.types.reductions > 1 and _registers(problem) <= 48 and capability >= (9, 0)
    if few and most * _MOST_THREADS < vectors and lanes <= 256:
        # Twice as many vectors: 17 % faster than a cluster of two blocks that wait for each other (on an H200).
        config = _of_rows(problem, lanes, 1, -(-vectors // lanes))
        yield replace(config, blocks_per_processor=_REGISTERS // ((_registers(problem) + HELD_WORDS) * lanes))
    clusters = (1, 2, 4, 8) if capability >= (9, 0) else (1,)
    ways = [
        *((cluster, most, _MOST_THREADS) for cluster in clusters),
        *((clusters[-1], each, _MOST_THREADS_OF_CLUSTERS) for each in (most, 2 * most)),
    ]
    for cluster, each, threads in ways:
        # A block, or as few as hold a row in registers: all wait for each other at the sums.
        lanes = round_up(-(-vectors // (each * cluster)), 32)
        if lanes <= threads:
            yield _of_rows(problem, lanes, 1, -(-vectors // (lanes * cluster)), cluster)
    # Read twice, the second time from the L2 cache: as few blocks run at a time as there are multiprocessors.
    threads = 1024 if _registers(problem) <= 80 else 512
    yield replace(_of_rows(problem, threads, 1, max(1, most * 3 // 4), clusters[-1]), held=False)


def _staged(problem: RowsProblem, capability: tuple[int, int]) -> Iterator[RowsConfig]:
    """Wide rows of one array that are reduced twice: the threads wait for each other two times, and blocks whose rows
    are in shared memory are more than those that keep theirs in registers. Rows of fewer vectors were faster in
    registers (on an H100).
    """
    types = problem.types
    whole = len(types.inputs) == 1 and problem.width * _itemsize(types.inputs[0]) == VECTOR
    if capability[0] not in (9, 10) or not whole or types.reductions < 2 or problem.vectors < _LEAST_STAGED:
        return
    registers = max(32, _registers(problem) - HELD_WORDS)
    for cluster, each, least, most in _STAGED:
        lanes = round_up(-(-problem.vectors // (each * cluster)), 32)
        if least <= lanes <= most and (each > 8 or (registers == 32 and capability[0] == 9)):
            vectors = -(-problem.vectors // (lanes * cluster))
            config = RowsConfig(problem.width, lanes, 1, vectors, cluster, shifted=problem.shifted, staged=True)
            blocks = _SHARED_MEMORY // (config.shared_bytes(types) + 1024)  # the driver takes 1 KiB of each
            yield replace(config, blocks_per_processor=max(1, min(blocks, _REGISTERS // (registers * lanes))))
            return


def _of_rows(problem: RowsProblem, lanes: int, teams: int, vectors: int, cluster: int = 1) -> RowsConfig:
    registers = _registers(problem) * (3 if vectors > _most_vectors(problem) else 2) // 2
    shifted = problem.shifted
    if shifted and lanes <= 32:  # few threads, so that limits are finer than for others
        registers += 8
    resident = max(1, _REGISTERS // (registers * lanes * teams))
    return RowsConfig(problem.width, lanes, teams, vectors, cluster, shifted=shifted, blocks_per_processor=resident)


def _part_of_warp(problem: RowsProblem) -> tuple[int, int]:
    """Lanes and vectors of each: as many lanes as have 16 bytes or more, for neighbours should read from neighbours."""
    least = VECTOR // (problem.width * max(map(_itemsize, problem.types.inputs)))
    lanes = min(32, 1 << max(0, -(-problem.vectors // least) - 1).bit_length())
    return lanes, -(-problem.vectors // lanes)


def _inner(problem: RowsProblem, capability: tuple[int, int]) -> Iterator[RowsConfig]:
    """Half a line of memory for each place of a row at least, as long as a block's threads hold a row so, or those of a
    cluster; then less.
    """
    most, item = _most_vectors(problem), max(map(_itemsize, problem.types.inputs))
    widest = 1 << max(0, -(-problem.inner // problem.width) - 1).bit_length()  # as many lanes have something to do
    half_line = min(32, widest, max(1, 64 // (problem.width * item)))
    most_threads = _REGISTERS // (2 * _registers(problem)) // 64 * 64  # of two blocks on a multiprocessor
    for threads in (128, 256, most_threads):
        for lanes in (128, 64, 32, 16, 8, 4):
            teams = threads // min(lanes, widest)
            if half_line <= lanes and problem.columns <= teams * most and teams * min(lanes, widest) == threads:
                vectors = -(-problem.columns // teams)
                yield _of_inner(problem, min(lanes, widest), teams, vectors)
    shorter = max(1, half_line // 2)
    if capability >= (9, 0):
        for cluster, lanes in ((2, half_line), (4, half_line), (8, half_line), (8, shorter)):
            teams = most_threads // lanes
            if problem.columns <= cluster * teams * most:
                yield _of_inner(problem, lanes, teams, -(-problem.columns // (cluster * teams)), cluster)
    threads = 1024 if _registers(problem) <= 64 else 512
    yield replace(_of_inner(problem, shorter, threads // shorter, max(1, most // 2)), held=False)


def _of_inner(problem: RowsProblem, lanes: int, teams: int, vectors: int, cluster: int = 1) -> RowsConfig:
    resident = max(1, _REGISTERS // (_registers(problem) * lanes * teams))
    return RowsConfig(problem.width, lanes, teams, vectors, cluster, inner=True, blocks_per_processor=resident)


def _itemsize(dtype: str) -> int:
    return ITEMSIZE[dtype]

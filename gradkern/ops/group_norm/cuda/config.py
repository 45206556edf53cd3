"""What the kernels of group norms are compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import ITEMSIZE, ByElementType, round_up

BARRIER = 16  # bytes of shared memory for a cluster's transaction barrier

ARGUMENTS = (  # addresses, then numbers
    *("dY", "X", "skip", "residual_grad", "mean", "inv_std", "gamma", "beta", "bias", "sample_scale", "sample_shift"),
    *("Y", "S", "dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad", "sums"),
    *("samples", "channels", "positions", "groups", "of_group", "parts", "part_length", "tiles"),
)


@dataclass(frozen=True, slots=True)
class GroupNormConfig(ByElementType):
    """Constants of a kernel.

    step        sums: two partial sums of each channel of each sample; groups: what each group's elements need; map: the
                results of all elements, and the parameters' gradients. whole: the first three in one; parameters: the
                parameters' gradients then
    arrays      the contract's names of all that a call has
    data, parameter, statistic, compute  types; statistic of the arrays in memory
    skip        what has a number in the array skip: elements, or channels of each sample; nothing without the array
    keeps_sum   the step sums writes S, and map reads that
    activation  with leaky_relu's alpha, see activation_alpha
    holds       the step whole holds every D in registers
    lines, width   as in Layout
    lanes       threads side by side: along channels in lines, else along the positions of a channel
    rows        of lanes: in lines they share their channels, else each has a channel, or a part of one
    vectors     of a thread, of each array, in flight at once; all that it has in the step whole
    cluster     blocks that share groups
    of_block    groups of a block or a cluster
    teams       rows of lanes of a group, in planes
    overlaps    a launch begins while the one before it runs, and waits for what that writes
    """

    step: str
    arrays: frozenset[str]
    data: str
    parameter: str
    statistic: str
    activation: str
    epsilon: float
    lines: bool
    width: int
    lanes: int
    rows: int
    vectors: int
    skip: str = ""
    keeps_sum: bool = False
    holds: bool = False
    cluster: int = 1
    of_block: int = 1
    teams: int = 1
    native_bfloat16: bool = True
    overlaps: bool = False
    blocks_per_processor: int = 1

    @property
    def gradient(self) -> bool:
        return "dY" in self.arrays

    @property
    def sums_data(self) -> bool:
        """X is read with what is added to it."""
        return bool(self.skip) and not (self.step == "map" and self.keeps_sum)

    @property
    def read(self) -> int:
        """Arrays of data that are read first."""
        return 2 if self.gradient or (self.sums_data and self.skip == "elements") else 1

    @property
    def threads(self) -> int:
        return self.lanes * self.rows

    @property
    def shared_bytes(self) -> int:
        numbers = 3 * self.rows if self.step == "groups" else 2 * self.threads if self.step == "parameters" else 0
        if self.step == "whole":
            numbers = self.groups_at + 2 * self.of_block
        elif self.step == "sums" and self.lines:
            numbers = self.slots_at
        return self.numbers_at + numbers * self.itemsize if numbers else 0

    @property
    def numbers_at(self) -> int:
        """Where numbers begin in shared memory, behind the barrier and the vectors of all threads."""
        arrays = self.read if self.step == "whole" else 0
        return BARRIER + arrays * self.vectors * self.threads * self.width * ITEMSIZE[self.data]

    # where parts of them begin, in numbers

    @property
    def slots(self) -> int:
        """Pairs that become those of groups."""
        return self.lanes * self.width if self.lines else self.rows

    @property
    def chunks(self) -> int:
        """Parts of the rows of a block in lines, added up at the same time: about the root of their number."""
        return 1 << (self.rows.bit_length() - 1) // 2

    @property
    def counts_at(self) -> int:
        return 2 * self.threads * self.width

    @property
    def slots_at(self) -> int:
        return self.counts_at + self.chunks * self.slots if self.lines else 0

    @property
    def pairs_at(self) -> int:
        """Of each group of each block; a multiple of 16 bytes."""
        return round_up(self.slots_at + 3 * self.slots, 4)

    @property
    def groups_at(self) -> int:
        return self.pairs_at + 4 * self.cluster * self.of_block

    @property
    def name(self) -> str:
        layout = "lines" if self.lines else "planes"
        way = "backward" if self.gradient else "forward"
        shape = f"{self.rows}x{self.lanes}x{self.vectors}x{self.width}"
        cluster = f"_cluster{self.cluster}" if self.step == "whole" else ""
        return f"group_norm_{way}_{self.step}_{layout}_{shape}{cluster}"

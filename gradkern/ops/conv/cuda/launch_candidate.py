"""The launch that all candidates with gradkern's own kernels share, except those with matrix products around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.launch import KernelConfig, Launch, kernel_of_config
from gradkern.cuda.scratch import scratch
from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
from gradkern.ops.conv.cuda.depthwise.mma_config import MmaWeightConfig
from gradkern.ops.conv.cuda.few_channels.config import FewChannelsConfig
from gradkern.search.candidate import Note


class LaunchCandidate:
    """One launch of a kernel with the arguments of the depthwise kernel; `builder` is the kernel's.

    Only dW has a workspace: blocks write rows of partial sums to it and, after a barrier of the grid, add these up.

    origin, recipe  as of Candidate
    shares          from the number of blocks that the device runs at a time: the number of parts that the work is cut
                    into, the blocks of the grid and the bytes of the workspace. Raises Refusal if it is too small.
    """

    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(
        self,
        builder: str,
        config: KernelConfig,
        device: Device,
        images: int,
        shares: Callable[[int], tuple[int, int, int]],
        name: str,
        origin: str,
        recipe: Mapping[str, Any],
    ) -> None:
        self.config, self.device, self.name, self.origin, self.recipe = config, device, name, origin, recipe
        self.workspace = 0
        self._builder, self._images, self._shares = builder, images, shares
        self._launch: Launch | None = None

    def prepare(self) -> None:
        if self._launch is not None:
            return
        config = self.config
        kernel = kernel_of_config(self.device, self._builder, config, arguments=len(ARGUMENTS))
        chunks, grid, self.workspace = self._shares(kernel.resident_blocks(config.threads))
        arguments = [{"images": self._images, "chunks": chunks}.get(name, 0) for name in ARGUMENTS]
        addresses, waits = range(ARGUMENTS.index("images")), self.workspace > 0
        self._launch = Launch(kernel, grid, config.threads, arguments, addresses, cooperative=waits)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self._launch is None:
            raise RuntimeError("prepare has not been called")
        if self.workspace:
            (tiled, halo), (filters,) = inputs, outputs
            counter = scratch(self.device, stream, 0)[0]
        else:
            (halo, filters, *bias), (tiled,) = inputs, outputs
            workspace, counter = bias[0] if bias else 0, 0
        self._launch((halo, tiled, filters, workspace, counter), stream)


def runs_of_rows(config: MmaWeightConfig | FewChannelsConfig, images: int, resident: int) -> tuple[int, int, int]:
    """Shares of dW on tensor cores: a block has a group of channels or filters and a run of the rows of all images."""
    if resident < config.groups:
        raise Refusal(f"{config.groups} blocks of {config.shared_bytes} bytes of shared memory do not fit")
    chunks = config.chunks(images, resident)
    return chunks, min(config.groups * chunks, resident), 4 * chunks * config.weights

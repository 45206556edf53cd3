"""The launch that all candidates with gradkern's own kernels share, except those with matrix products around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.launch import KernelConfig, Launch, kernel_of_config
from gradkern.cuda.scratch import scratch
from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
from gradkern.search.candidate import Note

__all__ = ["LaunchCandidate", "MmaCandidate"]

Config = TypeVar("Config", bound=KernelConfig)


class LaunchCandidate(Generic[Config]):
    """One launch of a kernel with the arguments of the depthwise kernel; `builder` is the kernel's.

    Only dW has a workspace: blocks write rows of partial sums to it and, after a barrier of the grid, add these up.
    """

    builder: ClassVar[str]
    origin: ClassVar[str]
    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(self, config: Config, device: Device, images: int, name: str, recipe: Mapping[str, Any]) -> None:
        self.config, self.device, self.images, self.name, self.recipe = config, device, images, name, recipe
        self.workspace = 0
        self._launch: Launch | None = None

    def shares(self, resident: int) -> tuple[int, int, int]:
        """The number of parts that the work is cut into, the blocks of the grid and the bytes of the workspace.

        resident: the number of blocks that the device runs at a time. Raises Refusal if it is too small.
        """
        raise NotImplementedError

    def prepare(self) -> None:
        if self._launch is not None:
            return
        config = self.config
        kernel = kernel_of_config(self.device, self.builder, config, arguments=len(ARGUMENTS))
        chunks, grid, self.workspace = self.shares(kernel.resident_blocks(config.threads))
        arguments = [{"images": self.images, "chunks": chunks}.get(name, 0) for name in ARGUMENTS]
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


class _RunsConfig(KernelConfig, Protocol):
    """A block has a group of channels or filters and a run of the rows of all images."""

    @property
    def groups(self) -> int: ...

    @property
    def weights(self) -> int:
        """Elements of dW."""
        ...

    def chunks(self, images: int, blocks: int) -> int:
        """The number of runs of the rows, for this many blocks."""
        ...


class MmaCandidate(LaunchCandidate[_RunsConfig]):
    """Of dW on tensor cores: a block adds up one run of the rows."""

    def shares(self, resident: int) -> tuple[int, int, int]:
        config = self.config
        if resident < config.groups:
            raise Refusal(f"{config.groups} blocks of {config.shared_bytes} bytes of shared memory do not fit")
        chunks = config.chunks(self.images, resident)
        return chunks, min(config.groups * chunks, resident), 4 * chunks * config.weights

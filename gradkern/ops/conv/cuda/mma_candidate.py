"""The launch that all candidates for dW with gradkern's own tensor-core kernels share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from gradkern.cuda.device import Device
from gradkern.cuda.launch import KernelConfig, Launch, kernel_of_config
from gradkern.cuda.scratch import scratch
from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
from gradkern.search.candidate import Note, Unfit

__all__ = ["MmaCandidate"]


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


class MmaCandidate:
    """One launch. Its blocks write a row of partial sums for each run and add these up. builder: of the kernel."""

    builder: ClassVar[str]
    origin: ClassVar[str]
    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(self, config: _RunsConfig, device: Device, images: int, name: str, recipe: Mapping[str, Any]) -> None:
        self.config, self.device, self.images, self.name, self.recipe = config, device, images, name, recipe
        self.workspace = 0
        self._launch: Launch | None = None

    def prepare(self) -> None:
        if self._launch is not None:
            return
        config = self.config
        kernel = kernel_of_config(self.device, self.builder, config, arguments=len(ARGUMENTS))
        resident = kernel.resident_blocks(config.threads)
        if resident < config.groups:
            raise Unfit(f"{config.groups} blocks of {config.shared_bytes} bytes of shared memory do not fit")
        chunks = config.chunks(self.images, resident)
        arguments = [{"images": self.images, "chunks": chunks}.get(name, 0) for name in ARGUMENTS]
        self.workspace = 4 * chunks * config.weights
        addresses = range(ARGUMENTS.index("images"))
        self._launch = Launch(
            kernel, min(config.groups * chunks, resident), config.threads, arguments, addresses, cooperative=True
        )

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self._launch is None:
            raise RuntimeError("prepare has not been called")
        (dY, X), (dW,) = inputs, outputs
        self._launch((X, dY, dW, workspace, scratch(self.device, stream, 0)[0]), stream)

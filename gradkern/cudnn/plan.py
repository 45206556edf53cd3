"""Execution plans: a configuration made ready for a device, and run on addresses."""

from __future__ import annotations

from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.device import handle
from gradkern.cudnn.library import check, library

__all__ = ["Plan"]

_MOST_PACKS = 64


class Plan:
    """A finished plan. `numbers` are the graph's tensors in the order in which calls give their addresses."""

    def __init__(self, made: Descriptor, device: Descriptor, index: int, numbers: tuple[int, ...]) -> None:
        """`made` is a configuration; `device` describes the device with this index. Raises CudnnError."""
        self._plan = Descriptor("plan", engine_config=made, device=device)
        self._address, self._index, self._numbers = self._plan.pointer, index, numbers
        self._execute = library().cudnnBackendExecute
        self._packs: dict[tuple[tuple[int, ...], int], Descriptor] = {}
        self.workspace: int = self._plan.number("workspace_size")

    def __call__(self, addresses: tuple[int, ...], workspace: int, stream: int) -> None:
        """Enqueue on a stream. The device's context must be current."""
        key = (addresses, workspace)
        pack = self._packs.get(key)
        if pack is None:
            pack = self._pack(key)
        status = self._execute(handle(self._index).on(stream), self._address, pack.pointer)
        if status:
            check(status, "executing a plan")

    def _pack(self, key: tuple[tuple[int, ...], int]) -> Descriptor:
        """A new pack of addresses: finished packs cannot be changed, so those of the last calls are kept."""
        addresses, workspace = key
        if len(self._packs) >= _MOST_PACKS:
            self._packs.clear()
        pack = Descriptor("variant_pack", ids=self._numbers, pointers=addresses, workspace=workspace)
        return self._packs.setdefault(key, pack)

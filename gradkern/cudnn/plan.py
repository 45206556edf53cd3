"""Execution plans: a configuration made ready for a device, and run on addresses."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from typing import Any

from gradkern.cuda.recording import Recording
from gradkern.cudnn.api import KINDS
from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.device import handle
from gradkern.cudnn.library import check, library

_MOST_PACKS = 256
_PACK = KINDS["variant_pack"]
_IN_PACK = ("ids", "pointers", "workspace")


class Plan:
    """A finished plan. `numbers` are the graph's tensors in the order of their addresses in a call."""

    _guard: AbstractContextManager[object]  # once it is recorded

    def __init__(self, made: Descriptor, device: Descriptor, index: int, numbers: tuple[int, ...]) -> None:
        """`made` is a configuration; `device` describes the device with this index. Raises CudnnError."""
        self._plan = Descriptor("plan", engine_config=made, device=device)
        self.function, self._index, self._numbers = self._plan.pointer, index, numbers
        self._execute: Any = library().cudnnBackendExecute
        self._new_pack = _maker_of_packs(numbers)
        self._packs: dict[tuple[tuple[int, ...], int], _Pack] = {}
        self.workspace: int = self._plan.number("workspace_size")

    def __call__(self, addresses: tuple[int, ...], workspace: int, stream: int) -> None:
        """Enqueue on a stream. The device's context must be current."""
        key = addresses, workspace
        pack = self._packs.get(key)
        if pack is None:
            if isinstance(stream, Recording):
                self._record(addresses, workspace, stream)
                return
            pack = self._pack(key)
        status = self._execute(handle(self._index).on(stream), self.function, pack.pointer)
        if status:
            check(status, "executing a plan")

    def _record(self, addresses: tuple[int, ...], workspace: int, recording: Recording) -> None:
        """From now on others may execute the plan too, and not all engines' plans are safe in two threads."""
        recording.add(self, (*addresses, workspace))
        recording.cudnn.append(self)
        self._guard, self._execute = recording.guard(), self._guarded

    def _guarded(self, *arguments: Any) -> int:
        with self._guard:
            return library().cudnnBackendExecute(*arguments)

    @property
    def block(self) -> tuple[list[int], list[int], list[int]]:
        """For who executes without this object, as of gradkern.cuda.launch.Launch: places for the addresses of a call
        and for that of its workspace, as all of these change, and what a pack of addresses needs.
        """
        (ids, id_type), (pointers, address_type), (one, _) = (_PACK.attributes[each] for each in _IN_PACK)
        count = len(self._numbers) + 1
        numbers = [_PACK.number, ids, id_type.number, pointers, one, address_type.number, *self._numbers]
        return [0] * count, list(range(count)), numbers

    def _pack(self, key: tuple[tuple[int, ...], int]) -> _Pack:
        """A new pack of addresses: finished packs cannot be changed, so those of the last calls are kept."""
        if len(self._packs) >= _MOST_PACKS:
            for oldest in list(self._packs)[: _MOST_PACKS // 4]:
                self._packs.pop(oldest, None)
        return self._packs.setdefault(key, self._new_pack(*key))


class _Pack:
    """A descriptor of kind variant_pack. Training has new addresses all the time, and Descriptor, made for
    everything, takes three times as long to make one.
    """

    __slots__ = ("_destroy", "pointer")

    def __init__(self, pointer: int, destroy: Any) -> None:
        self.pointer, self._destroy = pointer, destroy

    def __del__(self) -> None:
        self._destroy(self.pointer)


def _maker_of_packs(numbers: tuple[int, ...]) -> Any:
    """Makes the pack of the addresses of these tensors, and of a workspace."""
    lib = library()
    create, put, finish = lib.cudnnBackendCreateDescriptor, lib.cudnnBackendSetAttribute, lib.cudnnBackendFinalize
    destroy, kind, count = lib.cudnnBackendDestroyDescriptor, _PACK.number, len(numbers)
    (ids, id_type), (pointers, address_type), (one, _) = (_PACK.attributes[each] for each in _IN_PACK)
    every_id = (id_type.ctype * count)(*numbers)
    addresses_of, address_of = address_type.ctype * count, address_type.ctype * 1

    def new(addresses: tuple[int, ...], workspace: int) -> _Pack:
        made = ctypes.c_void_p()
        check(create(kind, ctypes.byref(made)), "creating a pack of addresses")
        pointer = made.value or 0
        pack = _Pack(pointer, destroy)
        status = (
            put(pointer, ids, id_type.number, count, every_id)
            or put(pointer, pointers, address_type.number, count, addresses_of(*addresses))
            or put(pointer, one, address_type.number, 1, address_of(workspace))
            or finish(pointer)
        )
        if status:
            check(status, "making a pack of addresses")
        return pack

    return new

"""cuDNN's objects for each device: a description, for making plans, and a handle for each thread."""

from __future__ import annotations

import ctypes
from functools import cache

from gradkern.cuda.device import Device
from gradkern.cuda.thread_handles import ThreadHandles
from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.library import check, library


@cache
def description(device: Device) -> Descriptor:
    """The device as cuDNN's heuristics, engines and plans see it."""
    return Descriptor("device", index=device.index)


class Handle:
    """cuDNN's context of one device, with the stream it was last set to. Only one thread at a time may use it."""

    __slots__ = ("_set_stream", "_stream", "address")

    def __init__(self) -> None:
        lib = library()
        made = ctypes.c_void_p()
        check(lib.cudnnCreate(ctypes.byref(made)), "creating a handle")
        self.address: int = made.value or 0
        self._set_stream = lib.cudnnSetStream
        self._stream = 0  # a new handle's is the default stream

    def on(self, stream: int) -> int:
        """The handle's address, once it works on this stream."""
        if stream != self._stream:
            check(self._set_stream(self.address, stream), "setting a handle's stream")
            self._stream = stream
        return self.address


handle = ThreadHandles(Handle).of

"""cuBLAS: loaded once, one handle for each device and thread.

nvmath's bindings load libcublas of the driver's CUDA major with cuda-pathfinder: the copy that is in the process
already (PyTorch's), else the one of the nvidia-cublas wheel that cuDNN's wheel brings, else the system's.

The same call gives the same bits, as cuBLAS documents it: for one version and one kind of device, where every stream
has a workspace of its own and atomics are off, the default. Here the workspace is the caller's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.thread_handles import ThreadHandles
from gradkern.errors import ProviderError
from gradkern.system.importing import load


@cache
def bindings() -> Any:
    """nvmath.bindings.cublas; raises Refusal where it or the library is not installed."""
    try:
        cublas: Any = load("nvmath.bindings.cublas")
        cublas.get_cudart_version()  # loads the library, needs no GPU
    except (ImportError, RuntimeError, OSError) as error:
        raise Refusal(f"cuBLAS cannot be loaded: {error}") from error
    return cublas


def workspace_bytes(device: Device) -> int:
    """What NVIDIA recommends; with less, the products that split their sums are not chosen."""
    return 32 << 20 if device.capability >= (9, 0) else 4 << 20


class Handle:
    """A cuBLAS context. It multiplies float32 in float32 unless a call asks otherwise, and adds up in no less."""

    def __init__(self) -> None:
        self.cublas = bindings()
        self._used: tuple[int, int, int] | None = None
        with wrapped("creating a handle"):
            self.address: int = self.cublas.create()
            mode = self.cublas.Math.DISALLOW_REDUCED_PRECISION_REDUCTION  # and DEFAULT_MATH, 0
            self.cublas.set_math_mode(self.address, mode)

    def use(self, stream: int, workspace: int, size: int) -> int:
        """Work on this stream with this scratch memory from now on; returns the handle."""
        used = stream, workspace, size
        if used != self._used:
            self._used = None  # until both are set
            self.cublas.set_stream(self.address, stream)  # first: it takes the workspace away
            self.cublas.set_workspace(self.address, workspace, size)
            self._used = used
        return self.address


handle = ThreadHandles(Handle).of


class wrapped:  # noqa: N801  used as a function is
    """The one place where cuBLAS's statuses become gradkern's errors: nvmath raises, this says what was done."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is not None and kind is not None and kind.__module__.startswith("nvmath."):
            raise ProviderError(f"cuBLAS: {self._doing} failed: {error}") from error

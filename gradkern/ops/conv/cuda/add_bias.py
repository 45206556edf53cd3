"""The bias of a transposed convolution: added to Y behind a candidate that computes Y without it.

No candidate for dX of a convolution adds a bias. So Y of a 16-bit type with a bias is rounded twice, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.search.candidate import Candidate
from gradkern.strides import is_dense, memory_order

_THREADS, _VECTORS = 256, 4
_ARGUMENTS = ("Y", "B", "size", "inner", "channels")


class Biased:
    """A candidate that writes Y, and the kernel that adds B to it. Its inputs are the candidate's and B."""

    def __init__(self, candidate: Candidate, call: Call, device: Device) -> None:
        self._candidate = candidate
        self.name, self.origin, self.notes = candidate.name, candidate.origin, candidate.notes
        self.recipe: Mapping[str, Any] = candidate.recipe
        Y = call.outputs["Y"]
        if not is_dense(Y, memory_order(Y)) or not is_dense(call.inputs["B"]):
            raise Refusal("Y and B: not contiguous in memory, where a bias is added")
        dtype, item = Y.dtype.name, Y.dtype.itemsize
        width, inner = max(1, min(Y.alignment, 16) // item), max(1, Y.strides[1] // item)
        arguments = {"size": Y.size, "inner": inner, "channels": Y.shape[1]}
        kernel = kernel_of(
            device,
            "gradkern.ops.conv.cuda.add_bias_kernel:build",
            dtype,
            width,
            _VECTORS,
            inner % width == 0,
            Y.size + width * _VECTORS * _THREADS >= 1 << 31,
            device.capability >= (8, 0),
            name=kernel_name("conv_add_bias", dtype, f"{_THREADS}x{_VECTORS}x{width}"),
            arguments=len(_ARGUMENTS),
            threads=_THREADS,
        )
        grid = -(-Y.size // (width * _VECTORS * _THREADS))
        self._launch = Launch(kernel, grid, _THREADS, *named(_ARGUMENTS, arguments, ("Y", "B")))

    @property
    def workspace(self) -> int:
        return self._candidate.workspace

    def prepare(self) -> None:
        self._candidate.prepare()

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        self._candidate(inputs[:-1], outputs, workspace, stream)
        self._launch((outputs[0], inputs[-1]), stream)

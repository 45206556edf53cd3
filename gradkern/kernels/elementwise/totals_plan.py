"""From a call to the launches of a number that all elements of an array add to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device, in_turn
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.rows import device_of
from gradkern.cuda.scratch import scratch
from gradkern.kernels.elementwise.config import widest_vector
from gradkern.kernels.elementwise.totals import PARTS_ARGUMENTS, SUM_ARGUMENTS, TotalsConfig
from gradkern.strides import is_dense, memory_order

__all__ = ["TotalsPlan", "totals_plan"]

_BLOCKS = 8  # of a multiprocessor, at most
_THREADS = 256


@dataclass(frozen=True, slots=True)
class TotalsPlan:
    """A launch of the parts, none of an empty array, and one of their sum."""

    kernel: str
    parts: Launch | None
    sum: Launch
    device: Device
    scratch: int

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.sum,) if self.parts is None else (self.parts, self.sum)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        _, buffer = scratch(self.device, stream, self.scratch)
        with in_turn:
            if self.parts is not None:
                self.parts((inputs[0], buffer), stream)
            self.sum((buffer, outputs[0]), stream)


def totals_plan(call: Call, parts_builder: str, sum_builder: str, *more: Any) -> TotalsPlan:
    """The plan of a call with one array and one number.

    parts_builder, sum_builder: "module:function" of (TotalsConfig, *more) and of (threads, the output's type, *more,
    whether the device converts to bfloat16)
    """
    device = device_of(call)
    ((name, tensor),), (output,) = call.inputs.items(), call.outputs.values()
    if not is_dense(tensor, memory_order(tensor)):
        raise Refusal(f"{name}: its elements are not adjacent in memory")
    kind, words = tensor.dtype.name, operator_words(call.operator)
    width = min(widest_vector([(kind, tensor.alignment, 0)]), 16 // tensor.dtype.itemsize)
    config = TotalsConfig(kind, width, threads=_THREADS)
    blocks = min(-(-tensor.size // (width * config.vectors * _THREADS)), _BLOCKS * device.processors)
    parts = None
    if tensor.size:
        kernel = kernel_of(
            device, parts_builder, config, *more,
            name=kernel_name(words, kind, config.name), arguments=len(PARTS_ARGUMENTS), threads=_THREADS,
        )  # fmt: skip
        parts = Launch(kernel, blocks, _THREADS, *named(PARTS_ARGUMENTS, {"size": tensor.size}, ("input", "parts")))
    kernel = kernel_of(
        device, sum_builder, _THREADS, output.dtype.name, *more, device.capability >= (8, 0),
        name=kernel_name(words, output.dtype.name, "sum"), arguments=len(SUM_ARGUMENTS), threads=_THREADS,
    )  # fmt: skip
    total = Launch(kernel, 1, _THREADS, *named(SUM_ARGUMENTS, {"count": blocks}, ("parts", "output")))
    return TotalsPlan(f"{words}_{config.name}", parts, total, device, 8 * max(1, blocks))

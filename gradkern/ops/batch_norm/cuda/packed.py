"""A plan whose kernel writes two arrays that form one output: a message to the other parts of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gradkern.call import Call, Tensor
from gradkern.cuda.launch import Launch
from gradkern.kernels.channels.streaming_plan import StreamingPlan

__all__ = ["PackedPlan", "unpacked"]


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """The plan of a call from `unpacked`: its last output is `offset` bytes behind the previous one."""

    plan: StreamingPlan
    offset: int

    @property
    def kernel(self) -> str:
        return self.plan.kernel

    @property
    def scratch(self) -> int:
        return self.plan.scratch

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.plan.launches

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        self.plan(inputs, (*outputs, outputs[-1] + self.offset), stream)


def unpacked(call: Call, message: str, first: str, second: str) -> tuple[Call, int]:
    """The call with two outputs of C numbers in place of its last output, the message that begins with them; and the
    bytes from the first to the second.
    """
    whole, channels = call.outputs[message], call.inputs["X"].shape[1]
    item = whole.dtype.itemsize
    offset = channels * item
    one = Tensor(whole.dtype, (channels,), (item,), whole.alignment)
    two = one._replace(alignment=min(whole.alignment, offset & -offset))
    outputs: Mapping[str, Tensor] = {**call.outputs, first: one, second: two}
    return replace(call, outputs={name: each for name, each in outputs.items() if name != message}), offset

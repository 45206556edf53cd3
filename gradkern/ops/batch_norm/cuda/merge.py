"""Statistics of a batch in parts on a GPU: one small launch."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.call import Call
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of
from gradkern.cuda.rows import device_of, require_flat
from gradkern.ops.batch_norm.cuda.merge_kernel import ARGUMENTS

__all__ = ["MergePlan", "plan"]

_THREADS = 64


@dataclass(frozen=True, slots=True)
class MergePlan:
    """One launch without scratch memory."""

    launch: Launch
    kernel: str = "merge"
    scratch: int = 0

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        self.launch((*inputs, *outputs), stream)


def plan(call: Call) -> MergePlan:
    """Raises Refusal for arrays with gaps."""
    for name, tensor in {**call.inputs, **call.outputs}.items():
        require_flat(name, tensor)
    parts, numbers = call.inputs["part_statistics"].shape
    dtype = call.inputs["part_statistics"].dtype.name
    kernel = kernel_of(
        device_of(call),
        "gradkern.ops.batch_norm.cuda.merge_kernel:build",
        dtype,
        call.attributes["epsilon"],
        tuple(call.outputs),
        name=kernel_name("batch_norm_merge", dtype),
        arguments=len(ARGUMENTS),
        threads=_THREADS,
    )
    channels = numbers // 2
    values = {"parts": parts, "channels": channels}
    changing = [ARGUMENTS.index(name) for name in (*call.inputs, *call.outputs)]
    grid = channels // _THREADS + 1
    return MergePlan(Launch(kernel, grid, _THREADS, [values.get(name, 0) for name in ARGUMENTS], changing))

"""The candidate for dB: sums of dY over images and positions, by the kernel that adds up channels for batch norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.channel_plan import ChannelPlan, plan
from gradkern.cuda.device import Device
from gradkern.cuda.scratch import scratch
from gradkern.ops.conv_grad.problem import Problem
from gradkern.policies import Policy
from gradkern.search.candidate import Note, Unfit

__all__ = ["ChannelSums", "candidates", "rebuild"]


def candidates(problem: Problem, which: Device) -> Iterator[ChannelSums]:
    """The kernel for this problem; raises Unfit where it has none."""
    yield ChannelSums(problem, which)


def rebuild(problem: Problem, which: Device, recipe: Mapping[str, Any]) -> ChannelSums:
    """The candidate that had this recipe: it has nothing to choose."""
    del recipe
    return ChannelSums(problem, which)


class ChannelSums:
    """One launch; the order of all additions is fixed."""

    name = "channel_sums"
    origin = "gradkern channel sums"
    notes: frozenset[Note] = frozenset({"compiles_once"})
    recipe: Mapping[str, Any] = {}

    def __init__(self, problem: Problem, which: Device) -> None:
        if problem.gradient != "dB":
            raise Unfit("channel sums are dB")
        self.workspace = 0
        self.device = which
        self._call = Call(
            operator="ConvGrad",
            inputs={"dY": problem.Y},
            outputs={"dB": problem.output},
            attributes={},
            axes={},
            in_place=frozenset(),
            device=f"cuda:{which.index}",
            policy=Policy(),
        )
        self._plan: ChannelPlan | None = None

    def prepare(self) -> None:
        if self._plan is not None:
            return
        is_kept = [axis == 1 for axis in range(len(self._call.inputs["dY"].shape))]
        try:
            made = plan(self._call, {"dY": "D", "dB": "bias_sum"}, is_kept, None)
        except Refusal as refusal:
            raise Unfit(str(refusal)) from refusal
        if not isinstance(made, ChannelPlan):
            raise Unfit("channel sums take no empty arrays")
        self._plan, self.workspace = made, made.scratch

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self._plan is None:
            raise RuntimeError("prepare has not been called")
        self._plan.launch((*inputs, *outputs, workspace, scratch(self.device, stream, 0)[0]), stream)

"""Candidates of gradkern's own: the walk over channels, once for the sums and once, the other way, for dX.

The two passes are one launch, in which all blocks wait for the sums, or a launch each, which can be shaped apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.channel_plan import ChannelPlan, plan
from gradkern.cuda.device import Device
from gradkern.cuda.scratch import scratch
from gradkern.ops.batch_norm_grad.parts import NAMES
from gradkern.ops.batch_norm_grad.problem import Problem
from gradkern.policies import Policy
from gradkern.search.candidate import Note, Unfit

__all__ = ["Channels", "candidates", "rebuild"]


def candidates(problem: Problem, which: Device) -> Iterator[Channels]:
    """The kernel in one launch, and where it has two passes in two."""
    yield Channels(problem, which, 1)
    if problem.dX is not None:
        yield Channels(problem, which, 2)


def rebuild(problem: Problem, which: Device, recipe: Mapping[str, Any]) -> Channels:
    """The candidate that had this recipe."""
    return Channels(problem, which, recipe["launches"])


class Channels:
    """One launch or two; the order of all additions is fixed. Who calls it holds device.in_turn."""

    origin = "gradkern channels"
    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(self, problem: Problem, which: Device, launches: int) -> None:
        self.device, self.launches = which, launches
        self.name = f"channels_{launches}_launches" if launches > 1 else "channels_1_launch"
        self.recipe: Mapping[str, Any] = {"launches": launches}
        self.workspace = 0
        names = "dY", "X", "Scale", "saved_mean", "saved_inv_std"
        inputs: dict[str, Tensor] = dict(zip(names, problem.inputs, strict=True))
        outputs = {"dX": problem.dX, "dScale": problem.dScale, "dBias": problem.dBias}
        self._call = Call(
            operator="BatchNormalizationGrad",
            inputs=inputs,
            outputs={name: tensor for name, tensor in outputs.items() if tensor is not None},
            attributes={},
            axes={},
            in_place=frozenset(),
            device=f"cuda:{which.index}",
            policy=Policy(),
        )
        self._elements = problem.elements
        self.plan: ChannelPlan | None = None

    def prepare(self) -> None:
        if self.plan is not None:
            return
        is_kept = [axis == 1 for axis in range(len(self._call.inputs["X"].shape))]
        try:
            made = plan(self._call, NAMES, is_kept, None, self._elements, self.launches)
        except Refusal as refusal:
            raise Unfit(str(refusal)) from refusal
        if not isinstance(made, ChannelPlan):
            raise Unfit("the kernel takes no empty arrays")
        self.plan, self.workspace = made, made.scratch

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.plan is None:
            raise RuntimeError("prepare has not been called")
        counter = scratch(self.device, stream, 0)[0]
        self.plan.enqueue(inputs, outputs, workspace, counter, stream)

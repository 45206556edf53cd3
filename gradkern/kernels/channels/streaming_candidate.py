"""The streaming kernel as a candidate of searches, for operators with sums over channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.scratch import scratch
from gradkern.kernels.channels.streaming_plan import StreamingPlan, plan
from gradkern.policy import Policy
from gradkern.search.candidate import Note

__all__ = ["StreamingCandidate"]


class StreamingCandidate:
    """One launch, or two for two passes. The order of all additions is fixed. The caller holds device.in_turn.

    names, elements, launches, activation, settings: as of streaming_plan.plan.
    """

    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(
        self,
        name: str,
        origin: str,
        recipe: Mapping[str, Any],
        device: Device,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        names: Mapping[str, str],
        elements: int | None = None,
        launches: int = 1,
        activation: str = "none",
        settings: Mapping[str, int] | None = None,
    ) -> None:
        self.name, self.origin, self.recipe, self.launches = name, origin, recipe, launches
        self.workspace = 0
        self.plan: StreamingPlan | None = None
        self._device, self._names, self._elements = device, names, elements
        self._activation, self._settings = activation, settings
        self._call = Call(
            operator=origin,
            inputs=inputs,
            outputs=outputs,
            attributes={},
            axes={},
            in_place=frozenset(),
            device=f"cuda:{device.index}",
            policy=Policy(),
        )

    def prepare(self) -> None:
        if self.plan is not None:
            return
        data = next(self._call.inputs[name] for name in ("dY", "X") if name in self._call.inputs)
        is_channel_axis = [axis == 1 for axis in range(len(data.shape))]
        made = plan(
            self._call,
            self._names,
            is_channel_axis,
            None,
            self._elements,
            self.launches,
            self._settings,
            activation=self._activation,
        )
        if not isinstance(made, StreamingPlan):
            raise Refusal(f"{self.origin} takes no empty arrays")
        self.plan, self.workspace = made, made.scratch

    @property
    def alone(self) -> StreamingPlan | None:
        """The kernel as a plan, with the scratch memory of the stream. It acquires device.in_turn if it needs to."""
        return self.plan

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.plan is None:
            raise RuntimeError("prepare has not been called")
        counter = scratch(self._device, stream, 0)[0]
        self.plan.enqueue(inputs, outputs, workspace, counter, stream)

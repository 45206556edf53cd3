"""BatchNormalization in training on a GPU: the faster of gradkern's own kernel in one launch and in two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import inf
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device, activate, check
from gradkern.cuda.rows import device_of
from gradkern.kernels.channels.activation_alpha import with_alpha
from gradkern.ops.batch_norm.cuda.forward_reference import elements
from gradkern.ops.batch_norm.cuda.problem import ForwardProblem
from gradkern.search.implementation import Implementation
from gradkern.search.plan import WinnerPlan
from gradkern.search.store import SearchResult
from gradkern.search.task import Task
from gradkern.search.tuner import candidate_names, choose, stored
from gradkern.strides import layout, overlaps_itself

__all__ = ["SELECTS_BY_NAME", "plan", "searches"]

driver: Any = import_module("cuda.bindings.driver")  # it has no types

SELECTS_BY_NAME = True  # of Policy.kernel
_ALL = "all results"
_COPIES = {"running_mean": "input_mean", "running_var": "input_var"}  # for an empty batch


def plan(call: Call) -> WinnerPlan | EmptyBatchPlan:
    """The plan of the winner, found by an earlier search or by one now."""
    for name, tensor in call.outputs.items():
        if overlaps_itself(tensor):
            raise Refusal(f"{name}: elements of it share memory")
    device = device_of(call)
    if not call.inputs["X"].size or not call.outputs:
        return EmptyBatchPlan.of(call, device)
    return WinnerPlan(device, choose(_task(call, device), call.policy, device, call.policy.kernel), _ALL)


def searches(call: Call) -> Mapping[str, tuple[SearchResult | None, list[str]]]:
    """The result of an earlier search, or else the candidates that a search would try first."""
    if not call.inputs["X"].size or not call.outputs:
        return {}
    task = _task(call, device_of(call))
    result = stored(task, call.policy, device_of(call))
    return {_ALL: (result, [] if result else candidate_names(task))}


@dataclass(frozen=True, slots=True)
class EmptyBatchPlan:
    """The plan of an empty batch: statistics are zero, and running statistics do not change. For each output its bytes,
    and the input that it is a copy of.
    """

    device: Device
    outputs: tuple[tuple[int, int | None], ...]
    kernel: str = "empty"
    scratch: int = 0

    @classmethod
    def of(cls, call: Call, device: Device) -> EmptyBatchPlan:
        inputs = list(call.inputs)
        sources = {name: inputs.index(each) for name, each in _COPIES.items() if each in inputs}
        return cls(device, tuple((tensor.nbytes, sources.get(name)) for name, tensor in call.outputs.items()))

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        with activate(self.device):
            for address, (size, source) in zip(outputs, self.outputs, strict=True):
                if size and source is None:
                    check(driver.cuMemsetD8Async(address, 0, size, stream), "writing zeros")
                elif size and source is not None and inputs[source] != address:
                    check(driver.cuMemcpyDtoDAsync(address, inputs[source], size, stream), "copying statistics")


def _task(call: Call, device: Device) -> Task:
    attributes, X = call.attributes, call.inputs["X"]
    m = X.size // X.shape[1]
    correction = 1.0 if not attributes["unbiased"] else m / (m - 1) if m > 1 else inf  # inf * 0 is NaN for one element
    activation, name = with_alpha(attributes), attributes["activation"]
    problem = ForwardProblem(
        tuple(call.inputs.items()),
        tuple(call.outputs.items()),
        activation,
        attributes["epsilon"],
        attributes["momentum"],
        correction,
    )
    told = ["Z"] if "Z" in call.inputs else []
    told += [name] if name != "none" else []
    return Task(
        kind=" ".join(["BatchNormalization", *told, X.dtype.name, layout(X)]),
        detail="x".join(map(str, X.shape)),
        key=repr((problem.given, problem.wanted, name)),  # the speed does not depend on its numbers
        inputs=tuple(call.inputs.values()),
        outputs=tuple(call.outputs.values()),
        terms=problem.elements,
        sources=(Implementation("streaming", "gradkern.ops.batch_norm.cuda.forward_streaming", problem, device),),
        reference=partial(elements, problem),
    )

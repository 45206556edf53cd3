"""BatchNormalizationGrad on a GPU: the fastest of gradkern's own kernels, found by a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.channels import streaming_plan
from gradkern.kernels.channels.activation_alpha import with_alpha, without_alpha
from gradkern.ops.batch_norm.cuda import persistent
from gradkern.ops.batch_norm.cuda.parts import NAMES
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.batch_norm.cuda.reference import elements
from gradkern.search.implementation import Implementation, Task
from gradkern.search.plan import WinnerPlan
from gradkern.search.store import SearchResult
from gradkern.search.tuner import candidate_names, choose, stored
from gradkern.strides import layout, overlaps_itself

SELECTS_BY_NAME = True  # of Policy.kernel
_ALL = "all gradients"


def plan(call: Call) -> WinnerPlan | LaunchPlan | LaunchesPlan | EmptyPlan:
    """The plan of the winner, found by an earlier search or by one now."""
    if not call.inputs["X"].size:
        return streaming_plan.plan(call, NAMES, [axis == 1 for axis in range(len(call.inputs["X"].shape))], None)
    for name, tensor in call.outputs.items():
        if overlaps_itself(tensor):
            raise Refusal(f"{name}: elements of it share memory")
    device = device_of(call)
    return WinnerPlan(device, choose(_task(call, device), call.policy, device, call.policy.kernel), _ALL)


def searches(call: Call) -> Mapping[str, tuple[SearchResult | None, list[str]]]:
    """The result of an earlier search, or else the candidates that a search would try first."""
    if not call.inputs["X"].size:
        return {}
    task = _task(call, device_of(call))
    result = stored(task, call.policy, device_of(call))
    return {_ALL: (result, [] if result else candidate_names(task))}


def _modules(problem: Problem, device: Device) -> list[str]:
    """The sources of candidates; the first serves calls until a search."""
    own = ["streaming", "persistent"] if problem.activation_recomputable else ["streaming"]
    if persistent.comes_first(problem, device):
        own.reverse()
    return own


def _task(call: Call, device: Device) -> Task:
    activation = with_alpha(call.attributes)
    problem = Problem(**call.inputs, **call.outputs, activation=activation)
    name, _ = without_alpha(activation)
    told = [name] if name != "none" else []
    told += ["dZ"] if problem.dZ is not None else []
    return Task(
        kind=" ".join(["BatchNormalizationGrad", *told, problem.dtype, layout(problem.X)]),
        detail="x".join(map(str, problem.X.shape)),
        key=repr(replace(problem, activation=name)),  # the speed does not depend on alpha
        inputs=problem.inputs,
        outputs=problem.outputs,
        terms=problem.elements,
        sources=tuple(
            Implementation(module, f"gradkern.ops.batch_norm.cuda.{module}", problem, device)
            for module in _modules(problem, device)
        ),
        reference=partial(elements, problem),
    )

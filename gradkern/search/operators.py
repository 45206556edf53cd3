"""A call of any operator as a problem of a search. Its provider's modules, and added ones, are the implementations.

A module has one config, and `plan(call)`, or `configs(call)` and `build(call, config)`; plans are its candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gradkern.call import Call, Plan, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.rows import device_of
from gradkern.errors import GradkernError
from gradkern.search.crosscheck import CHECKED
from gradkern.search.implementation import Config, Implementation, Task
from gradkern.search.plan import PlanCandidate, WinnerPlan
from gradkern.search.tuner import choose
from gradkern.system.importing import load

_ALL = "all results"


def plan(call: Call, modules: Mapping[str, str]) -> Plan:
    """The plan of the winner among these modules, by name. Raises Refusal, with every reason, if none takes the call.

    Without an earlier search, a policy that searches later, and calls that a search cannot make up, have the first.
    """
    device, task = device_of(call), _task(call, modules)
    if call.policy.kernel is not None:
        return _pinned(task, call.policy.kernel)
    tensors = (*call.inputs.values(), *call.outputs.values())
    made_up = not call.scalars and all(each.size and each.dtype.name in CHECKED for each in tensors)
    policy = call.policy if made_up else replace(call.policy, search="default")
    return WinnerPlan(device, choose(task, policy, device), _ALL)


def _pinned(task: Task, kernel: str) -> Plan:
    """The plan with this kernel."""
    found: dict[str, None] = {}
    for source in task.sources:
        try:
            for candidate in source.candidates():
                assert isinstance(candidate, PlanCandidate)
                candidate.prepare()
                if candidate.alone is not None and candidate.alone.kernel == kernel:
                    return candidate.alone
                found[candidate.kernel] = None
        except (Refusal, GradkernError, ImportError) as error:
            found[f"{source.name}: {error}"] = None
    raise Refusal(f"has no kernel {kernel!r} for this call; it has {', '.join(found)}")


def _task(call: Call, modules: Mapping[str, str]) -> Task:
    device = device_of(call)
    sources = (Implementation(name, _Plans(name, module), call, device) for name, module in modules.items())
    tensors = {**call.inputs, **call.outputs}
    types = ", ".join(dict.fromkeys(each.dtype.name for each in tensors.values()))
    return Task(
        kind=f"{call.operator} {types}",
        detail=", ".join(f"{name} {'x'.join(map(str, each.shape))}" for name, each in call.inputs.items()),
        key=repr(replace(call, device="", policy=None)),  # type: ignore[arg-type]
        inputs=tuple(call.inputs.values()),
        outputs=tuple(call.outputs.values()),
        terms=max(each.size for each in tensors.values()),
        sources=tuple(sources),
    )


class _Plans:
    """A module of plans as a module of candidates."""

    OWN_KERNELS = True

    def __init__(self, name: str, module: str) -> None:
        self._name, self._module = name, module

    def supports(self, call: Call, device: Device) -> str | None:
        supports: Callable[[Call], str | None] | None = getattr(load(self._module), "supports", None)
        return None if supports is None else supports(call)

    def configs(self, call: Call, device: Device) -> Iterable[Config]:
        configs: Callable[[Call], Iterable[Config]] | None = getattr(load(self._module), "configs", None)
        return ({},) if configs is None else configs(call)

    def build(self, call: Call, device: Device, config: Config) -> PlanCandidate:
        module: Any = load(self._module)
        make = partial(module.build, call, config) if config else partial(module.plan, call)
        name = "_".join([self._name, *(f"{key}{value}" for key, value in config.items())])
        return _PlanOfModule(name, self._name, config, make)


class _PlanOfModule(PlanCandidate):
    """Policy.kernel pins it by its plan's own name: see _pinned."""

    @property
    def kernel(self) -> str:
        return self.name if self.alone is None else self.alone.kernel

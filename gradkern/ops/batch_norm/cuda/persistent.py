"""Candidates of gradkern's own that read memory once: see channel_kernels/persistent_kernel.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Refusal
from gradkern.channel_kernels.persistent_form import Partition, PersistentForm
from gradkern.channel_kernels.persistent_plan import Named, persistent_plan, resident_forms
from gradkern.cuda.device import Device
from gradkern.cuda.launch import LaunchPlan
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.batch_norm.cuda.sync import NAMES
from gradkern.search.candidate import Note, Unfit

__all__ = ["OWN_KERNELS", "PersistentCandidate", "candidates", "rebuild"]

OWN_KERNELS = True


def candidates(problem: Problem, device: Device) -> Iterator[PersistentCandidate]:
    """The kernel in every form that holds a channel. Raises Unfit, with the reason, where there is none."""
    if not problem.plain:
        raise Unfit("it knows no activation, second gradient or residual")
    try:
        for form, partition in resident_forms(_named(problem), device):
            yield PersistentCandidate(problem, device, form, partition)
    except Refusal as refusal:
        raise Unfit(str(refusal)) from refusal


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> PersistentCandidate:
    """The candidate that had this recipe."""
    for candidate in candidates(problem, device):
        if candidate.recipe == recipe:
            return candidate
    raise Unfit(f"no channel fits {recipe['slices']} blocks")


class PersistentCandidate:
    """One launch; the order of all additions is fixed."""

    origin = "gradkern persistent"
    notes: frozenset[Note] = frozenset({"compiles_once"})
    workspace = 0

    def __init__(self, problem: Problem, device: Device, form: PersistentForm, partition: Partition) -> None:
        self.name = f"persistent_{form.slices}_slices"
        self.recipe = {"slices": form.slices}
        self.alone: LaunchPlan | None = None
        self._problem, self._device, self._form, self._partition = problem, device, form, partition

    def prepare(self) -> None:
        if self.alone is None:
            try:
                self.alone = persistent_plan(self._form, self._partition, self._device, list(_named(self._problem)))
            except Refusal as refusal:
                raise Unfit(str(refusal)) from refusal

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.alone is None:
            raise RuntimeError("prepare has not been called")
        self.alone(inputs, outputs, stream)


def _named(problem: Problem) -> Named:
    tensors = {name: getattr(problem, name) for name in NAMES}
    return {NAMES[name]: (name, tensor) for name, tensor in tensors.items() if tensor is not None}

"""Candidates of gradkern's own that read memory once: see gradkern/cuda/whole_kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Refusal
from gradkern.channel_kernels.persistent_form import Shares, WholeForm
from gradkern.channel_kernels.persistent_plan import Named, WholePlan, held_forms, launched
from gradkern.cuda.device import Device
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.batch_norm.cuda.sync import NAMES
from gradkern.search.candidate import Note, Unfit

__all__ = ["WholeChannels", "candidates", "rebuild"]


def candidates(problem: Problem, device: Device) -> Iterator[WholeChannels]:
    """The kernel in every form that holds a channel. Raises Unfit, with the reason, where there is none."""
    try:
        for form, shares in held_forms(_named(problem), device):
            yield WholeChannels(problem, device, form, shares)
    except Refusal as refusal:
        raise Unfit(str(refusal)) from refusal


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> WholeChannels:
    """The candidate that had this recipe."""
    for candidate in candidates(problem, device):
        if candidate.recipe == recipe:
            return candidate
    raise Unfit(f"no channel fits {recipe['slices']} blocks")


class WholeChannels:
    """One launch; the order of all additions is fixed."""

    origin = "gradkern whole channels"
    notes: frozenset[Note] = frozenset({"compiles_once"})
    workspace = 0

    def __init__(self, problem: Problem, device: Device, form: WholeForm, shares: Shares) -> None:
        self.name = f"whole_channels_{form.slices}_slices"
        self.recipe = {"slices": form.slices}
        self.alone: WholePlan | None = None
        self._problem, self._device, self._form, self._shares = problem, device, form, shares

    def prepare(self) -> None:
        if self.alone is None:
            try:
                self.alone = launched(self._form, self._shares, self._device, list(_named(self._problem)))
            except Refusal as refusal:
                raise Unfit(str(refusal)) from refusal

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.alone is None:
            raise RuntimeError("prepare has not been called")
        self.alone(inputs, outputs, stream)


def _named(problem: Problem) -> Named:
    tensors = {name: getattr(problem, name) for name in NAMES}
    return {NAMES[name]: (name, tensor) for name, tensor in tensors.items() if tensor is not None}

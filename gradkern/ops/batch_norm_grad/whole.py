"""Candidates of gradkern's own that read memory once: see cuda_whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, kernel_of_form
from gradkern.memory import is_dense
from gradkern.ops.batch_norm_grad.cuda_whole_form import ARGUMENTS, Form, Shares, forms
from gradkern.ops.batch_norm_grad.parts import NAMES
from gradkern.ops.batch_norm_grad.problem import Problem
from gradkern.search.candidate import Note, Unfit

__all__ = ["WholeChannels", "candidates", "rebuild"]

_CLUSTERS = (9, 0)  # the first capability with clusters and bulk copies
_LEAST = 256  # bytes of a copy
_LARGE_CLUSTERS = (9, 10)  # majors that take 16 blocks; others 8


def candidates(problem: Problem, which: Device) -> Iterator[WholeChannels]:
    """The kernel in every form that holds a channel. Raises Unfit, with the reason, where there is none."""
    for form, shares in _forms(problem, which):
        yield WholeChannels(problem, which, form, shares)


def rebuild(problem: Problem, which: Device, recipe: Mapping[str, Any]) -> WholeChannels:
    """The candidate that had this recipe."""
    for form, shares in _forms(problem, which):
        if form.slices == recipe["slices"]:
            return WholeChannels(problem, which, form, shares)
    raise Unfit(f"no channel fits {recipe['slices']} blocks")


class WholeChannels:
    """One launch without scratch memory; the order of all additions is fixed."""

    origin = "gradkern whole channels"
    notes: frozenset[Note] = frozenset({"compiles_once"})
    workspace = 0

    def __init__(self, problem: Problem, which: Device, form: Form, shares: Shares) -> None:
        self.name = f"whole_channels_{form.slices}_slices"
        self.recipe = {"slices": form.slices}
        self._problem, self._device, self._form, self._shares = problem, which, form, shares
        self._launch: Launch | None = None

    def prepare(self) -> None:
        if self._launch is not None:
            return
        form, shares = self._form, self._shares
        builder = "gradkern.ops.batch_norm_grad.cuda_whole:build"
        kernel = kernel_of_form(self._device, builder, form, arguments=len(ARGUMENTS), cluster=form.slices)
        resident = kernel.resident_blocks(form.threads, form.slices)
        if not resident:
            raise Unfit(f"no cluster of {form.slices} blocks of {form.threads} threads fits the device")
        wanted = [name for name in ("dX", "dScale", "dBias") if getattr(self._problem, name) is not None]
        given = [NAMES[name] for name in ("dY", "X", "Scale", "saved_mean", "saved_inv_std", *wanted)]
        arguments = [getattr(shares, name, 0) for name in ARGUMENTS]
        changing = [ARGUMENTS.index(name) for name in given]
        grid = min(resident, shares.items * form.slices)
        self._launch = Launch(kernel, grid, form.threads, arguments, changing, form.slices)

    def alone(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        """The launch by itself: in any thread, and in whatever context."""
        if self._launch is None:
            raise RuntimeError("prepare has not been called")
        self._launch((*inputs, *outputs), stream)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        self.alone(inputs, outputs, stream)


def _forms(problem: Problem, which: Device) -> Iterator[tuple[Form, Shares]]:
    if which.capability < _CLUSTERS:
        raise Unfit("it needs clusters of blocks, from compute capability 9.0")
    if problem.dX is None:
        raise Unfit("without dX nothing is read twice")
    for name in ("X", "dY", "dX", "Scale", "saved_mean", "saved_inv_std", "dScale", "dBias"):
        tensor = getattr(problem, name)
        if tensor is not None and not is_dense(tensor):
            raise Unfit(f"{name}: it does not lie end to end in the order N, C, ...")
        if tensor is not None and len(tensor.shape) > 1 and tensor.alignment % 16:
            raise Unfit(f"{name}: it does not begin at a multiple of 16 bytes")
    outputs = frozenset(NAMES[name] for name in ("dX", "dScale", "dBias") if getattr(problem, name) is not None)
    most = 16 if which.capability[0] in _LARGE_CLUSTERS else 8
    found = forms(
        problem.dtype,
        problem.Scale.dtype.name,
        problem.saved_mean.dtype.name,
        outputs,
        (problem.X.shape[0], problem.channels, problem.positions),
        which.shared_bytes,
        most,
    )
    made = [each for each in found if each[1].row >= _LEAST]
    if not made:
        raise Unfit("a channel does not fit the shared memory of a cluster of blocks, or its planes are too small")
    yield from made

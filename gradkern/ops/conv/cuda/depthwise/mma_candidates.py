"""Candidates for the dW of a depthwise convolution on tensor cores, see `mma_kernel` for how they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, kernel_of_form
from gradkern.cuda.scratch import scratch
from gradkern.ops.conv.cuda.depthwise.form import ARGUMENTS
from gradkern.ops.conv.cuda.depthwise.mma_form import MmaForm
from gradkern.ops.conv.cuda.depthwise.mma_tiling import forms
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import Note, Unfit

__all__ = ["OWN_KERNELS", "DepthwiseMma", "candidates", "rebuild"]

OWN_KERNELS = True


def candidates(problem: Problem, device: Device) -> Iterator[DepthwiseMma]:
    """The kernel with more and with fewer channels in a block; raises Unfit where it has no form."""
    depthwise = DepthwiseProblem.of(problem)
    for form in forms(depthwise, device):
        yield DepthwiseMma(form, device, depthwise.images)


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> DepthwiseMma:
    """The candidate that had this recipe."""
    for candidate in candidates(problem, device):
        if candidate.recipe == recipe:
            return candidate
    raise Unfit(f"no kernel takes {recipe['channels']} channels here")


class DepthwiseMma:
    """One launch, whose blocks take channels and a run of the rows of all images."""

    origin = "gradkern depthwise on tensor cores"
    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(self, form: MmaForm, device: Device, images: int) -> None:
        self.form, self.device, self.images = form, device, images
        self.workspace = 0
        self._launch: Launch | None = None
        self.name = f"depthwise_mma_{form.channels}_channels"
        self.recipe = {"channels": form.channels}

    def prepare(self) -> None:
        if self._launch is not None:
            return
        form = self.form
        builder = "gradkern.ops.conv.cuda.depthwise.mma_kernel:build"
        kernel = kernel_of_form(self.device, builder, form, arguments=len(ARGUMENTS))
        resident = kernel.resident_blocks(form.threads)
        if resident < form.groups:
            raise Unfit(f"{form.groups} blocks of {form.shared_bytes} bytes of shared memory do not fit")
        chunks = form.chunks(self.images, resident)
        arguments = [{"images": self.images, "chunks": chunks}.get(name, 0) for name in ARGUMENTS]
        self.workspace = 4 * chunks * form.total_channels * form.all_taps
        addresses = range(ARGUMENTS.index("images"))
        self._launch = Launch(
            kernel, min(form.groups * chunks, resident), form.threads, arguments, addresses, cooperative=True
        )

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self._launch is None:
            raise RuntimeError("prepare has not been called")
        (dY, X), (dW,) = inputs, outputs
        self._launch((X, dY, dW, workspace, scratch(self.device, stream, 0)[0]), stream)

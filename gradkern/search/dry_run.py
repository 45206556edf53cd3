"""Dry runs of searches: collect every kernel that a search would compile, and run nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.spec import KernelSpec
from gradkern.errors import GradkernError
from gradkern.search.bench import ask_for_kernels
from gradkern.search.candidate import Candidate, Note
from gradkern.search.implementation import Task


class Untried:
    """A placeholder for the candidate that a search would choose."""

    name = origin = "untried"
    notes: frozenset[Note] = frozenset()
    workspace = 0
    recipe: Mapping[str, Any] = {}

    def prepare(self) -> None:
        pass

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        raise RuntimeError("a dry run cannot be called")


def specs_of(task: Task, device: Device) -> list[KernelSpec]:
    """The kernels that a search for this task compiles."""
    with dry_run(device) as dry:
        ask_for_candidates(replace(task, sources=tuple(replace(each, device=dry) for each in task.sources)), dry)
    return list(dry.specs)


def ask_for_candidates(task: Task, device: DryRunDevice, search: bool = True, pin: str | None = None) -> Untried:
    """Prepare candidates with gradkern's own kernels: all of them for a search, else the first available, or the pinned
    one.
    """
    found = 0
    for source in task.sources:
        with suppress(Refusal, GradkernError, ImportError):
            for candidate in source.candidates() if source.compiles else ():
                if pin in (None, candidate.name):
                    found += _prepared(candidate)
                if found and not search:
                    return Untried()
    if search and pin is None:
        ask_for_kernels(task, device)
    return Untried()


def _prepared(candidate: Candidate) -> bool:
    if "compiles_once" not in candidate.notes:
        return False
    try:
        candidate.prepare()
    except (Refusal, GradkernError, ImportError):
        return False
    return True

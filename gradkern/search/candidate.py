"""Candidates: the implementations that a search compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

__all__ = ["Candidate", "Note"]

Note = Literal["nondeterministic", "tf32", "reduced_precision", "compiles", "compiles_once"]


class Candidate(Protocol):
    """One way to compute given outputs from given inputs.

    name       unique among the candidates of one problem and the same in every process: it is stored, and
               `Policy.kernel` pins it
    origin     candidates of one origin may share a fault (one engine of one library); different origins are independent
    notes      nondeterministic: the bits may differ from run to run; tf32: float32 is multiplied in TF32;
               reduced_precision: it accumulates in less than float32; compiles: its preparation compiles code;
               compiles_once: the code is cached on disk, so that its time does not count for a search
    workspace  bytes of scratch memory, at an address that is a multiple of 256; known once `prepare` has returned
    recipe     its config: what its implementation needs to build it again, as JSON values
    """

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def notes(self) -> frozenset[Note]: ...
    @property
    def workspace(self) -> int: ...
    @property
    def recipe(self) -> Mapping[str, Any]: ...

    def prepare(self) -> None:
        """Do all that takes time, once (finalise a plan, compile and load kernels). Raises Refusal."""
        ...

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        """Enqueue on `stream`, by addresses. The device's context is current; nothing is allocated or waited for."""
        ...

"""What a search chooses among."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar

__all__ = ["Candidate", "Note", "Unfit", "with_recipe"]

Note = Literal["nondeterministic", "tf32", "reduced_precision", "compiles", "compiles_once"]


class Unfit(Exception):  # noqa: N818  not an error: the search goes on to the next
    """Why a candidate cannot run here. The search collects it; callers see it when no candidate is left."""


class Candidate(Protocol):
    """One way to compute given outputs from given inputs.

    name       unique among the candidates of one problem and the same in every process: the store has it, and
               `Policy.kernel` pins it
    origin     candidates of one origin may share a fault (one engine of one library); those of two are independent
    notes      nondeterministic: the bits may differ from run to run; tf32: float32 is multiplied in TF32;
               reduced_precision: it adds up in less than float32; compiles: its preparation compiles code;
               compiles_once: code that is kept on disk, so that the time for it is no search's
    workspace  bytes of scratch memory, at an address that is a multiple of 256; known once `prepare` has returned
    recipe     all that the module it comes from needs to make it again, as JSON values
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
        """Do once all that takes time (finalise a plan, compile and load kernels); raises Unfit."""
        ...

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        """Enqueue on `stream`, by addresses. The device's context is current; nothing is allocated or waited for."""
        ...


Some = TypeVar("Some", bound=Candidate)


def with_recipe(candidates: Iterable[Some], recipe: Mapping[str, Any], missing: str) -> Some:
    """The one of this recipe. Raises Unfit, which says what is missing, where there is none."""
    for candidate in candidates:
        if candidate.recipe == recipe:
            return candidate
    raise Unfit(missing)

"""Candidates: the implementations that a search compares, and those that a policy admits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gradkern.call import Refusal
from gradkern.policy import Policy

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


@dataclass(frozen=True, slots=True)
class Limits:
    """The memory that candidates may need, and the time that trials may take, in seconds."""

    workspace: int
    seconds: float = 3.0


def ready(candidate: Candidate, policy: Policy, workspace: int) -> Candidate:
    """The candidate, prepared. Raises Refusal if the policy does not admit it, or if it needs more memory."""
    if "reduced_precision" in candidate.notes:
        raise Refusal("it adds up in less than float32")
    if "tf32" in candidate.notes and not policy.allow_tf32:
        raise Refusal("it multiplies in TF32, and the policy does not allow it")
    if "nondeterministic" in candidate.notes and policy.deterministic:
        raise Refusal("its bits may differ from run to run, and the policy is deterministic")
    candidate.prepare()
    if candidate.workspace > workspace:
        raise Refusal(f"it needs a workspace of {candidate.workspace:,} bytes; {workspace:,} are allowed")
    return candidate

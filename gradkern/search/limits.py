"""Requirements of candidates, and the candidates that a policy admits."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.call import Refusal
from gradkern.policy import Policy
from gradkern.search.candidate import Candidate

__all__ = ["Limits", "ready"]


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

"""What candidates may need, and which of them a policy admits."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.policy import Policy
from gradkern.search.candidate import Candidate, Unfit

__all__ = ["Limits", "ready"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What candidates may need, and how long the trials may take, in seconds."""

    workspace: int
    seconds: float = 3.0


def ready(candidate: Candidate, policy: Policy, workspace: int) -> Candidate:
    """The candidate, prepared. Raises Unfit where the policy does not admit it, or it needs more memory than this."""
    if "reduced_precision" in candidate.notes:
        raise Unfit("it adds up in less than float32")
    if "tf32" in candidate.notes and not policy.allow_tf32:
        raise Unfit("it multiplies in TF32, which the policy does not allow")
    if "nondeterministic" in candidate.notes and policy.deterministic:
        raise Unfit("its bits may differ from run to run, and the policy is deterministic")
    candidate.prepare()
    if candidate.workspace > workspace:
        raise Unfit(f"it needs a workspace of {candidate.workspace:,} bytes; {workspace:,} are allowed")
    return candidate

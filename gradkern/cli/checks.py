"""What one check of `gradkern doctor` finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. remedy is the command that mends a problem, where there is one; facts are for programs."""

    name: str
    status: Literal["fine", "absent", "problem"]
    text: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def fine(name: str, text: str, /, **facts: Any) -> Check:
    """All is well."""
    return Check(name, "fine", text, None, facts)


def absent(name: str, text: str, /, **facts: Any) -> Check:
    """It is not there, and need not be."""
    return Check(name, "absent", text, None, facts)


def problem(name: str, text: str, remedy: str | None = None, /, **facts: Any) -> Check:
    """Something is wrong."""
    return Check(name, "problem", text, remedy, facts)

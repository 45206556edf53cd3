"""A hint for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

__all__ = ["nearest"]


def nearest(name: Any, known: Iterable[str]) -> str:
    """` (did you mean ...?)` for a misspelt name, or nothing."""
    lower = {each.lower(): each for each in known}
    close = get_close_matches(str(name).lower(), lower, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(lower[each] for each in close)}?)" if close else ""

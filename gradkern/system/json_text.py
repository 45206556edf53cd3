"""JSON of a file or a command line that anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

_DEEPEST = 64  # levels: what gradkern writes has less than ten


def loads(text: str | bytes) -> Any:
    """json.loads, with ValueError also of what is nested so deeply that Python cannot follow."""
    try:
        value: Any = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return value
    raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()

"""Results of searches on disk: one file each, checked by a digest, replaced atomically.

The file's name is a digest of all that the answer depends on; the body repeats it, so that a file put under another's
name is noticed. A result of another version of gradkern, of a library or of the driver, or of another device, has
another name, and is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradkern.search.candidate import Candidate
from gradkern.system import cache_files
from gradkern.system.json_text import loads
from gradkern.system.notice import warn

__all__ = [
    "SUFFIX",
    "Measurement",
    "SearchResult",
    "folder",
    "key_of",
    "load",
    "newest",
    "parsed",
    "path_of",
    "read",
    "save",
    "write",
]

SCHEMA = 5
"""Raised with every change of what a file says, and where what was found is to be searched again. It is part of the
key: files of other schemas are not looked at.
"""
SUFFIX = ".json"
_MAGIC = f"gradkern search {SCHEMA}\n".encode()


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found of one candidate.

    seconds  how long it took with a cold L2; None where it was not timed
    reason   why it is not in the ranking: it could not run, was far too slow, or was not reached; "" where it is
    wrong    its result was wrong
    """

    name: str
    source: str
    origin: str
    recipe: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    workspace: int = 0
    seconds: float | None = None
    reason: str = ""
    wrong: bool = False

    @classmethod
    def of(cls, candidate: Candidate, source: str, seconds: float) -> Measurement:
        recipe, notes = dict(candidate.recipe), tuple(sorted(candidate.notes))
        return cls(candidate.name, source, candidate.origin, recipe, notes, candidate.workspace, seconds)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of one search.

    conditions  all that it depends on
    ranking     the accepted candidates, the winner first
    rejected    the others, with the reasons
    confirmed   two independent results agreed; else there was only one
    seconds     how long the search took
    """

    title: str
    conditions: Mapping[str, Any]
    ranking: tuple[Measurement, ...]
    rejected: tuple[Measurement, ...]
    confirmed: bool
    seconds: float

    @property
    def wrong(self) -> tuple[Measurement, ...]:
        """Those of the rejected that gave wrong results."""
        return tuple(each for each in self.rejected if each.wrong)


def folder() -> Path:
    """Where results of searches are stored."""
    return cache_files.folder("search")


def key_of(conditions: Mapping[str, Any]) -> str:
    """The name of a search's file: a digest of problem, policy, device, driver and libraries."""
    return hashlib.sha256(json.dumps([SCHEMA, conditions], sort_keys=True).encode()).hexdigest()


def load(key: str) -> SearchResult | None:
    """An earlier result; None where there is none, or what is there cannot be used (with a warning)."""
    path = folder() / f"{key}{SUFFIX}"
    try:
        return read(path)
    except OSError:
        return None
    except ValueError as error:
        warn(f"gradkern: {path} is searched again: {error}", stacklevel=2)
        return None


def newest(title: str, most: int) -> Iterator[SearchResult]:
    """Of the results that were stored last, at most so many, those whose titles begin so."""
    begins = f'"title": {json.dumps(title)[:-1]}'.encode()
    for path in cache_files.newest("search")[:most]:
        with contextlib.suppress(OSError, ValueError):
            body = cache_files.unseal(_MAGIC, cache_files.read(path))
            if begins in body:  # which takes far less time than to parse it
                yield parsed(loads(body))


def save(result: SearchResult) -> None:
    """Store a result for other processes. Where nothing can be written, it lives in this process only."""
    with contextlib.suppress(OSError):
        write(result)


def write(result: SearchResult) -> None:
    """Store a result for other processes. Raises OSError where it cannot be written."""
    body = json.dumps(asdict(result), indent=1).encode()
    cache_files.write(path_of(result), cache_files.seal(_MAGIC, body))


def path_of(result: SearchResult) -> Path:
    """Where a result is stored."""
    return folder() / f"{key_of(result.conditions)}{SUFFIX}"


def read(path: Path) -> SearchResult:
    """The result in a file. Raises OSError where it cannot be read, ValueError where it is not what its name says."""
    result = parsed(loads(cache_files.unseal(_MAGIC, cache_files.read(path))))
    if key_of(result.conditions) != path.stem:
        raise ValueError("it answers another question")
    return result


def parsed(data: dict[str, Any]) -> SearchResult:
    """A result from what JSON has of it. Raises ValueError where that is something else."""
    try:
        ranking, rejected = (tuple(map(_measurement, data.pop(name))) for name in ("ranking", "rejected"))
        return SearchResult(**data, ranking=ranking, rejected=rejected)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it lacks or has too much: {error}") from error


def _measurement(data: dict[str, Any]) -> Measurement:
    data["notes"] = tuple(data["notes"])
    return Measurement(**data)

"""What a search found, and where it is kept: one file per question, checked by a digest, replaced atomically.

The file's name is a digest of all that the answer depends on; the body repeats it, so that a file put under another's
name is noticed. What another version of gradkern, of a library, of the driver, or another device found has another
name, and is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradkern.search.candidate import Candidate
from gradkern.system import cache_files

__all__ = ["SUFFIX", "Findings", "Row", "folder", "key_of", "load", "read", "save"]

SCHEMA = 1
SUFFIX = ".json"
_MAGIC = b"gradkern search 1\n"


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one candidate.

    seconds  how long it took with a cold L2; None where it was not timed
    reason   why it is not in the ranking: it could not run, was far too slow, or was not reached; "" where it is
    struck   its result was wrong
    """

    name: str
    source: str
    origin: str
    recipe: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    workspace: int = 0
    seconds: float | None = None
    reason: str = ""
    struck: bool = False

    @classmethod
    def of(cls, candidate: Candidate, source: str, seconds: float) -> Row:
        recipe, notes = dict(candidate.recipe), tuple(sorted(candidate.notes))
        return cls(candidate.name, source, candidate.origin, recipe, notes, candidate.workspace, seconds)


@dataclass(frozen=True, slots=True)
class Findings:
    """The answer to one question: the ranking, the winner first, then those that are not in it, with the reasons."""

    title: str
    question: Mapping[str, Any]
    ranking: tuple[Row, ...]
    others: tuple[Row, ...]
    confirmed: bool  # two independent results agreed; else there was only one
    seconds: float  # what the search took

    @property
    def struck(self) -> tuple[Row, ...]:
        return tuple(row for row in self.others if row.struck)


def folder() -> Path:
    """Where searches are kept."""
    return cache_files.folder("search")


def key_of(question: Mapping[str, Any]) -> str:
    """The name of a question: what is asked, under which policy, of which device, driver and libraries."""
    return hashlib.sha256(json.dumps([SCHEMA, question], sort_keys=True).encode()).hexdigest()


def load(key: str) -> Findings | None:
    """What was found before; None where nothing was, or what is there cannot be used (with a warning)."""
    path = folder() / f"{key}{SUFFIX}"
    try:
        return read(path)
    except OSError:
        return None
    except ValueError as error:
        warnings.warn(f"gradkern: {path} is searched again: {error}", RuntimeWarning, stacklevel=2)
        return None


def save(findings: Findings) -> None:
    """Keep them for other processes. Where nothing can be written, they live in this process only."""
    body = json.dumps(asdict(findings), indent=1).encode()
    with contextlib.suppress(OSError):
        cache_files.replace(folder() / f"{key_of(findings.question)}{SUFFIX}", cache_files.sealed(_MAGIC, body))


def read(path: Path) -> Findings:
    """The findings in a file. Raises OSError where it cannot be read, ValueError where it is not what its name says."""
    data = json.loads(cache_files.opened(_MAGIC, path.read_bytes()))
    try:
        ranking, others = ([Row(**{**row, "notes": tuple(row["notes"])}) for row in data.pop(name)] for name in _ROWS)
        findings = Findings(**data, ranking=tuple(ranking), others=tuple(others))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks or has too much: {error}") from error
    if key_of(findings.question) != path.stem:
        raise ValueError("it answers another question")
    return findings


_ROWS = ("ranking", "others")

"""Results of searches on disk: one file each, checked by a digest, replaced atomically; and bundles, files of many
results, to carry them to machines with the same GPU, driver and libraries.

The file's name is a digest of all that the result depends on. The body repeats it, so that a renamed file is detected.
Results of another version of gradkern, of a library or of the driver, or of another device, have other names and are
never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradkern.search.candidate import Candidate
from gradkern.system import cache_files
from gradkern.system.json_text import loads
from gradkern.system.notice import warn
from gradkern.version import __version__

SCHEMA = 5
"""Raised with every change of the format, and to invalidate earlier results. It is part of the key: files of other
schemas are ignored.
"""
_MAGIC = f"gradkern search {SCHEMA}\n".encode()
_BUNDLE = f"gradkern searches {SCHEMA}\n".encode()


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome for one candidate.

    seconds  its time with a cold L2; None if it was not timed
    reason   why it is not in the ranking: it could not run, was far too slow, or was not reached; "" if it is
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

    conditions  everything that it depends on
    ranking     the accepted candidates, the winner first
    rejected    the others, with the reasons
    confirmed   two independent results agreed; else there was only one
    seconds     the duration of the search
    """

    title: str
    conditions: Mapping[str, Any]
    ranking: tuple[Measurement, ...]
    rejected: tuple[Measurement, ...]
    confirmed: bool
    seconds: float

    @property
    def wrong(self) -> tuple[Measurement, ...]:
        """The rejected candidates with wrong results."""
        return tuple(each for each in self.rejected if each.wrong)


def key_of(conditions: Mapping[str, Any]) -> str:
    """The name of a search's file: a digest of problem, policy, device, driver and libraries."""
    return hashlib.sha256(json.dumps([SCHEMA, conditions], sort_keys=True).encode()).hexdigest()


def load(key: str) -> SearchResult | None:
    """An earlier result; None if there is none, or if the file cannot be used (with a warning)."""
    path = cache_files.path_of("search", key)
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
            if begins in body:  # much faster than parsing it
                yield parsed(loads(body))


def save(result: SearchResult) -> None:
    """Store a result for other processes. If nothing can be written, it is kept in this process only."""
    with contextlib.suppress(OSError):
        write(result)


def write(result: SearchResult) -> None:
    """Store a result for other processes. Raises OSError if it cannot be written."""
    body = json.dumps(asdict(result), indent=1).encode()
    cache_files.write(path_of(result), cache_files.seal(_MAGIC, body))


def path_of(result: SearchResult) -> Path:
    """The path of a stored result."""
    return cache_files.path_of("search", key_of(result.conditions))


def read(path: Path) -> SearchResult:
    """The result in a file. Raises OSError if it cannot be read, ValueError if its content does not match its name."""
    result = parsed(loads(cache_files.unseal(_MAGIC, cache_files.read(path))))
    if key_of(result.conditions) != path.stem:
        raise ValueError("it answers another question")
    return result


def write_bundle(path: Path, results: Iterable[SearchResult]) -> None:
    """Write results into a file. Raises OSError where it cannot be written."""
    document = {"gradkern": __version__, "results": [asdict(each) for each in results]}
    cache_files.write_named(path, cache_files.seal(_BUNDLE, json.dumps(document, indent=1).encode()))


def read_bundle(path: Path) -> list[SearchResult]:
    """The results in a file. It must be the caller's own.

    Raises OSError where it cannot be read, ValueError, with the reason, where it is damaged, another user's, or of
    another version of gradkern, that would ignore them.
    """
    document: Any = loads(cache_files.unseal(_BUNDLE, cache_files.read_own(path)))
    if document["gradkern"] != __version__:
        raise ValueError(f"it is of gradkern {document['gradkern']}; this is {__version__}")
    return [parsed(each) for each in document["results"]]


def parsed(data: dict[str, Any]) -> SearchResult:
    """A result from its JSON values. Raises ValueError if these are not a result."""
    try:
        ranking, rejected = (tuple(map(_measurement, data.pop(name))) for name in ("ranking", "rejected"))
        return SearchResult(**data, ranking=ranking, rejected=rejected)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it lacks or has too much: {error}") from error


def _measurement(data: dict[str, Any]) -> Measurement:
    data["notes"] = tuple(data["notes"])
    return Measurement(**data)

"""Results of searches in one file, to carry them to machines with the same GPU, driver and libraries."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradkern.search import store
from gradkern.search.store import SearchResult
from gradkern.system import cache_files
from gradkern.system.json_text import loads
from gradkern.version import __version__

__all__ = ["read", "write"]

_MAGIC = f"gradkern searches {store.SCHEMA}\n".encode()


def write(path: Path, results: Iterable[SearchResult]) -> None:
    """Write results into a file. Raises OSError where it cannot be written."""
    document = {"gradkern": __version__, "results": [asdict(each) for each in results]}
    path.write_bytes(cache_files.seal(_MAGIC, json.dumps(document, indent=1).encode()))


def read(path: Path) -> list[SearchResult]:
    """The results in a file. It must be the caller's own.

    Raises OSError where it cannot be read, ValueError, with the reason, where it is damaged, another user's, or of
    another version of gradkern, that would ignore them.
    """
    document: Any = loads(cache_files.unseal(_MAGIC, cache_files.read_own(path)))
    if document["gradkern"] != __version__:
        raise ValueError(f"it is of gradkern {document['gradkern']}; this is {__version__}")
    return [store.parsed(each) for each in document["results"]]

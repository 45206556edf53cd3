"""`gradkern cache`: what is kept on disk, whether it is sound, and its removal.

A kernel for GPUs is one file with a digest. A kernel for CPUs is a folder of Numba's own files, an index and the
machine code, which have no digest: they are checked to be readable and whole, without running what is in them. What
a search has found is one file with a digest, too.
"""

from __future__ import annotations

import argparse
import json
import pickletools
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from gradkern import __version__
from gradkern.cli import DONE, FAILED, JSON_SCHEMA
from gradkern.system import cache_files

__all__ = ["count", "kernels", "run", "searches", "size"]


def run(options: argparse.Namespace) -> int:
    """Do what `gradkern cache ACTION` asks for."""
    facts, lines, code = {"info": _info, "verify": _verify, "clear": _clear}[options.action](options)
    if options.json:
        print(json.dumps({"schema": JSON_SCHEMA, "gradkern": __version__, **facts}, indent=2))
    else:
        print("\n".join(lines))
    return code


Answer = tuple[dict[str, Any], list[str], int]


def count() -> tuple[int, int]:
    """How many kernels are kept, and how many searches."""
    found = {name: sum(1 for _ in _entries(name)) for name in cache_files.KEPT}
    searched = found.pop("search")
    return sum(found.values()), searched


def kernels(number: int) -> str:
    """A number of kernels in words."""
    return f"{number} kernel{'' if number == 1 else 's'}"


def searches(number: int) -> str:
    """A number of searches in words."""
    return f"{number} search{'' if number == 1 else 'es'}"


def size() -> int:
    """How many bytes all that is kept takes."""
    return sum(_bytes(name) for name in cache_files.KEPT)


def _info(_: argparse.Namespace) -> Answer:
    reason = cache_files.why_not_writable()
    facts: dict[str, Any] = {"folder": str(cache_files.root()), "writable": reason is None, "providers": {}}
    lines = [f"{cache_files.root()}" + (f" (cannot be written: {reason}; nothing is kept)" if reason else "")]
    for name in cache_files.KEPT:
        entries, taken = list(_entries(name)), _bytes(name)
        if name == "search":
            facts["searches"] = {"kept": len(entries), "bytes": taken}
            lines.append(f"  {name} {searches(len(entries))}, {taken:,} bytes")
            continue
        versions = len({entry.parent for entry in entries}) if name == "cpu" else None
        facts["providers"][name] = {"kernels": len(entries), "bytes": taken, "versions": versions}
        of = f" of {versions} versions" if versions and versions > 1 else ""
        lines.append(f"  {name:<6} {kernels(len(entries))}{of}, {taken:,} bytes")
    return facts, lines, DONE


def _verify(options: argparse.Namespace) -> Answer:
    checked: dict[str, int] = {}
    bad: list[tuple[Path, str]] = []
    for name in cache_files.KEPT:
        entries = list(_entries(name))
        checked[name] = len(entries)
        bad += [(entry, reason) for entry in entries if (reason := _fault(name, entry)) is not None]
    lines = [
        f"cpu    {kernels(checked['cpu'])} whole and readable, unless named below; Numba's files have no digest",
        f"cuda   {kernels(checked['cuda'])} as the digest says, unless named below",
        f"search {searches(checked['search'])} as the digest says, unless named below",
    ]
    left: list[Path] = []
    for entry, reason in bad:
        removed = options.repair and _remove(entry)
        if not removed:
            left.append(entry)
        lines.append(f"bad    {entry}: {reason}" + (" (removed)" if removed else ""))
    if bad and not options.repair:
        lines.append("remove the bad ones: gradkern cache verify --repair")
    facts = {
        "folder": str(cache_files.root()),
        "checked": checked,
        "bad": [{"path": str(entry), "reason": reason, "removed": entry not in left} for entry, reason in bad],
    }
    return facts, lines, FAILED if left else DONE


def _clear(_: argparse.Namespace) -> Answer:
    (found, searched), taken = count(), size()
    left = [folder for folder in map(cache_files.folder, cache_files.KEPT) if folder.exists() and not _remove(folder)]
    for folder in left:
        print(f"{folder} cannot be removed whole", file=sys.stderr)
    numbers = {"kernels": found, "searches": searched, "bytes": taken}
    facts = {"folder": str(cache_files.root()), **numbers, "left": [str(each) for each in left]}
    line = f"removed {kernels(found)} and {searches(searched)}, {taken:,} bytes, from {cache_files.root()}"
    return facts, [line], FAILED if left else DONE


def _entries(name: str) -> Iterator[Path]:
    """What is kept under one name: cuda/KEY.cubin; search/KEY.json; cpu/VERSION/KERNEL, a folder that has an index once
    it is compiled.
    """
    if name == "cuda":
        yield from sorted(cache_files.folder(name).glob("*.cubin"))
    elif name == "search":
        yield from sorted(cache_files.folder(name).glob("*.json"))
    else:
        yield from sorted(each for each in cache_files.folder(name).glob("*/*") if any(each.rglob("*.nbi")))


def _bytes(name: str) -> int:
    return sum(path.stat().st_size for path in cache_files.folder(name).rglob("*") if path.is_file())


def _fault(name: str, entry: Path) -> str | None:
    """What is wrong with an entry; None where nothing is."""
    try:
        if name == "cuda":
            import_module("gradkern.cuda.cache").read(entry)
        elif name == "search":
            import_module("gradkern.search.store").read(entry)
        else:
            _check_numba(entry)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except (ValueError, KeyError) as error:
        return str(error)
    return None


def _check_numba(entry: Path) -> None:
    """Read Numba's files of one kernel, opcode by opcode: an index is two pickles, the machine code is one."""
    indices, codes = list(entry.rglob("*.nbi")), list(entry.rglob("*.nbc"))
    if not codes:
        raise ValueError("it has an index and no machine code")
    for path in (*indices, *codes):
        with path.open("rb") as file:
            try:
                for _ in range(2 if path in indices else 1):
                    for _ in pickletools.genops(file):
                        pass
            except Exception as error:  # a damaged pickle raises anything
                raise ValueError(f"{path.name} is damaged: {error}") from error


def _remove(path: Path) -> bool:
    """Remove a file or a folder; whether it is gone."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return not path.exists()

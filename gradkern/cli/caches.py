"""`gradkern cache`: what is cached on disk, whether it is sound, and its removal. A kernel is a file, and so are a pack
of many and what a search has found; each has a digest.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gradkern.cli import DONE, FAILED, print_json
from gradkern.errors import GradkernError
from gradkern.system import cache_files
from gradkern.system.cache_files import FOLDERS

_READERS = {
    "cpu": "gradkern.cpu.cache",
    "cuda": "gradkern.cuda.cache",
    "packs": "gradkern.cuda.packs",
    "search": "gradkern.search.store",
}


def run(options: argparse.Namespace) -> int:
    """Do what `gradkern cache ACTION` asks for."""
    actions = {"info": _info, "verify": _verify, "clear": _clear, "export": _export, "import": _import}
    facts, lines, code = actions[options.action](options)
    if options.json:
        print_json(**facts)
    else:
        print("\n".join(lines))
    return code


_NOUNS = {"cpu": "kernel", "cuda": "kernel", "packs": "pack", "search": "search"}

Answer = tuple[dict[str, Any], list[str], int]


def count() -> tuple[int, int]:
    """How many kernels are cached, those in packs apart, and how many searches."""
    return sum(len(cache_files.entries(name)) for name in ("cpu", "cuda")), len(cache_files.entries("search"))


def counted(number: int, noun: str) -> str:
    """Such as "1 kernel" or "2 searches"."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def size() -> int:
    """How many bytes all that is cached takes."""
    return sum(cache_files.size(name) for name in FOLDERS)


def _info(_: argparse.Namespace) -> Answer:
    reason = cache_files.why_not_writable()
    facts: dict[str, Any] = {"folder": str(cache_files.root()), "writable": reason is None, "providers": {}}
    lines = [f"{cache_files.root()}" + (f" (cannot be written: {reason}; nothing is kept)" if reason else "")]
    for name in FOLDERS:
        number, taken, unused = len(cache_files.entries(name)), cache_files.size(name), cache_files.why_not_used(name)
        if _NOUNS[name] == "kernel":
            facts["providers"][name] = {"kernels": number, "bytes": taken, "unused": unused}
        else:
            facts["searches" if name == "search" else name] = {"kept": number, "bytes": taken, "unused": unused}
        text = f"  {name:<6} {counted(number, _NOUNS[name])}, {taken:,} bytes"
        lines.append(text + (f" (not used: {unused})" if unused else ""))
    return facts, lines, DONE


def _verify(options: argparse.Namespace) -> Answer:
    checked: dict[str, int] = {}
    bad: list[tuple[str, Path, str]] = []
    for name in FOLDERS:
        entries = cache_files.entries(name)
        checked[name] = len(entries)
        bad += [(name, entry, reason) for entry in entries if (reason := _fault(name, entry)) is not None]
    lines = [f"{name:<6} {counted(number, _NOUNS[name])} checked" for name, number in checked.items()]
    left: list[Path] = []
    for name, entry, reason in bad:
        removed = options.repair and cache_files.remove(name, entry)
        if not removed:
            left.append(entry)
        lines.append(f"bad    {entry}: {reason}" + (" (removed)" if removed else ""))
    if bad and not options.repair:
        lines.append("remove the bad ones: gradkern cache verify --repair")
    facts = {
        "folder": str(cache_files.root()),
        "checked": checked,
        "bad": [{"path": str(entry), "reason": reason, "removed": entry not in left} for _, entry, reason in bad],
    }
    return facts, lines, FAILED if left else DONE


def _clear(options: argparse.Namespace) -> Answer:
    """On a terminal it asks before it removes."""
    (found, searched), packed, taken = count(), len(cache_files.entries("packs")), size()
    numbers = {"kernels": found, "searches": searched, "bytes": taken, "packs": packed}
    facts: dict[str, Any] = {"folder": str(cache_files.root()), **numbers, "left": {}}
    if options.dry_run:
        return {**facts, "dry_run": True}, [f"would remove {_amount(numbers)} from {cache_files.root()}"], DONE
    asks = not (options.yes or options.json) and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if asks and any(numbers.values()):
        print(f"This removes {_amount(numbers)} from {cache_files.root()}.")
        print("Kernels are compiled again when they are needed, searches made again; packs have to be installed again.")
        if input("Remove them? [y/N] ").strip().lower() not in ("y", "yes"):
            return facts, ["nothing is removed"], FAILED
    left: dict[str, str] = {}
    for name in FOLDERS:
        reason = cache_files.clear(name)
        if reason is not None:
            left[str(cache_files.folder(name))] = reason
            print(f"{cache_files.folder(name)} is not removed: {reason}", file=sys.stderr)
    (remaining, unsearched), rest = count(), size()
    numbers = {"kernels": found - remaining, "searches": searched - unsearched, "bytes": taken - rest}
    numbers["packs"] = packed - len(cache_files.entries("packs"))
    facts = {"folder": str(cache_files.root()), **numbers, "left": left}
    return facts, [f"removed {_amount(numbers)} from {cache_files.root()}"], FAILED if left else DONE


def _amount(numbers: Mapping[str, int]) -> str:
    text = f"{counted(numbers['kernels'], 'kernel')} and {counted(numbers['searches'], 'search')}"
    text += f" and {counted(numbers['packs'], 'pack')}" if numbers["packs"] else ""
    return f"{text}, {numbers['bytes']:,} bytes,"


def _export(options: argparse.Namespace) -> Answer:
    """Write the results of searches to a bundle. Entries that cannot be read are left out and reported."""
    store = import_module(_READERS["search"])
    found: list[Any] = []
    bad = 0
    for entry in cache_files.entries("search"):
        reason = _fault("search", entry)
        if reason is None:
            found.append(store.read(entry))
        else:
            bad += 1
            print(f"left out: {entry}: {reason}", file=sys.stderr)
    try:
        store.write_bundle(Path(options.file), found)
    except OSError as error:
        raise GradkernError(f"{options.file} cannot be written: {error.strerror or error}") from error
    facts = {"file": options.file, "searches": len(found), "bad": bad}
    return facts, [f"{counted(len(found), 'search')} written to {options.file}"], FAILED if bad else DONE


def _import(options: argparse.Namespace) -> Answer:
    """Take over what is not there. A file that is not as it was written is refused as a whole."""
    store = import_module(_READERS["search"])
    try:
        found = store.read_bundle(Path(options.file))
        new = [each for each in found if not os.path.exists(store.path_of(each))]
        for each in new:
            store.write(each)
    except OSError as error:
        raise GradkernError(f"{error.filename or options.file}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise GradkernError(f"{options.file} is not taken: {error}") from error
    facts = {"file": options.file, "searches": len(found), "new": len(new)}
    return facts, [f"{counted(len(new), 'search')} new of {len(found)} in {options.file}"], DONE


def _fault(name: str, entry: Path) -> str | None:
    """What is wrong with an entry; None where nothing is."""
    try:
        import_module(_READERS[name]).read(entry)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except (ValueError, KeyError) as error:
        return str(error)
    return None

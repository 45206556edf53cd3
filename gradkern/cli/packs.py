"""`gradkern pack`: kernels that come ready. A pack is built without a GPU, installed from a file, and shown."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from gradkern.cli import DONE, FAILED, print_json
from gradkern.cli.caches import counted
from gradkern.cli.catalogue import calls
from gradkern.cli.sizes import Wanted, wanted_of
from gradkern.cli.warmup import calls_of
from gradkern.errors import ArgumentError, GradkernError, ProviderError
from gradkern.system import cache_files, driver, providers
from gradkern.system.progress import bar

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)")

Architecture = tuple[tuple[int, int], bool]
"""A compute capability, and whether kernels are PTX for what is newer."""


def run(options: argparse.Namespace) -> int:
    """Do what `gradkern pack ACTION` asks for."""
    return {"build": _build, "install": _install, "info": _info}[options.action](options)


def _build(options: argparse.Namespace) -> int:
    """One pack for each architecture, from the catalogue or from a file of calls."""
    missing = providers.missing("cuda")
    if missing is not None:
        raise ProviderError(f"gradkern pack build: {missing}")
    builder: Any = import_module("gradkern.cuda.build_pack")
    architectures = [_architecture(each) for each in options.arch.split(",")] if options.arch else [_own_architecture()]
    target = Path(options.output) if options.output else None
    if target is not None and len(architectures) > 1 and not target.is_dir():
        raise ArgumentError(f"gradkern pack build: {target} is no folder; several architectures are a file each")
    question, paths = _question(options), dict[Architecture, Path]()
    for architecture in architectures:
        path = _path(architecture, target)
        if options.refresh and builder.is_current(path, question):
            print(f"{path}: it is as it would be built now")
            continue
        _require_writable(path)
        paths[architecture] = path
    if paths:
        _build_all(paths, _wanted(options), options, question)
    return DONE


def _question(options: argparse.Namespace) -> str:
    """A digest of the calls that kernels are wanted for, and of the GPU if they are for this one's size."""
    source: Any = list(calls())
    if options.calls:
        with contextlib.suppress(OSError, UnicodeDecodeError):  # `calls_of` reports them
            source = Path(options.calls).read_text(encoding="utf-8")
    answer = None if options.arch else driver.ask()
    return hashlib.sha256(json.dumps([source, answer.gpus[0].name if answer else None]).encode()).hexdigest()


def _wanted(options: argparse.Namespace) -> list[Wanted]:
    every = calls_of(options.calls) if options.calls else map(wanted_of, calls())
    return [each for each in every if "cuda" in each.operator.providers]


def _path(architecture: Architecture, target: Path | None) -> Path:
    packs: Any = import_module("gradkern.cuda.packs")
    if target is None:
        return packs.installed_path(*architecture)
    return target / packs.name_of(*architecture) if target.is_dir() else target


def _build_all(
    paths: Mapping[Architecture, Path], wanted: list[Wanted], options: argparse.Namespace, question: str
) -> None:
    builder: Any = import_module("gradkern.cuda.build_pack")
    packs: Any = import_module("gradkern.cuda.packs")
    start = time.perf_counter()
    have: dict[str, Any] = {}
    for path in paths.values():
        have |= builder.earlier(path) if options.refresh else {}
    specs = {each: _specs(builder, each, wanted, bool(options.arch)) for each in paths}
    # A kernel's architectures follow one another: half of its compilation is the same for all.
    alike: dict[Any, list[Any]] = {}
    for spec in chain.from_iterable(specs.values()):
        alike.setdefault(spec.on((0, 0)), []).append(spec)
    names, count = ", ".join(packs.name_of(*each) for each in paths), sum(map(len, specs.values()))
    with closing(builder.compiled(chain.from_iterable(alike.values()), options.jobs, have)) as coming:
        made: dict[str, Any] = dict(bar(f"compiling {names}", coming, lambda each: each[1].name, count))
    seconds = time.perf_counter() - start
    for architecture, path in paths.items():
        kernels = {each.digest: made[each.digest] for each in specs[architecture]}
        data: bytes = builder.pack_of(
            kernels, (each.module for each in specs[architecture]), *architecture, calls=question
        )
        _write(path, data)
        packs.reset()
        print(
            f"{path}: {counted(len(kernels), 'kernel')} of {len(wanted)} calls, {len(data):,} bytes, in {seconds:.0f} s"
        )


def _specs(builder: Any, architecture: Architecture, wanted: list[Wanted], for_others: bool) -> list[Any]:
    """What the calls take on the GPUs of this architecture: those that are known, or the one that is here."""
    capability, _ = architecture
    devices: list[Any] = builder.known_devices(*architecture) if for_others else [builder.own_device()]
    if not devices:
        raise ArgumentError(
            f"gradkern pack build: no GPU is known of which sm_{capability[0]}{capability[1]} is the architecture;"
            f" known are {', '.join(builder.known_architectures())}"
        )
    dry_run: Any = import_module("gradkern.cuda.dry_run")
    found: dict[Any, None] = {}
    for device in devices:
        with dry_run.dry_run(device) as dry:
            for each in bar("planning", wanted, lambda each: each.name):
                try:
                    each.dry_plan("cuda")
                except GradkernError as error:
                    print(f"left out: {each.name}: {error}", file=sys.stderr)
        found |= dict.fromkeys(spec.on(*architecture) for spec in dry.specs)
    return list(found)


def _install(options: argparse.Namespace) -> int:
    """Take a pack from a file, if it is whole and fits."""
    packs: Any = import_module("gradkern.cuda.packs")
    try:
        path, about = packs.install(Path(options.file))
    except OSError as error:
        raise GradkernError(f"{error.filename or options.file}: {error.strerror or error}") from error
    except ValueError as error:
        raise GradkernError(f"{options.file} is not taken: {error}") from error
    print(f"{path}: {counted(about.kernels, 'kernel')}")
    return DONE


def _info(options: argparse.Namespace) -> int:
    """Every pack there is; the exit code is 1 where one is not used."""
    packs: Any = import_module("gradkern.cuda.packs")
    found: list[Any] = packs.found()
    if options.json:
        print_json(packs=[{**asdict(each), "path": str(each.path)} for each in found])
    else:
        print(
            "\n".join(_lines(found))
            or "no pack: `gradkern pack build` makes one, `gradkern pack install FILE` takes one"
        )
    return FAILED if any(each.fault for each in found) else DONE


def _lines(found: Iterable[Any]) -> Iterable[str]:
    for each in found:
        yield f"{each.path}, {each.size:,} bytes" + (f" (not used: {each.fault})" if each.fault else "")
        if each.about is not None:
            capability = ".".join(map(str, each.about.capability))
            later = " and later, as PTX" if each.about.ptx else ""
            made = f"compute capability {capability}{later}, gradkern {each.about.gradkern}"
            yield f"  {counted(each.about.kernels, 'kernel')} for {made}"
            yield f"  compiled by {', '.join(each.about.compilers)}"


def _architecture(text: str) -> Architecture:
    match = _ARCHITECTURE.fullmatch(text.strip())
    if match is None:
        raise ArgumentError(f"gradkern pack build: architecture {text!r}; expected a name as sm_90 or compute_90")
    return (int(match[2]), int(match[3])), match[1] == "compute"


def _own_architecture() -> Architecture:
    answer = driver.ask()
    if answer is None or not answer.gpus:
        raise ArgumentError(
            "gradkern pack build: no GPU is found here; name the architectures to build for: --arch sm_90,sm_80"
        )
    return answer.gpus[0].capability, False


def _require_writable(path: Path) -> None:
    """Before minutes of work."""
    if path.parent == cache_files.folder("packs"):
        reason = cache_files.why_not_writable() or cache_files.why_not_used("packs")
    else:
        reason = None if os.access(path.parent, os.W_OK) and not path.is_dir() else "no file can be written there"
    if reason is not None:
        raise ArgumentError(f"gradkern pack build: {path}: {reason}")


def _write(path: Path, data: bytes) -> None:
    try:
        if path.parent == cache_files.folder("packs"):
            cache_files.write(path, data)
        else:
            cache_files.write_named(path, data)
    except OSError as error:
        raise GradkernError(f"{path} cannot be written: {error.strerror or error}") from error

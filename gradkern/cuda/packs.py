"""The packs of this installation: for each architecture one in the cache, installed by a user, and one in the package,
from its wheel.

A pack serves devices of its compute capability and of later ones with the same major number: machine code is compatible
with these, except on NVIDIA's boards for robots and cars. A pack of PTX (compute_90) serves all devices with a greater
major number; their driver compiles the kernels that are loaded. A pack is used as a whole or not at all: a damaged
pack, or one made from other sources, is refused with one warning, and `gradkern doctor` reports it. Kernels of a user's
pack come before those of the package. A checkout has its pack in the package, too (tools/environment.py); if its
sources have changed since, only `gradkern doctor` reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gradkern.cuda.compile import Compiled
from gradkern.cuda.pack import About, Pack
from gradkern.cuda.spec import KernelSpec, source_digest
from gradkern.system import cache_files, locks
from gradkern.system.notice import warn
from gradkern.version import __version__

PACKAGED = Path(__file__).parents[1] / "packs"
"""The folder of the wheel's packs: trusted like its code, whoever owns it."""
_NAME = re.compile(r"(sm|compute)_(\d+)(\d)\.pack")
_ALONE = {(7, 2), (8, 7), (10, 1), (11, 0)}
"""Boards with incompatible machine code (CUDA programming guide, "Binary Compatibility")."""

_lock = locks.reentrant_lock()
_open: dict[tuple[int, int], tuple[Pack, ...]] = {}  # packs that serve a device, by its capability
_disabled = False


@dataclass(frozen=True, slots=True)
class Found:
    """A file at the path of a pack. fault: why it is not used."""

    path: Path
    capability: tuple[int, int]
    about: About | None
    size: int
    fault: str | None


def name_of(capability: tuple[int, int], ptx: bool = False) -> str:
    """The name of an architecture's pack."""
    return f"{'compute' if ptx else 'sm'}_{capability[0]}{capability[1]}.pack"


def installed_path(capability: tuple[int, int], ptx: bool = False) -> Path:
    """The path of a user's pack for this capability."""
    return cache_files.folder("packs") / name_of(capability, ptx)


def find(spec: KernelSpec) -> Compiled | None:
    """The kernel of a spec from a pack; None if no pack has it."""
    with _lock:
        if spec.capability not in _open:
            _open[spec.capability] = tuple(_opened(spec.capability))
        for pack in _open[spec.capability]:
            try:
                kernel = pack.read(spec.on(pack.about.capability, pack.about.ptx).digest)
            except (OSError, ValueError) as error:  # do not trust the rest of it either
                _open[spec.capability] = tuple(each for each in _open[spec.capability] if each is not pack)
                _refuse(pack.path, str(error))
                continue
            if kernel is not None:
                return kernel
    return None


def disable() -> None:
    """Use no pack in this process, for measurements without one."""
    global _disabled
    _disabled = True
    reset()


def reset() -> None:
    """Look for packs again: one may have been added."""
    with _lock:
        for pack in {id(pack): pack for each in _open.values() for pack in each}.values():
            pack.close()
        _open.clear()


def found() -> list[Found]:
    """All packs, those of the cache first. Refused packs cause no warning here."""
    return [_described(path, capability) for path, capability, _ in _files()]


def read(path: Path) -> None:
    """Read a user's pack with all its kernels.

    Raises OSError if it cannot be read, ValueError, with the reason, if it is damaged or does not fit.
    """
    with closing(_open_own(path)) as pack:
        fault = _fault(pack)
        if fault is not None:
            raise ValueError(fault)
        pack.verify()


def install(path: Path) -> tuple[Path, About]:
    """Copy a pack from a file into the cache; returns its path there.

    Raises OSError if it cannot be read or written, ValueError, with the reason, if it is damaged, another user's, or
    does not fit.
    """
    data = cache_files.read_own(path)
    with closing(Pack(path)) as pack:
        fault = misfit(pack.about)
        if fault is not None:
            raise ValueError(f"{fault}; this is {__version__}")
        pack.verify()
    target = installed_path(pack.about.capability, pack.about.ptx)
    cache_files.write(target, data)
    reset()
    return target, pack.about


def misfit(about: About) -> str | None:
    """Why the kernels of a pack are not those of this gradkern; None if they are."""
    try:
        same = about.sources == source_digest(*about.modules)
    except OSError:  # one of its modules does not exist any more
        same = False
    if same:
        return None
    return f"it was made from other sources, those of gradkern {about.gradkern}"


def _files() -> Iterator[tuple[Path, tuple[int, int], bool]]:
    """Paths, capabilities and whether they are PTX, in the cache and in the package; PTX last, the newest first."""
    for folder in (cache_files.folder("packs"), PACKAGED):
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError:
            continue
        matches = [match for match in map(_NAME.fullmatch, names) if match]
        named = [(folder / each[0], (int(each[2]), int(each[3])), each[1] == "compute") for each in matches]
        yield from sorted(named, key=lambda each: (not each[2], each[1]), reverse=True)


def serves(pack: tuple[int, int], device: tuple[int, int], ptx: bool = False) -> bool:
    """Whether machine code, or PTX, for one compute capability runs on a device of another."""
    if ptx:
        return pack[0] < device[0]
    if pack == device:
        return True
    return pack[0] == device[0] and pack[1] < device[1] and not {pack, device} & _ALONE


def _opened(capability: tuple[int, int]) -> Iterator[Pack]:
    """The packs that serve this capability and fit; one warning for each that does not."""
    if _disabled:
        return
    for path, made_for, ptx in _files():
        if serves(made_for, capability, ptx):
            try:
                pack = _open_own(path)
            except OSError:
                continue
            except ValueError as error:
                _refuse(path, str(error))
                continue
            fault = _fault(pack)
            if fault is None:
                yield pack
                continue
            pack.close()
            if path.parent != PACKAGED:
                _refuse(path, fault)


def _described(path: Path, capability: tuple[int, int]) -> Found:
    try:
        with closing(_open_own(path)) as pack:
            return Found(path, capability, pack.about, pack.size, _fault(pack))
    except OSError as error:
        return Found(path, capability, None, 0, f"it cannot be read: {error.strerror or error}")
    except ValueError as error:
        return Found(path, capability, None, 0, str(error))


def _open_own(path: Path) -> Pack:
    """A pack in a user's cache is read only if no other user can write it."""
    if path.parent == PACKAGED:
        return Pack(path)
    reason = cache_files.why_not_used("packs")
    if reason is not None:
        raise ValueError(reason)
    return Pack(path, cache_files.open_own(path, follow=False))


def _fault(pack: Pack) -> str | None:
    about = pack.about
    if pack.path.name != name_of(about.capability, about.ptx):
        return f"it is for compute capability {'.'.join(map(str, about.capability))}{', as PTX' * about.ptx}"
    return misfit(pack.about)


def _refuse(path: Path, reason: str) -> None:
    text = f"gradkern: {path} is not used: {reason}; `gradkern doctor` says how to mend it"
    warn(text, stacklevel=4)

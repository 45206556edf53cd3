"""Builds a pack: compiles the kernels of calls for one architecture, in parallel, without a GPU."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from gradkern.cuda import cache, packs, workers
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import get_device
from gradkern.cuda.dry_run import GPUS, DryRunDevice, device_named
from gradkern.cuda.pack import About, Pack, build
from gradkern.cuda.spec import KernelSpec, source_digest
from gradkern.errors import ProviderError
from gradkern.version import __version__


def known_devices(capability: tuple[int, int], ptx: bool = False) -> list[DryRunDevice]:
    """One device of each known GPU that a pack for this compute capability serves. For PTX also those that the machine
    code serves: later GPUs may be similar.
    """
    kinds = (False, True) if ptx else (False,)
    return [
        device_named(name)
        for name, (other, *_) in GPUS.items()
        if any(packs.serves(capability, other, kind) for kind in kinds)
    ]


def known_architectures() -> list[str]:
    """Compute capabilities of the known GPUs."""
    return sorted({f"sm_{major}{minor}" for (major, minor), *_ in GPUS.values()}, key=lambda each: int(each[3:]))


def own_device() -> DryRunDevice:
    """The first GPU of this machine, to plan for."""
    return DryRunDevice.of(get_device(0))


def is_current(path: Path, calls: str) -> bool:
    """Whether the pack in a file is up to date, for calls with this digest."""
    try:
        found = Pack(path)
    except (OSError, ValueError):
        return False
    with closing(found):
        about = found.about
        return about.calls == calls and about.compilers == cache.versions() and packs.misfit(about) is None


def earlier(path: Path) -> dict[str, Compiled]:
    """The kernels of the pack in a file, by the digests of their specs; none if other compilers made it."""
    try:
        with closing(Pack(path)) as found:
            same = found.about.compilers == cache.versions()
            kernels = {key: found.read(key) for key in (found.keys() if same else ())}
    except (OSError, ValueError):
        return {}
    return {key: kernel for key, kernel in kernels.items() if kernel is not None}


def compiled(
    specs: Iterable[KernelSpec], jobs: int | None = None, have: Mapping[str, Compiled] | None = None
) -> Generator[tuple[str, Compiled]]:
    """Yields kernels, each with its spec's digest: existing ones, those of the cache, and those that `jobs` workers
    compile.

    Raises ProviderError, with the kernel's name, if one cannot be compiled.
    """
    ahead: list[KernelSpec] = []
    for spec in specs:
        kernel = (have or {}).get(spec.digest)
        kernel = kernel or cache.load(cache.key_of(spec.module, spec.description, spec.capability))
        if kernel is None:
            ahead.append(spec)
        else:
            yield spec.digest, kernel
    if workers.available():
        for spec, made in workers.compiled(ahead, jobs or workers.cores()):
            yield spec.digest, made or _here(spec)
    else:
        yield from ((spec.digest, _here(spec)) for spec in ahead)


def _here(spec: KernelSpec) -> Compiled:
    try:
        return spec.compile()
    except Exception as error:  # of Numba, of NVVM, of the linker
        capability = ".".join(map(str, spec.capability))
        text = f"kernel {spec.name} cannot be compiled for compute capability {capability}"
        raise ProviderError(f"{text}: {type(error).__name__}: {error}") from error


def pack_of(
    kernels: Mapping[str, Compiled],
    modules: Iterable[str],
    capability: tuple[int, int],
    ptx: bool = False,
    calls: str = "",
) -> bytes:
    """The content of a pack of these kernels, with builders in these modules. calls: see About."""
    named = tuple(sorted(set(modules)))
    sources, compilers = source_digest(*named), cache.versions()
    return build(About(__version__, capability, sources, named, compilers, ptx=ptx, calls=calls), kernels)

"""Kernels that will be needed, compiled together before the first of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gradkern.cuda import cache, packs, workers
from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import KernelSpec
from gradkern.cuda.workers import Worker
from gradkern.system import locks

__all__ = ["compile_ahead", "missing"]

_OTHERS = 60.0  # seconds to wait for what another process compiles
_one_at_a_time = locks.lock()


def missing(specs: Iterable[KernelSpec]) -> list[KernelSpec]:
    """Those that are neither in a pack nor in the cache, each once."""
    return [each for each in dict.fromkeys(specs) if packs.find(each) is None and not cache.has(_key(each))]


def compile_ahead(specs: Iterable[KernelSpec], report: Callable[[str], None] = lambda text: None) -> int:
    """Compile into the cache what is missing of these, several at once; how many were.

    One alone is left to who needs it: a worker starts in the time of its compilation. So is what no worker could
    compile, which fails there, if it does, with its own error. What another process compiles is waited for at the end.
    """
    wanted = missing(specs)
    jobs = min(workers.cores(), len(wanted))
    if len(wanted) < 2 or not workers.available():
        return 0
    made = 0
    with _one_at_a_time:
        left: list[KernelSpec] = []
        for number, (spec, kernel) in enumerate(workers.compiled(wanted, jobs, _unless_others_do), start=1):
            made += kernel is not None
            report(f"{number} of {len(wanted)} kernels compiled")
            if kernel is None:
                left.append(spec)
        for spec in left:
            with cache.alone_with(_key(spec), _OTHERS):
                pass
    return made


def _key(spec: KernelSpec) -> str:
    return cache.key_of(spec.module, spec.description, spec.capability)


def _unless_others_do(worker: Worker, spec: KernelSpec) -> Compiled | None:
    """The kernel, compiled and kept; None where another process compiles it now."""
    key = _key(spec)
    with cache.alone_with(key, 0) as alone:
        if not alone:
            return None
        kernel = cache.load(key)  # which another process may have compiled meanwhile
        if kernel is None:
            kernel = worker.compile(spec)
            cache.hold(key, kernel)
        return kernel

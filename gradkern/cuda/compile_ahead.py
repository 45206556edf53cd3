"""Compiles kernels that will be needed in parallel, before the first of them is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from gradkern.cuda import cache, packs, workers
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import get_device
from gradkern.cuda.dry_run import dry_run
from gradkern.cuda.spec import KernelSpec
from gradkern.cuda.workers import Worker
from gradkern.system import locks

Result = tuple[KernelSpec, Compiled | None]
Show = Callable[[Iterable[Result], int], Iterable[Result]]
"""Iterates over results as they come, of a known number, and shows the progress."""

_OTHERS = 60.0  # seconds to wait for kernels that another process compiles
_one_at_a_time = locks.reentrant_lock()


def missing(specs: Iterable[KernelSpec]) -> list[KernelSpec]:
    """The specs that are neither in a pack nor in the cache, each once."""
    return [each for each in dict.fromkeys(specs) if packs.find(each) is None and not cache.has(_key(each))]


def for_plans(plans: Iterable[Callable[[], None]], device: str, show: Show | None = None) -> int:
    """Compile the kernels that plans need on a device ("cuda:0") in parallel; returns the number of compiled kernels.

    plans: each makes a plan, in a dry run. One that raises is skipped: it raises again when it is really made.
    """
    with dry_run(get_device(int(device.partition(":")[2] or 0))) as dry:
        for plan in plans:
            with contextlib.suppress(Exception):
                plan()
    return compile_ahead(dry.specs, show)


def compile_ahead(specs: Iterable[KernelSpec], show: Show | None = None) -> int:
    """Compile the missing kernels of these into the cache, in parallel; returns their number.

    A single kernel is left to its user: starting a worker takes as long as the compilation. A kernel that no worker
    could compile is left, too: its user gets the error. Kernels that another process compiles are awaited at the end.
    """
    wanted = missing(specs)
    if len(wanted) < 2 or not workers.available():
        return 0
    left: list[KernelSpec] = []
    with (
        _one_at_a_time,
        contextlib.closing(workers.compiled(wanted, workers.cores(), _unless_others_do)) as coming,
    ):
        for spec, kernel in show(coming, len(wanted)) if show else coming:
            if kernel is None:
                left.append(spec)
    for spec in left:
        with cache.alone_with(_key(spec), _OTHERS):
            pass
    return len(wanted) - len(left)


def _key(spec: KernelSpec) -> str:
    return cache.key_of(spec.module, spec.description, spec.capability)


def _unless_others_do(worker: Worker, spec: KernelSpec) -> Compiled | None:
    """The kernel, compiled and cached; None if another process is compiling it."""
    key = _key(spec)
    with cache.alone_with(key, 0) as alone:
        if not alone:
            return None
        kernel = cache.load(key)  # another process may have compiled it meanwhile
        if kernel is None:
            kernel = worker.compile(spec)
            cache.hold(key, kernel)
        return kernel

"""The providers: who can compute, on what kind of device, with what packages; and whether they can run here.

A new provider is a record in this table, a name in registry.yaml for every operator that it computes, and the modules
named there in ops/FAMILY, each a `gradkern.call.ProviderModule`. Nothing here imports Numba or CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from types import MappingProxyType

from gradkern.call import HOST
from gradkern.system import driver
from gradkern.system.own_thread import in_own_thread


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider.

    name         as in registry.yaml; what it keeps on disk is in a folder of this name
    device       the kind of device whose arrays it takes: what the device's name has before the colon
    packages     the modules it imports, and what to install for each; CUDA stands for the extra that fits the driver
    why_not      why there is no such device here; None where there is one
    bandwidth    bytes a second of the first device's memory, nominal; None where nobody knows
    host_copies  the module that plans a call on host arrays by copies to the first device (gradkern.call.Wrapper)
    contiguous   the module that plans a call no module takes, by copies in C order (gradkern.call.Wrapper)
    compile_ahead  the module that compiles together what several plans need (gradkern.call.CompilingAhead)
    search       the module that chooses among several modules for a call (gradkern.call.Choosing)
    """

    name: str
    device: str
    packages: Mapping[str, str]
    why_not: Callable[[], str | None] = _nothing
    bandwidth: Callable[[], float | None] = _nothing
    host_copies: str | None = None
    contiguous: str | None = None
    compile_ahead: str | None = None
    search: str | None = None

    @property
    def first_device(self) -> str:
        """ "cpu", or as "cuda:0"."""
        return self.device if self.device == HOST else f"{self.device}:0"


def _why_no_gpu() -> str | None:
    """What the CUDA driver says; None where it has a device."""
    answer = driver.ask()
    if answer is None:
        return "no NVIDIA GPU: the CUDA driver is not installed"
    return None if answer.gpus else f"no NVIDIA GPU: {answer.error or 'the CUDA driver has no device'}"


def _gpu_bandwidth() -> float | None:
    found = driver.ask()
    return found.gpus[0].bandwidth or None if found and found.gpus else None


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        each.name: each
        for each in (
            Provider("cpu", HOST, {"numba": "numba", "ml_dtypes": "ml_dtypes"}),
            Provider(
                "cuda",
                "cuda",
                dict.fromkeys(("numba_cuda", "cuda.bindings", "cuda.core"), "gradkern[CUDA]"),
                why_not=_why_no_gpu,
                bandwidth=_gpu_bandwidth,
                host_copies="gradkern.cuda.host_copies",
                contiguous="gradkern.cuda.contiguous",
                compile_ahead="gradkern.cuda.compile_ahead",
                search="gradkern.search.operators",
            ),
        )
    }
)


def device_kind(provider: str) -> str | None:
    """The kind of device a provider computes on; None of one that is not in the table."""
    record = PROVIDERS.get(provider)
    return None if record is None else record.device


@cache
def unavailable(provider: str) -> str | None:
    """Why a provider cannot run here, with the remedy; None where it can."""
    record = PROVIDERS.get(provider)
    if record is None:
        return "this version of gradkern does not have it"
    return missing(provider) or record.why_not()


def missing(provider: str) -> str | None:
    """The packages that a provider lacks, with the remedy; None where they are all there."""
    packages = PROVIDERS[provider].packages
    lacking = [name for name in packages if not _installed(name)]
    if not lacking:
        return None
    return f"{', '.join(lacking)} not installed ({_remedy([packages[name] for name in lacking])})"


def _remedy(names: list[str]) -> str:
    """The command that installs what is missing, for the CUDA of the driver; without a driver, for the newest."""
    from gradkern.system.packages import EXTRAS, pip  # what it imports is not needed where nothing is missing

    answer = driver.ask()
    newest, oldest = max(EXTRAS), min(EXTRAS)
    extra = EXTRAS[max(oldest, min(newest, answer.version[0])) if answer else newest]
    return pip("install", *dict.fromkeys(name.replace("CUDA", extra) for name in names))


def _installed(module: str) -> bool:
    try:
        return in_own_thread(partial(find_spec, module)) is not None  # find_spec imports the package around it
    except ModuleNotFoundError:  # that package
        return False

"""Which providers can run on this machine. Asking imports neither Numba nor CUDA."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from gradkern.system import driver

__all__ = ["unavailable"]

_PACKAGES: dict[str, dict[str, str]] = {
    "cpu": {"numba": "numba", "ml_dtypes": "ml_dtypes"},
    "cuda": dict.fromkeys(("numba_cuda", "cuda.bindings", "cuda.core"), "gradkern[CUDA]"),
}
"""The modules each provider needs, and what to install for them; CUDA stands for the extra that fits the driver."""


@cache
def unavailable(provider: str) -> str | None:
    """Why a provider cannot run here, with the remedy; None where it can."""
    if provider not in _PACKAGES:
        return "this version of gradkern does not have it"
    needed = _PACKAGES[provider]
    missing = [name for name in needed if not _installed(name)]
    if missing:
        return f"{', '.join(missing)} not installed ({_remedy([needed[name] for name in missing])})"
    return _why_no_gpu() if provider == "cuda" else None


def _remedy(names: list[str]) -> str:
    """The command that installs what is missing, for the CUDA of the driver; without a driver, for the newest."""
    from gradkern.system.packages import EXTRAS, pip  # what it imports is not needed where nothing is missing

    answer = driver.ask()
    newest, oldest = max(EXTRAS), min(EXTRAS)
    extra = EXTRAS[max(oldest, min(newest, answer.version[0])) if answer else newest]
    return pip("install", *dict.fromkeys(name.replace("CUDA", extra) for name in names))


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _why_no_gpu() -> str | None:
    """What the CUDA driver says; None where it has a device."""
    answer = driver.ask()
    if answer is None:
        return "no NVIDIA GPU: the CUDA driver is not installed"
    return None if answer.gpus else f"no NVIDIA GPU: {answer.error or 'the CUDA driver has no device'}"

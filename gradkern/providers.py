"""Which providers can run on this machine. Asking imports neither Numba nor CUDA."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["unavailable"]

_PACKAGES = {"cpu": ("numba", "ml_dtypes")}
"""What each provider needs installed."""


def unavailable(provider: str) -> str | None:
    """Why a provider cannot run here, with the remedy; None where it can."""
    if provider not in _PACKAGES:
        return "this version of gradkern does not have it"
    missing = [name for name in _PACKAGES[provider] if find_spec(name) is None]
    return f"{', '.join(missing)} is not installed (pip install {' '.join(missing)})" if missing else None

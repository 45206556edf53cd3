"""Where compiled kernels are kept between processes: one folder, and in it one for each provider."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["KEPT", "folder", "root", "why_not_writable"]

KEPT = ("cpu", "cuda")
"""The providers that keep kernels."""


def root() -> Path:
    """The folder of all compiled kernels; GRADKERN_CACHE_DIR names another."""
    named = os.environ.get("GRADKERN_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return platformdirs.user_cache_path("gradkern", appauthor=False)


def folder(provider: str) -> Path:
    """The folder of one provider's compiled kernels."""
    return root() / provider


def why_not_writable() -> str | None:
    """Why no kernel can be kept, in the system's words; None where they can. Makes the folder."""
    try:
        root().mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root()).close()
    except OSError as error:
        return error.strerror or str(error)
    return None

"""Searches of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradkern.system import cache_files


def keep_searches_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of searches are kept there, and read from there alone; machine code is kept where it always is."""
    usual = cache_files.folder
    monkeypatch.setattr(cache_files, "folder", lambda name: folder if name == "search" else usual(name))

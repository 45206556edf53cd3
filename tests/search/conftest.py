"""The helpers beside these tests are imported by their bare names, as in tests/cuda."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and nothing learned from other tests."""
    from gradkern.search import trials, tuner

    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuner, "identity", lambda index: ("a GPU", "a driver"))
    trials._slowness.clear()
    trials._loaded.clear()
    tuner._warned.clear()
    return tmp_path / "search"

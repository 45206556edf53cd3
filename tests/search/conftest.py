"""A search that remembers nothing of other tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and nothing learned from other tests."""
    from gradkern.search import history, trials, tuner

    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuner, "identity", lambda index: ("a GPU", "a driver"))
    history.forget()
    trials._loaded.clear()
    tuner._warned.clear()
    return tmp_path / "search"

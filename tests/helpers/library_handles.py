"""The handles of a library that is not there."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from gradkern.cuda import thread_handles


def none_yet(monkeypatch: pytest.MonkeyPatch, handle: Any) -> None:
    """No thread has a handle yet of those that `handle` gives, and none needs a driver to be made."""
    handles = handle.__self__
    monkeypatch.setattr(handles, "_thread", threading.local())
    monkeypatch.setattr(handles, "_idle", {})
    monkeypatch.setattr(thread_handles, "relaxed_capture", nullcontext)

"""The helpers beside these tests, and those for arrays on a GPU, are imported by their bare names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "cuda")]


@pytest.fixture(scope="module")
def workspace() -> Iterator[int]:
    """The address of scratch memory on the GPU, `scratch_memory.WORKSPACE` bytes."""
    from scratch_memory import poisoned

    yield from poisoned()

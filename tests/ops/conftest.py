"""What the tests of all operators share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.scratch_memory import poisoned


@pytest.fixture(scope="module")
def workspace() -> Iterator[int]:
    """The address of scratch memory on the GPU, `scratch_memory.WORKSPACE` bytes."""
    yield from poisoned()

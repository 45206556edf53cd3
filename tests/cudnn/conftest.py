"""The helpers beside these tests, and those for arrays on a GPU, are imported by their bare names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "cuda")]

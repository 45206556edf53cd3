"""CUDA's driver API, for tests on a GPU."""

from importlib import import_module
from typing import Any

__all__ = ["driver"]

driver: Any = import_module("cuda.bindings.driver")  # it has no types

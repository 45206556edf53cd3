"""The classes of norms that a package has: one of each text that computes something, however many repeat it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

__all__ = ["COLUMNS", "made", "norm_classes", "operands"]

COLUMNS = 8
_METHODS = ("forward", "_norm")
_SIZES = ("size", "dim", "width", "channels", "features", "shape", "embd", "elements")


def norm_classes(package: str) -> Iterator[tuple[str, str, int]]:
    """Module, class and how many have the same text. Nothing of the package is imported."""
    spec = find_spec(package)
    assert spec is not None
    root = Path(str(spec.origin)).parent
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Norm" in text and not path.name.startswith("modular_"):
            module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            for each in ast.parse(text).body:
                if isinstance(each, ast.ClassDef) and each.name.endswith(_ENDS) and (key := _computed(each)):
                    found.setdefault(key, []).append((module, each.name))
    for alike in found.values():
        yield *alike[0], len(alike)


_ENDS = ("Norm", "Norm2d", "NormFp32", "Norm2dFp32", "Norm1P", "NormGated", "NormAct", "NormPerHead")


def _computed(kind: ast.ClassDef) -> str:
    """The text of its methods, without documentation."""
    methods = [each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name in _METHODS]
    for each in methods:
        each.body = [line for line in each.body if not _is_text(line)] or [ast.Pass()]
    return "\n".join(map(ast.unparse, [*methods, *kind.bases])) if methods else ""


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def made(module: str, name: str) -> nn.Module | None:
    """One of COLUMNS columns; None of a class that needs more than sizes and numbers."""
    kind = getattr(import_module(module), name)
    every = list(inspect.signature(kind.__init__).parameters.values())[1:]
    needed = [each for each in every if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    given: dict[str, Any] = {}
    for each in needed:
        if "eps" in each.name:
            given[each.name] = 1e-6
        elif any(word in each.name for word in _SIZES):
            given[each.name] = COLUMNS
        else:
            return None
    if not needed:
        return kind() if not every or "eps" in every[0].name else kind(COLUMNS)
    return kind(**given)


def operands(norm: nn.Module) -> int:
    """How many tensors its forward pass is given."""
    every = list(inspect.signature(norm.forward).parameters.values())
    return len([each for each in every if each.default is each.empty or each.name == "gate"])

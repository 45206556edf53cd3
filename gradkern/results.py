"""What `run` returns: a named tuple for every operator, whose fields are the operator's outputs.

>>> from gradkern import results
>>> results.ConvGrad._fields
('dX', 'dW', 'dB')

They are made from the registry, each when it is first used, and are names of this module so that results can be
pickled and copied. tools/stubs.py generates results.pyi for editors and type checkers.
"""

from __future__ import annotations

import collections
from functools import cache
from typing import Any

from gradkern.contract import registry
from gradkern.system.display import array_parts, table

__all__ = ["result_type"]


_namedtuple: Any = collections.namedtuple  # its fields are known at run time only


_WITH = "_with_"
_WIDTH = 80


@cache
def result_type(operator: str, outputs: tuple[str, ...]) -> Any:
    """The named tuple of an operator with these outputs: the same one every time."""
    declared = registry.operators()[operator].outputs
    more = [each.name for each in declared if each.appended and each.name in outputs]
    more += [str(len(outputs))] if len(outputs) > len(declared) else []  # of a variadic output
    kind = _namedtuple(_WITH.join([operator, *more]), outputs, module=__name__)
    kind.__repr__, kind._repr_html_ = _shown, _shown_in_notebook
    return kind


def _shown(result: Any) -> str:
    """What the arrays are, and not their elements: in a line, or in one for each."""
    arrays = [f"{name}={' '.join(array_parts(each))}" for name, each in result._asdict().items()]
    line = f"{type(result).__name__}({', '.join(arrays)})"
    return line if len(line) < _WIDTH else f"{type(result).__name__}(\n    " + ",\n    ".join(arrays) + ",\n)"


def _shown_in_notebook(result: Any) -> str:
    rows = ((name, *array_parts(each)) for name, each in result._asdict().items())
    return table(type(result).__name__, ("output", "array", "type", "shape", "device"), rows)


def __getattr__(name: str) -> Any:
    name, *more = name.split(_WITH)
    operator = None if name.startswith("__") else registry.operators().get(name)
    if operator is None:
        raise AttributeError(f"module 'gradkern.results' has no attribute {name!r}")
    if more and more[0].isdecimal():
        return result_type(name, tuple(each.name for each in operator.repeated(int(more[0])).outputs))
    return result_type(name, tuple(each.name for each in operator.outputs if not each.appended or each.name in more))


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__, *registry.operators()])

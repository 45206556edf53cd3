"""The errors a caller can meet. Each is a GradkernError that names operator, argument, what was expected, what came."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class GradkernError(Exception):
    """Base class of every error gradkern raises on purpose."""


class UnknownOperatorError(GradkernError, ValueError):
    """The registry has no operator of this name, domain or version."""


class ArgumentError(GradkernError, TypeError):
    """An argument is missing, surplus, given twice, of an unknown name, or no array."""


class DTypeError(GradkernError, TypeError):
    """An array's element type, or the combination of them, is not registered."""


class ShapeError(GradkernError, ValueError):
    """A rank or an axis does not fit the contract or another array."""


class AttributeValueError(GradkernError, ValueError):
    """An attribute's value is outside what the contract allows."""


class DataError(GradkernError, ValueError):
    """The elements of an array break the contract (a zero in InvertibleLayerNormalizationGrad's scale)."""


class DeviceError(GradkernError, ValueError):
    """The arrays of one call are not all on one device."""


class OutputError(GradkernError, ValueError):
    """An array given as `out` cannot take the result."""


class PolicyError(GradkernError, ValueError):
    """A policy field is unknown or has a value it cannot have."""


class ProviderError(GradkernError, RuntimeError):
    """No provider can run the call; the message carries each one's reason."""


class RegistryError(GradkernError, ValueError):
    """registry.yaml is refused; the message lists every mistake as file:line: path: reason."""


class GraphError(GradkernError, ValueError):
    """An ONNX model cannot be run: a file that is none, a value that nothing gives, a cycle."""


__all__ = sorted(name for name in globals() if name.endswith("Error"))  # pyright: ignore[reportUnsupportedDunderAll]


def shown(value: Any) -> str:
    """A caller's value in a message: repr(value), or its type where that raises."""
    try:
        return repr(value)
    except Exception:  # of the value's own, or of an int with too many digits
        return f"of type {type(value).__name__}"


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """What is said of a name that is not known: the nearest ones, and all."""
    known = dict.fromkeys(known)
    return f"unknown {what} {shown(name)}{nearest(name, known)}; known are {', '.join(known)}"


def unknown_operator(name: Any, operators: Iterable[str]) -> str:
    """What is said of an operator that is not known. All names would fill the screen."""
    return f"unknown operator {shown(name)}{nearest(name, operators)}; `gradkern ops` lists the operators"


def nearest(name: Any, known: Iterable[str]) -> str:
    """` (did you mean ...?)` for a misspelt name, or nothing."""
    lower = {each.lower(): each for each in known}
    wrong = (name if isinstance(name, str) else shown(name)).lower()
    begin_alike = [each for each in lower if len(each) > 2 and each[:3] == wrong[:3]]  # padding, for pads
    close = get_close_matches(wrong, lower, n=3, cutoff=0.6) or begin_alike[:3]
    return f" (did you mean {' or '.join(lower[each] for each in close)}?)" if close else ""

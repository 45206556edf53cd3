"""How an algorithm is chosen: the Policy, and the one in force for a block of code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from gradkern.errors import PolicyError

__all__ = ["DEFAULT", "Policy", "current", "differences", "effective", "policy"]

Search = Literal["exhaustive", "heuristic", "default"]


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in allowed):
        raise PolicyError(f"policy: {name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a provider may choose from when it plans a call. Part of the call's signature.

    search           how an algorithm is found: exhaustive (time all), heuristic (first that runs), default (fixed);
                     the names of ONNX Runtime's cudnn_conv_algo_search
    allow_tf32       float32 convolutions may multiply in TF32, as in ONNX Runtime
    deterministic    only algorithms that give the same bits every time
    workspace_limit  most bytes of scratch memory a plan may use; None: the provider's own default
    kernel           pin one kernel by its name (`prepare(...).kernel` shows names); None: any
    """

    search: Search = "exhaustive"
    allow_tf32: bool = True
    deterministic: bool = False
    workspace_limit: int | None = None
    kernel: str | None = None

    def __post_init__(self) -> None:
        _one_of("search", self.search, get_args(Search))
        _one_of("allow_tf32", self.allow_tf32, (True, False))
        _one_of("deterministic", self.deterministic, (True, False))
        limit = self.workspace_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise PolicyError(f"policy: workspace_limit is {limit!r}; expected a number of bytes, 0 or more, or None")
        if self.kernel is not None and not isinstance(self.kernel, str):
            raise PolicyError(f"policy: kernel is {self.kernel!r}; expected a kernel's name or None")


_names = tuple(field.name for field in fields(Policy))
DEFAULT = Policy()
"""What is in force if nobody says else: the one object that `effective` returns for policies equal to it."""

_current: ContextVar[Policy] = ContextVar("gradkern_policy", default=DEFAULT)
current = _current.get


def effective(change: Policy | Mapping[str, Any] | None) -> Policy:
    """The policy in force, with `change` laid over it: a whole Policy replaces it, a mapping changes what it names."""
    if change is None:
        return current()
    if isinstance(change, Policy):
        return DEFAULT if change == DEFAULT else change
    if not isinstance(change, Mapping):
        raise PolicyError(f"policy: expected a gradkern.Policy or a mapping, got {type(change).__name__}")
    try:
        return _laid_over(current(), tuple([(name, type(value), value) for name, value in change.items()]))
    except TypeError:  # a value that cannot be hashed: no policy takes it
        return _changed(current(), change)


@lru_cache(maxsize=256)
def _laid_over(below: Policy, change: tuple[tuple[str, type, Any], ...]) -> Policy:
    """`change` has the types of its values, too, as 1 is no True here."""
    return effective(_changed(below, {name: value for name, _, value in change}))


def _changed(below: Policy, change: Mapping[str, Any]) -> Policy:
    unknown = [name for name in change if name not in _names]
    if unknown:
        raise PolicyError(f"policy: unknown field {unknown[0]!r}; a policy has {', '.join(_names)}")
    return replace(below, **change)


@contextmanager
def policy(change: Policy | Mapping[str, Any] | None = None, /, **fields: Any) -> Iterator[Policy]:
    """Set the policy for a block of code, in this thread or task only.

    >>> with gradkern.policy(deterministic=True):
    ...     gradkern.run("ConvGrad", dY, X, W)
    """
    base = effective(change)
    token = _current.set(effective({**_as_dict(base), **fields}) if fields else base)
    try:
        yield current()
    finally:
        _current.reset(token)


def _as_dict(value: Policy) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _names}


def differences(value: Policy) -> dict[str, Any]:
    """The fields of a policy that are not as in `Policy()`."""
    usual = _as_dict(DEFAULT)
    return {name: each for name, each in _as_dict(value).items() if each != usual[name]}

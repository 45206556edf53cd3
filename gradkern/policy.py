"""How an algorithm is chosen: the Policy, and the one in force for a block of code."""

# Callers may pass what its type does not allow; it is looked at nevertheless.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from sys import getrefcount
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

if TYPE_CHECKING:
    from typing import Unpack

from gradkern.errors import PolicyError, shown

Search = Literal["exhaustive", "heuristic", "default", "background"]


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in allowed):
        raise PolicyError(f"policy: {name} is {shown(value)}; expected one of {', '.join(map(repr, allowed))}")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a provider may choose from when it plans a call. Part of the call's signature.

    search           how an algorithm is found: exhaustive (time all), heuristic (first that runs), default (fixed),
                     the names of ONNX Runtime's cudnn_conv_algo_search; or background: what an exhaustive search
                     found before, else as default until `gradkern.tune()` searches exhaustively
    allow_tf32       float32 convolutions may multiply in TF32, as in ONNX Runtime
    deterministic    only algorithms that give the same bits every time
    workspace_limit  most bytes of scratch memory a plan may use; None: the provider's own default
    kernel           pin one kernel by its name (`prepare(...).kernel` shows names); None: any

    The default is background, so that no call waits for a search: one takes a second, a network some 40, and in the
    midst of a training step, with memory full and other kernels on the device, it is slow and times them badly. What
    that costs until tune() is called, or another process has searched: kernels of convolutions and batch norms that
    nobody has timed, and results of cuDNN that nobody has cross-checked. Of the 24 searches of ResNet-50's layers in
    bfloat16 on an H200, the first candidate of dX took 1.02 times the winner's time in the median and 1.26 at most,
    that of dW 1.04 and 1.52; the result of one was a little less accurate than a search accepts. All other operators
    have nothing to search for.
    """

    search: Search = "background"
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
            raise PolicyError(
                f"policy: workspace_limit is {shown(limit)}; expected a number of bytes, 0 or more, or None"
            )
        if self.kernel is not None and not isinstance(self.kernel, str):
            raise PolicyError(f"policy: kernel is {shown(self.kernel)}; expected a kernel's name or None")


class PolicyFields(TypedDict, total=False):
    """Some fields of a Policy, by name."""

    search: Search
    allow_tf32: bool
    deterministic: bool
    workspace_limit: int | None
    kernel: str | None


_names = tuple(field.name for field in fields(Policy))
DEFAULT = Policy()
"""What is in force if nobody says else: the one object that `effective` returns for policies equal to it."""

_current: ContextVar[Policy] = ContextVar("gradkern_policy", default=DEFAULT)
of_this_thread = _current.get
blocks: set[object] = set()
"""One object for every block, in any thread, that has set a policy while PyTorch was loaded. While there is none, the
policy in force is `of_this_thread()`: a warm call reads it in a third of the time.
"""


_watchers: list[Callable[[int], None]] = []


def watch_blocks(watcher: Callable[[int], None]) -> None:
    """Call this, now and whenever it changes, with how many blocks there are."""
    _watchers.append(watcher)
    watcher(len(blocks))


def _note_blocks() -> None:
    for each in _watchers:
        each(len(blocks))


def current() -> Policy:
    """The policy in force: that of the innermost block of this thread or task, or of the thread whose backward pass
    PyTorch computes in this one.
    """
    policy = of_this_thread()
    return _of_backward_pass() if policy is DEFAULT and blocks else policy


def effective(change: Policy | PolicyFields | Mapping[str, Any] | None) -> Policy:
    """The policy in force, with `change` laid over it: a whole Policy replaces it, a mapping changes what it names."""
    if change is None:
        return current()
    if isinstance(change, Policy):
        return DEFAULT if change == DEFAULT else change
    if not isinstance(change, Mapping):
        raise PolicyError(f"policy: expected a gradkern.Policy or a mapping, got {type(change).__name__}")
    values: list[tuple[str, type[Any], Any]] = [(name, type(value), value) for name, value in change.items()]
    try:
        return _laid_over(current(), tuple(values))
    except PolicyError:
        raise
    except Exception:  # a value that cannot be hashed, or raises what it likes: no policy takes it
        return _changed(current(), change)


@lru_cache(maxsize=256)
def _laid_over(below: Policy, change: tuple[tuple[str, type, Any], ...]) -> Policy:
    """`change` has the types of its values, too, as 1 is no True here."""
    return effective(_changed(below, {name: value for name, _, value in change}))


def _changed(below: Policy, change: Mapping[str, Any]) -> Policy:
    unknown = [name for name in change if name not in _names]
    if unknown:
        raise PolicyError(f"policy: unknown field {shown(unknown[0])}; a policy has {', '.join(_names)}")
    return replace(below, **change)


@contextmanager
def policy(change: Policy | PolicyFields | None = None, /, **fields: Unpack[PolicyFields]) -> Generator[Policy]:
    """Set the policy for a block of code: in this thread or task only, and in the threads where PyTorch computes the
    backward passes that are begun in the block.

    >>> with gradkern.policy(deterministic=True):
    ...     grads = gradkern.run("ConvGrad", dY, X, W)
    """
    base = effective(change)
    within = effective({**_as_dict(base), **fields}) if fields else base
    token = _current.set(within)
    try:
        with _in_backward_passes(within):
            yield within
    finally:
        _current.reset(token)


# --- the threads of PyTorch's backward passes ------------------------------------------------------------------------
# A context variable is not set in them. PyTorch carries objects over that are put among its own thread-local state, as
# it does for the trees of CUDA graphs (torch/_inductor/cudagraph_trees.py).

_KEY = "gradkern.policy"


def _torch_state() -> Any:
    """PyTorch's core, whose thread-local state takes objects; None where it is not loaded or just being loaded."""
    core = getattr(sys.modules.get("torch"), "_C", None)
    return core if hasattr(core, "_stash_obj_in_tls") else None


@contextmanager
def _in_backward_passes(policy: Policy) -> Generator[None]:
    state = _torch_state()
    if state is None:
        yield
        return
    before = state._get_obj_in_tls(_KEY) if state._is_key_in_tls(_KEY) else None
    block = object()
    _stash(state, (policy, get_ident()))
    blocks.add(block)
    _note_blocks()
    try:
        yield
    finally:
        blocks.discard(block)
        _note_blocks()
        _stash(state, before)


def _stash(state: Any, value: Any) -> None:
    if not _counts_references(state):
        _count_one_more(value)
    state._stash_obj_in_tls(_KEY, value)


@cache
def _counts_references(state: Any) -> bool:
    """Whether PyTorch counts what it keeps. Version 2.13 does; with 2.11 another object was found in its place."""
    probe = object()
    _count_one_more(probe)  # PyTorch may release this one
    before = getrefcount(probe)
    state._stash_obj_in_tls(_KEY, probe)
    counted = getrefcount(probe) > before
    state._stash_obj_in_tls(_KEY, None)
    return counted


def _count_one_more(value: Any) -> None:
    import ctypes

    # A prototype of its own: others give ctypes.pythonapi.Py_IncRef argument types to their liking.
    ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))(value)


def _of_backward_pass() -> Policy:
    """The policy of the thread that began the backward pass, in a thread that computes it."""
    state = _torch_state()
    carried = state._get_obj_in_tls(_KEY) if state is not None and state._is_key_in_tls(_KEY) else None
    # What this thread has put there itself is for others: here the context variable says what is in force.
    return DEFAULT if carried is None or carried[1] == get_ident() else carried[0]


def searching(policy: Policy) -> Policy:
    """The policy; where it defers searches, one that searches at once."""
    return replace(policy, search="exhaustive") if policy.search == "background" else policy


def _as_dict(value: Policy) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _names}


def differences(value: Policy) -> dict[str, Any]:
    """The fields of a policy that are not as in `Policy()`."""
    usual = _as_dict(DEFAULT)
    return {name: each for name, each in _as_dict(value).items() if each != usual[name]}

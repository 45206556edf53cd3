"""aten's kernels replaced at a dispatch key, and put back, as torch.library.get_kernel is documented for.

Only backward kernels at a backend's key are ever replaced: autograd's own formulas stay above them, so that double
backward, function transforms, checkpointing, hooks and distributed wrappers see what they always see.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.system import locks
from gradkern.torch.native.kernel import NativeKernel

_lock = locks.reentrant_lock()  # registrations stack up: they are made and undone one at a time


class Override:
    """One aten operator at one dispatch key, answered by `body(keys, *args, **named)` while it is installed.

    Autograd's threads look kernels up without a lock and without the GIL: one may have found `body` and not called it
    yet when it is removed. So what PyTorch has registered is never freed.

    original   calls the kernel that was there before, `original(keys, *args, **named)`
    """

    def __init__(self, name: str, key: str, body: Callable[..., Any]) -> None:
        self.name, self.key = name, key
        self._body = body
        self._undo: Callable[[], None] | None = None
        self.native: NativeKernel | None = None  # registered in place of `body`, and calls it
        self._below: Any = None
        self._registrations: list[Any] = []  # keeps the kernel objects that PyTorch has made of `body`

    @property
    def installed(self) -> bool:
        return self._undo is not None

    @property
    def covered(self) -> bool:
        """Whether another kernel was registered on top of this one, as PyTorch's switches for its own do."""
        with _lock:
            return self.installed and not self._is_on_top()

    def install(self) -> None:
        """Raises RuntimeError where PyTorch has no kernel of this operator at this key."""
        with _lock:
            if self._undo is None:
                self._find_below()
                self._undo = self._registered()

    def remove(self) -> bool:
        """Whether the kernel below is back. It is not where someone has registered another on top of this one, who may
        call it: then it stays, and `body` has to hand on every call.
        """
        with _lock:
            if self._undo is not None and self._is_on_top():
                self._undo()
                self._undo = None  # the kernel below stays known to calls that are on their way to it
            return self._undo is None

    def original(self, keys: Any, *args: Any, **named: Any) -> Any:
        below = self._below
        try:
            return below.call_boxed(keys, *args, **named)
        except RuntimeError as error:
            if "invalidated" not in str(error):
                raise
        return self._found_again(below).call_boxed(keys, *args, **named)

    def _found_again(self, gone: Any) -> Any:
        """The kernel below, after the one that was there has been taken away, as PyTorch's switches for its own do."""
        with _lock:
            if self._below is gone:
                if self._undo is not None:
                    self._undo()
                self._find_below()
                if self._undo is not None:
                    self._undo = self._registered()
            return self._below

    def _find_below(self) -> None:
        self._below = torch.library.get_kernel(f"aten::{self.name}", self.key)
        if self.native is not None:
            self.native.find_function()

    def _registered(self) -> Callable[[], None]:
        """What undoes the registration that is made."""
        if self.native is not None:
            undo = self.native.register(__file__).undo
        else:
            library = torch.library.Library("aten", "IMPL")
            with warnings.catch_warnings():  # PyTorch warns that a kernel is replaced
                warnings.filterwarnings("ignore", message="Warning only once for all operators", category=UserWarning)
                library.impl(self.name, self._body, self.key, with_keyset=True, allow_override=True)
            undo = library._destroy
        self._registrations.append(torch.library.get_kernel(f"aten::{self.name}", self.key))
        return undo

    def _is_on_top(self) -> bool:
        """Whether the kernel at the key is ours, by the line that registered it."""
        lines = torch._C._dispatch_dump(f"aten::{self.name}").splitlines()
        return any(line.startswith(f"{self.key}: registered at {__file__}:") for line in lines)

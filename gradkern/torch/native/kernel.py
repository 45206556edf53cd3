"""An aten operator registered from machine code, and the way to Python for the calls that no record answers.

PyTorch calls a function that looks the call up among records and launches what they say, without Python. Any other
call it hands to an operator with the same arguments that Python implements, through PyTorch's dispatcher: arguments,
results and exceptions pass as they do where Python is registered for the operator itself. What it knows to be PyTorch's
it hands to another, one that only calls PyTorch's kernel. These operators have one result more: a tensor where
they have failed, and none otherwise. The exception is kept, and raised above PyTorch's C functions, as those lose its
class.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.native import shim
from gradkern.torch.native import words as w
from gradkern.torch.native.records import Record, Records, signed

_KINDS = {"Tensor": "tensor", "int": "word", "bool": "word", "float": "word", "List[int]": "list", "List[bool]": "list",
          "str": "string"}  # fmt: skip
_NAMESPACE = "gradkern_by_python"
_libraries: list[Any] = []
_FAILURE = b"gradkern: a call could be neither computed nor handed on to PyTorch's kernel"
_message = ctypes.create_string_buffer(_FAILURE)


def unsupported(name: str, key: str) -> str:
    """Why an aten operator cannot be registered from machine code; "" where it can."""
    reason = shim.unavailable(key)
    if reason:
        return reason
    schema = getattr(torch.ops.aten, name).default._schema
    kinds = [_kind(each.type) for each in schema.arguments]
    if None in kinds or len(kinds) > w.MOST_ARGUMENTS:
        return f"{name} has arguments that PyTorch's C functions do not pass"
    if any(str(each.type) != "Tensor" for each in schema.returns):
        return f"{name} has results that are no tensors"
    return ""


def _are_bools(argument: Any) -> bool:
    return "List[bool]" in str(argument.type)


def _kind(type_: Any) -> int | None:
    text = str(type_)
    inner = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional[") else text
    kind = _KINDS.get(inner)
    if kind is None or (kind == "string" and inner != text):
        return None
    return w.ARGUMENTS[kind if inner == text else f"{kind}?"]


class NativeKernel(Records):
    """An overload at a dispatch key: `by_python(keys, *args, **named)` answers every call that no record does.

    forgotten   called with a record that no call can be in any more
    flags       whether calls depend on PyTorch's flags and on gradkern's policy
    measured    the place of the tensor whose bytes `least` is about
    original    calls PyTorch's kernel
    may_raise   whether Python has to answer calls that are left to it while only deterministic algorithms are allowed
    """

    def __init__(
        self,
        operator: Any,
        key: str,
        by_python: Callable[..., Any],
        forgotten: Callable[[Record], None],
        flags: bool,
        measured: int,
        original: Callable[..., Any],
        may_raise: bool,
    ) -> None:
        from gradkern.torch.native.loaded import free_function

        self._schema = operator._schema
        kinds = [_kind(each.type) for each in self._schema.arguments]
        super().__init__([each for each in kinds if each is not None], key, forgotten, flags)
        self._key = key
        name = self._schema.name.partition("::")[2]
        self._define(name, by_python)
        self._define(f"{name}_original", original)
        names = f"{_NAMESPACE}::{name}", f"{_NAMESPACE}::{name}_original", ""
        self._text = text = [ctypes.create_string_buffer(each.encode()) for each in names]
        self.put(
            {
                w.BLOCK_NAME: ctypes.addressof(text[0]),
                w.BLOCK_ORIGINAL: ctypes.addressof(text[1]),
                w.BLOCK_OVERLOAD: ctypes.addressof(text[2]),
                w.BLOCK_VERSION: signed(shim.version()),
                w.BLOCK_RAISER: shim.raiser(),
                w.BLOCK_MESSAGE: ctypes.addressof(_message),
                w.BLOCK_RESULTS: len(self._schema.returns),
                w.BLOCK_MEASURED: measured,
                w.BLOCK_MAY_RAISE: int(may_raise),
                w.BLOCK_BOOLS: sum(1 << n for n, each in enumerate(self._schema.arguments) if _are_bools(each)),
            }
        )
        self._function = free_function(self.address)

    def register(self, file: str) -> shim.Registration:
        """Let PyTorch call it. Raises RuntimeError where that cannot be."""
        if self._function is None:
            raise RuntimeError("all functions of machine code are in use")
        return shim.Registration(self._schema.name, self._key, self._function, file)

    def find_function(self) -> None:
        """Let calls that are left to PyTorch's kernel call it as a C function, where there is one of it. A kernel below
        may be anybody's, too. Nothing may be registered here meanwhile.
        """
        name, arguments = self._schema.name, self._schema.arguments
        passed = len(arguments) + sum("List[" in str(each.type) for each in arguments) + len(self._schema.returns)
        kernels = f"{self._key}: ", "CompositeExplicitAutograd[alias]: "
        below = [each for each in torch._C._dispatch_dump(name).splitlines() if each.startswith(kernels)]
        own = all("aten/src/ATen/Register" in each for each in below)
        fits = passed <= w.MOST_C_ARGUMENTS and not any(str(each.type) in ("float", "str") for each in arguments)
        self.put({w.BLOCK_FUNCTION: shim.kernel_function(name, self._key) if fits and own else 0})

    def answer(self, way: int) -> None:
        """Who answers: BY_PYTHON, BY_RECORDS or BY_PYTORCH of words.py."""
        self._block[w.BLOCK_WAY] = way

    def least(self, nbytes: int) -> None:
        """Calls on fewer bytes are PyTorch's."""
        self._block[w.BLOCK_LEAST] = min(nbytes, (1 << 63) - 1)

    def small(self) -> int:
        """How many were, while records answered."""
        return self._block[w.BLOCK_SMALL]

    def given(self, args: tuple[Any, ...], named: Any) -> list[Any]:
        """All arguments in the schema's order: PyTorch leaves out those with their default."""
        found = []
        for place, each in enumerate(self._schema.arguments):
            found.append(args[place] if place < len(args) else named.get(each.name, each.default_value))
        return found

    def _define(self, name: str, function: Callable[..., Any]) -> None:
        """An operator that a function in Python implements. It is one for all dispatch keys."""
        text = str(self._schema).replace("SymInt", "int")
        arguments = text[text.index("(") : text.rindex(" -> ")]
        count = len(self._schema.returns)
        library = torch.library.Library(_NAMESPACE, "FRAGMENT")
        _libraries.append(library)
        if not hasattr(getattr(torch.ops, _NAMESPACE), name):
            library.define(f"{name}{arguments} -> ({', '.join(['Tensor'] * (count + 1))})")
            library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        failed = torch.empty(0, dtype=torch.float32, device="cpu")

        def answer(keys: Any, *args: Any, **named: Any) -> tuple[Any, ...]:
            try:
                found = function(keys, *args, **named)
            except BaseException as error:
                shim.stash(error)
                return (*[None] * count, failed)
            return (*found, None) if count > 1 else (found, None)

        library.impl(name, answer, self._key, with_keyset=True)

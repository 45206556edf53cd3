"""PyTorch's own kernel of an operator as a C++ function, at::cuda::NAME or at::cpu::NAME, and where its arguments go.

The function's symbol says the types of all of its arguments (Itanium C++ ABI): one that is found takes what the schema
says. Where they go is the System V ABI's: six words in registers, floats in registers of their own, the others on the
stack; what has two words is never divided between registers and stack. An operator's results are one tensor, or a
std::tuple of them, which libstdc++ lays out from its end; the caller's memory for them is the first argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from gradkern.torch.native import words as w
from gradkern.torch.native.shim import symbol

_AT = "", "at"
_TENSOR = _AT, "Tensor"
_C10 = "", "c10"
_INTS = "<>", (_C10, "ArrayRef"), "l"
_OPTIONAL_INTS = "<>", (_C10, "OptionalArrayRef"), "l"
_OPTIONAL_FLOAT = "<>", ("std", "optional"), "d"
_VALUES: dict[str, Any] = {"Tensor": _TENSOR, "int": "l", "SymInt": "l", "bool": "b", "float": "d",
                           "ScalarType": (_C10, "ScalarType"), "List[int]": _INTS, "List[SymInt]": _INTS}  # fmt: skip
_STRING = "<>", ("std", "basic_string_view"), "c", ("<>", ("std", "char_traits"), "c")


def function(name: str, schema: Any, key: str) -> list[int]:
    """Its address, and for each argument the two places in words.py's DIRECT_* that it goes to; [] where PyTorch has
    no such function.
    """
    try:
        kinds = [_type(each) for each in schema.arguments]
    except KeyError:
        return []
    found = (symbol(key, _symbol(space, name, kinds)) for space in (key.lower(), "compositeexplicitautograd"))
    address = next(filter(None, found), 0)
    places = [place for pair in _places(kinds) for place in pair]
    return [address, *places] if address and max(places) < w.DIRECT_SIZE else []


def _type(argument: Any) -> Any:
    """C++'s type of an argument. Tuples are (namespace, name), ("<>", template, arguments...) and ("R" or "K", type)
    for a reference and const; others are Itanium's letters.
    """
    text = str(argument.real_type)
    if text.startswith("Optional["):
        inner = _VALUES[text[len("Optional[") : -1]]
        if inner == _INTS:
            return _OPTIONAL_INTS
        optional = "<>", ("std", "optional"), inner
        return _constant(optional) if inner == _TENSOR else optional
    if text == "List[bool]":
        return "<>", ("std", "array"), "b", f"Lm{argument.N}E"
    if text == "str":
        return _STRING
    return _constant(_TENSOR) if text == "Tensor" else _VALUES[text]


def _constant(type_: Any) -> Any:
    return "R", ("K", type_)


def _symbol(space: str, name: str, kinds: list[Any]) -> str:
    """Itanium's name of at::SPACE::NAME(kinds): a part that came before is S_, S0_, S1_... in their order."""
    known: list[Any] = [_AT, (_AT, space)]

    def prefix(type_: Any) -> str:
        if type_ in known:
            place = known.index(type_)
            return f"S{'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ'[place - 1] if place else ''}_"
        if type_[0] == "<>":
            text = f"{prefix(type_[1])}I{''.join(map(whole, type_[2:]))}E"
        elif type_[0] in ("R", "K"):
            text = type_[0] + whole(type_[1])
        else:
            scope = {"": "", "std": "St"}[type_[0]] if isinstance(type_[0], str) else prefix(type_[0])
            text = f"{scope}{len(type_[1])}{type_[1]}"
        known.append(type_)
        return text

    def whole(type_: Any) -> str:
        if isinstance(type_, str):
            return type_
        name = type_[1] if type_[0] == "<>" else type_
        is_nested = type_ not in known and name[0] not in ("R", "K", "std")
        return f"N{prefix(type_)}E" if is_nested else prefix(type_)

    return f"_ZN2at{len(space)}{space}{len(name)}{name}E{''.join(map(whole, kinds))}"


def _places(kinds: list[Any]) -> Iterator[tuple[int, int]]:
    """Of each argument's words; -1 for a second one that is not there, or follows the first on the stack."""
    registers = list(range(1, w.DIRECT_FLOATS))  # the first has the address of the memory for results
    floats, stack = iter(range(w.DIRECT_FLOATS, w.DIRECT_STACK)), count(w.DIRECT_STACK)
    for each in kinds:
        is_pair = isinstance(each, tuple) and each[0] == "<>" and each[1] != ("std", "array")
        if each == "d":
            yield next(floats), -1
        elif each == _OPTIONAL_FLOAT and registers:
            yield next(floats), registers.pop(0)
        elif each == _OPTIONAL_INTS:  # three words, too many for registers
            yield (next(stack), next(stack), next(stack))[0], -1
        elif len(registers) > is_pair:
            yield registers.pop(0), registers.pop(0) if is_pair else -1
        else:
            yield next(stack), next(stack) if is_pair else -1

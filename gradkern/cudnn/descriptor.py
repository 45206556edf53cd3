"""Descriptors of cuDNN's graph API: made in one step from named attributes, read by name, freed with their owner."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, cast

from gradkern.cudnn.api import DESCRIPTOR, KINDS
from gradkern.cudnn.library import check, library


class Descriptor:
    """One finished descriptor and, as long as it lives, those it was made of.

    Attributes are those of `api.KINDS`: a number or a Descriptor, a tuple of them, or bytes. Raises CudnnError with
    cuDNN's reason where it refuses one of them or all together.
    """

    __slots__ = ("__weakref__", "_destroy", "kind", "parts", "pointer")

    def __init__(self, kind: str, /, **attributes: Any) -> None:
        self._create(kind)
        self.parts = tuple(attributes.values())
        for name, value in attributes.items():
            self._set(name, value)
        check(library().cudnnBackendFinalize(self.pointer), f"making a descriptor ({kind})")

    def _create(self, kind: str) -> None:
        lib = library()
        self.kind, self.pointer = kind, 0
        self.parts: tuple[Any, ...] = ()
        self._destroy: Callable[[int], int] = lib.cudnnBackendDestroyDescriptor  # also while Python shuts down
        made = ctypes.c_void_p()
        check(lib.cudnnBackendCreateDescriptor(KINDS[kind].number, ctypes.byref(made)), f"creating {kind}")
        self.pointer = made.value or 0

    def __del__(self) -> None:
        if self.pointer:
            self._destroy(self.pointer)

    def _set(self, name: str, value: Any) -> None:
        number, element = KINDS[self.kind].attributes[name]
        values = cast(tuple[Any, ...] | bytes, value if isinstance(value, tuple | bytes) else (value,))
        raw: Iterator[Any] = (each.pointer if isinstance(each, Descriptor) else each for each in values)
        array = (
            (ctypes.c_char * len(values))(*values)
            if element.ctype is ctypes.c_char
            else (element.ctype * len(values))(*raw)
        )
        status = library().cudnnBackendSetAttribute(self.pointer, number, element.number, len(values), array)
        check(status, f"setting {name} of {self.kind}")

    def number(self, name: str) -> int:
        """An attribute that is one number."""
        (value,) = self._get(name, 1)
        return value

    def numbers(self, name: str, most: int) -> tuple[int, ...]:
        """An attribute that is at most so many numbers."""
        return tuple(self._get(name, most))

    def descriptors(self, name: str, kind: str, most: int | None = None) -> list[Descriptor]:
        """An attribute that is a list of descriptors of one kind; each is then owned here.

        Not every list can be counted: 0 comes back for the knob choices of a configuration. `most` is for these.
        """
        made = [Descriptor.__new__(Descriptor) for _ in range(self._count(name) if most is None else most)]
        for each in made:
            each._create(kind)
        found = self._get(name, len(made), [each.pointer for each in made]) if made else []
        return made[: len(found)]  # cuDNN counts more than it then gives

    def _count(self, name: str) -> int:
        return self._read(name, 0, None)

    def _get(self, name: str, most: int, into: list[int] | None = None) -> list[int]:
        _, element = KINDS[self.kind].attributes[name]
        if (element is DESCRIPTOR) != (into is not None):
            raise TypeError(f"{name} of {self.kind} is read the other way")
        array = (element.ctype * most)(*(into or ()))
        count = self._read(name, most, array)
        return list(array[:count])

    def _read(self, name: str, most: int, array: Any) -> int:
        """How many of an attribute's elements there are, and at most so many of them to the array."""
        number, element = KINDS[self.kind].attributes[name]
        count = ctypes.c_int64()
        get = library().cudnnBackendGetAttribute
        status = get(self.pointer, number, element.number, most, ctypes.byref(count), array)
        check(status, f"reading {name} of {self.kind}")
        return count.value

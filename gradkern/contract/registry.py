"""The contracts of all operators: registry.yaml, or what was made of it before.

The package holds them as data: tools/stubs.py generates checked.py from registry.yaml, with the digest of its text.
Where the digest differs, registry.yaml is read and checked itself. That loads pydantic and ruamel.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gradkern.contract.schema import Operator
from gradkern.errors import RegistryError
from gradkern.system import locks
from gradkern.system.importing import load
from gradkern.system.own_thread import in_own_thread, working


@cache
def operators() -> Mapping[str, Operator]:
    """The contract of every operator by name: a read-only mapping, sorted by name.

    >>> gradkern.operators()["ConvGrad"].inputs[0].name
    'dY'
    """
    return in_own_thread(_read)  # where pydantic is needed, it holds a lock while it checks the first entry


class _Contracts(dict[str, Operator]):
    def __repr__(self) -> str:
        return f"<{len(self)} operators: {', '.join(self)}>"


def _read() -> Mapping[str, Operator]:
    locks.require_whole(working)
    try:
        data = path().read_bytes()
    except OSError as error:
        hint = "gradkern runs from files in a folder, not from a zip file"
        raise RegistryError(f"{path()} cannot be read: {error.strerror or error}; {hint}") from error
    return _contracts(data)


@lru_cache(maxsize=1)  # where threads call operators() at once, one finds the contracts and the others get these
def _contracts(data: bytes) -> Mapping[str, Operator]:
    checked: Any = load("gradkern.contract.checked")
    if digest(data) == checked.DIGEST:
        return MappingProxyType(_Contracts(checked.OPERATORS))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RegistryError(f"registry.yaml:{line}: registry: is no UTF-8: {error.reason}") from error
    return MappingProxyType(_Contracts(load("gradkern.contract.reading").read(text)))


def digest(data: bytes) -> str:
    """The digest of a text of registry.yaml."""
    return sha256(data).hexdigest()


def path() -> Path:
    """Where registry.yaml is: inside the package when installed, beside it in a checkout."""
    here = Path(__file__).parents[1]
    inside = here / "registry.yaml"
    return inside if inside.exists() else here.parent / "registry.yaml"

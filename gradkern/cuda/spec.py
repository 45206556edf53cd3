"""A kernel before it is compiled: a description that is the same in every process and on every machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass, replace
from pkgutil import resolve_name
from typing import Any, cast

from gradkern.cuda.compile import Compiled, compile_kernel
from gradkern.system import sources

_COMPILING = "gradkern.cuda.compile"  # every kernel's machine code depends on its sources


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """All that a kernel's machine code depends on, except the versions of the compilers.

    builder: "module:function", by name: its module imports Numba, and processes with a full cache do not load Numba.
    constants: the builder's arguments: strings, numbers, None, and dataclasses of these and of sets.
    """

    builder: str
    constants: tuple[Any, ...]
    name: str
    arguments: int
    threads: int
    blocks_per_processor: int
    capability: tuple[int, int]
    ptx: bool = False  # compiled to PTX only; the driver of any newer GPU compiles it

    @property
    def module(self) -> str:
        """The builder's."""
        return self.builder.partition(":")[0]

    @property
    def description(self) -> str:
        """Builder, name, launch bounds and constants, and that it is PTX."""
        bounds = f"{self.arguments} arguments {self.threads}x{self.blocks_per_processor}"
        return " ".join([self.builder, self.name, bounds, *map(_described, self.constants), *["as PTX"] * self.ptx])

    @property
    def digest(self) -> str:
        """The SHA-256 of the description, the compute capability and the sources."""
        parts = [source_digest(self.module), self.description, self.capability]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def on(self, capability: tuple[int, int], ptx: bool = False) -> KernelSpec:
        """The same for another compute capability, as machine code or as PTX."""
        same = (capability, ptx) == (self.capability, self.ptx)
        return self if same else replace(self, capability=capability, ptx=ptx)

    def compile(self) -> Compiled:
        """Compile it here and now: seconds, without a GPU."""
        made = resolve_name(self.builder)(*self.constants)
        bounds = self.threads, self.blocks_per_processor
        compiled = compile_kernel(made, self.arguments, self.capability, *bounds, self.name)
        # a NUL ends it for the driver
        return replace(compiled, cubin=compiled.ptx.encode() + b"\0") if self.ptx else compiled


def source_digest(*modules: str) -> str:
    """Of all sources that the kernels of these builders' modules are compiled from."""
    return sources.digest(*modules, _COMPILING)


def _described(constant: Any) -> str:
    """A representation that is the same in every process, unlike the repr of a set."""
    if not is_dataclass(constant):
        return repr(constant)
    values: dict[str, Any] = {each.name: getattr(constant, each.name) for each in fields(constant)}
    sets = {name: sorted(cast("frozenset[Any]", value)) for name, value in values.items() if type(value) is frozenset}
    return repr({**values, **sets})

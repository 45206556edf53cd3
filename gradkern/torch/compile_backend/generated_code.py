"""What Inductor writes for gradkern's operators: calls of call sites, defined beside its own kernels.

Inductor has a hook for operators where it writes Python. Code in C++, such as AOTInductor's, calls the operators
themselves. So does all code with versions of PyTorch that this was not tried with: the hook is private.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gradkern.arrays.torch_guards import tensor_guards
from gradkern.torch.compile_backend import call_sites, operators


@cache
def write_call_sites() -> None:
    """Let Inductor write them from now on, in this process."""
    if tensor_guards() is None:  # without guards a call site recognises nothing
        return
    from torch._inductor.codegen.custom_extern_kernel_codegen import (  # pyright: ignore[reportMissingImports]
        CUSTOM_EXTERN_KERNEL_CODEGEN,
        CustomCodegen,
    )
    from torch._inductor.codegen.wrapper import ExternKernelAllocLine  # pyright: ignore[reportMissingImports]
    from torch._inductor.virtualized import V  # pyright: ignore[reportMissingImports]

    class Line(ExternKernelAllocLine):
        """The call, as text once all else of the graph is decided."""

        def codegen(self, code: Any) -> None:
            made: str = self.node.get_name()
            root: Any = self.wrapper
            while hasattr(root, "parent_wrapper"):  # that of a part of the graph, whose code has no header
                root = root.parent_wrapper
            root.add_import_once(f"from {call_sites.__name__} import CallSite")
            root.header.writeline(f"gradkern_{made} = CallSite{_description(self.node)}")
            tensors = ", ".join([each.codegen_reference() for each in self.node.inputs])
            code.writeline(f"{made} = gradkern_{made}({tensors})")

    def write(node: Any, writeline: Callable[[Any], None]) -> None:
        description = _description(node)
        if description is None:
            writeline(ExternKernelAllocLine(V.graph.wrapper_code, node))
            return
        writeline(Line(V.graph.wrapper_code, node))
        if description[2] is not None:
            for each in node.outputs:
                each.skip_size_stride_alignment_checks = True  # the call site looks where a call is new to it

    for name in operators.DEFINITIONS:
        CUSTOM_EXTERN_KERNEL_CODEGEN[f"torch.ops.gradkern.{name}.default"] = CustomCodegen(python=write)


def _description(node: Any) -> tuple[str, tuple[Any, ...], Any] | None:
    """The arguments of the call site for a node of Inductor's graph; None where it gets no call site."""
    arguments, named = node.unflatten_args([...] * len(node.inputs), node.constant_args)
    if named or not all(map(_is_constant, arguments)):
        return None
    layouts = [_numbers(each.get_size(), each.get_stride()) for each in node.outputs]
    name = node.op_overload._schema.name.removeprefix("gradkern::")
    return name, tuple(arguments), None if None in layouts else tuple(layouts)


def _is_constant(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_constant, value))
    return value is ... or value is None or isinstance(value, bool | int | float | str)


def _numbers(*sizes: Any) -> tuple[tuple[int, ...], ...] | None:
    """Sizes of Inductor's as numbers; None where one is a symbol."""
    try:
        return tuple([tuple(map(int, each)) for each in sizes])
    except TypeError:
        return None

"""Calls of gradkern's operators from Inductor's code, without PyTorch's dispatcher.

Inductor would write `torch.ops.gradkern.NAME.default(...)`: a call through the dispatcher to a function in Python that
finds the plan anew at every call. A call site has the arguments that are no tensors in the code, and for tensors like
those of an earlier call it has the plan. It returns what the operator returns. Where machine code answers, Inductor's
code makes the results' memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from operator import itemgetter
from typing import Any, cast

import torch  # pyright: ignore[reportMissingImports]
from torch._C._dynamo.guards import assert_size_stride  # pyright: ignore[reportMissingImports]

from gradkern.arrays.kind import TensorKind
from gradkern.arrays.torch_guards import Guard, guard_of, tensor_guards
from gradkern.dispatch.plan_cache import Slot, plan_cache
from gradkern.dispatch.prepared import Prepared
from gradkern.dispatch.recogniser import Recogniser
from gradkern.policy import DEFAULT, current
from gradkern.torch.compile_backend.operators import DEFINITIONS, answer
from gradkern.torch.direct import OpCall, is_eager
from gradkern.torch.native.sites import NativeSite, Places

Tensors = tuple[torch.Tensor, ...]
Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
count_modes = torch._C._len_torch_dispatch_stack
_MOST = 4
"""Of the shapes, and of what is in force, that a call site knows."""


class CallSite:
    """torch.ops.gradkern.NAME in one place of compiled code; called with the arguments that are tensors.

    arguments  those of the operator, with ... in the place of each tensor
    layouts    sizes and strides that each result has to have, where they are known
    native     answers calls like earlier ones from machine code, where no dispatch mode is to see the operator
    """

    def __init__(self, name: str, arguments: tuple[Any, ...], layouts: Layouts | None = None) -> None:
        self._operator: Any = getattr(torch.ops.gradkern, name).default
        self._ask, self._arguments, self._layouts = DEFINITIONS[name].ask, arguments, layouts or ()
        self._known: Recogniser[Guard, _Known] = Recogniser(1, _MOST, lives=lambda known: known.lives)
        self.native = NativeSite(self)

    def __str__(self) -> str:
        return str(self._operator)

    def __call__(self, *tensors: torch.Tensor, memory: Tensors = ()) -> Any:
        """memory: for the results, where Inductor's code has made it; a call that is new to this leaves it."""
        for guard, known in self._known.rows(None, ()):
            found = known(guard, tensors, memory)
            if found is not None:
                known.teach(self.native, tensors)
                return found
        given = iter(tensors)
        arguments = [_filled(each, given) for each in self._arguments]
        if is_eager():
            call = self._ask(*arguments)
            results = answer(call)
            if isinstance(call, OpCall):  # one plan answers it
                self._remember(call, tensors)
        else:  # a dispatch mode is to see the operator
            results = self._operator(*arguments)
        every = (results,) if isinstance(results, torch.Tensor) else results
        for each, (size, strides) in zip(every, self._layouts, strict=False):
            if each.numel():
                assert_size_stride(each, size, strides, str(self._operator))
        return results

    def _remember(self, call: OpCall, tensors: Tensors) -> None:
        """Recognise the next call like this one."""
        found = call.shortcut()
        if found is None or not {id(each) for each in call.tensors if each is not None} <= set(map(id, tensors)):
            return  # or it reads a copy
        slot, kind = found[0], cast(TensorKind, found[1])  # of tensors, as guards are of them
        guard, plan = guard_of(tensors), slot.entry
        if guard is not None and plan is not None:
            self._known.add(None, guard, _Known(call, slot, plan, kind, tensors))


def _filled(argument: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """An argument, with the next tensors in the places of those that it has, or that are in its list."""
    if argument is ...:
        return next(tensors)
    return [_filled(each, tensors) for each in argument] if isinstance(argument, list) else argument


class _Known:
    """Calls that are alike, and their plan, as long as the cache of plans has it. It keeps no input alive.

    Compiled code accounts for tensors that share memory, so nothing here compares what is written with what is read.
    AOTAutograd counts the versions of what it writes.
    """

    def __init__(self, call: OpCall, slot: Slot[Prepared], plan: Prepared, kind: TensorKind, tensors: Tensors) -> None:
        outputs, out = plan.call.outputs, call.out or {}
        made = [name for name in outputs if name not in out]
        self._allocate, self._address = kind.allocator([outputs[name] for name in made]), torch.Tensor.data_ptr
        # places among a call's tensors, followed by what it makes
        given = {id(each): place for place, each in enumerate(tensors)}
        new = {name: len(tensors) + place for place, name in enumerate(made)}
        read = [given[id(each)] for each in call.tensors if each is not None]
        written = [given[id(out[name])] if name in out else new[name] for name in outputs]
        self._read, self._written = _picker(read), _picker(written)
        # places among what it makes, followed by a placeholder for all else
        results = [made.index(name) if name in made else len(made) for name in call.names]
        self._results = itemgetter(*results)
        self._unwanted = [tensors[0].new_empty(0)] if len(made) in results else []
        # places of what it makes among the results' memory, where all of it is a result
        self._in_memory = list(map(results.index, range(len(made)))) if {*range(len(made))} <= {*results} else []
        self._slot, self._stream = slot, kind.stream
        self._now, self._seen = call.operator.seen, call.operator.seen()
        self._places = Places(read, written, [outputs[name] for name in made], results)
        self._can_repeat = not (call.operator.searched and tensors[0].dtype is torch.float32)

    @property
    def lives(self) -> bool:
        return self._slot.entry is not None

    def __call__(self, guard: Guard, tensors: Tensors, memory: Tensors) -> Any:
        """What the operator returns; None for a call that is not like the others."""
        plan = self._slot.entry
        if plan is None or self._now() != self._seen:
            return None
        addresses = guard.addresses(tensors)
        if addresses is None:
            return None
        plan_cache.use(self._slot)
        made = [memory[place] for place in self._in_memory] if memory and self._in_memory else self._allocate()
        addresses += tuple(map(self._address, made))
        plan.compute(self._read(addresses), self._written(addresses), self._stream())
        return self._results(made + self._unwanted)

    def teach(self, native: NativeSite, tensors: Tensors) -> None:
        """Let machine code answer such calls. Whether PyTorch allows TF32 has no C function."""
        plan = self._slot.entry
        if self._can_repeat and plan is not None and current() is DEFAULT:
            if plan.provisional:
                plan.tell_renewal(native)
            native.teach(tensors, plan.plan, self._places)


def _picker(places: list[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Picks what is at these places."""
    chosen: Any = itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
    return chosen


# --- what Inductor writes ---------------------------------------------------------------------------------------------


@cache
def write_call_sites() -> None:
    """Let Inductor write them from now on, in this process.

    Inductor has a hook for operators where it writes Python. Code in C++, such as AOTInductor's, calls the operators
    themselves. So does all code with versions of PyTorch that this was not tried with: the hook is private.
    """
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
            root.add_import_once(f"from {__name__} import CallSite, count_modes")
            root.header.writeline(f"gradkern_{made} = CallSite{_description(self.node)}")
            tensors = [each.codegen_reference() for each in self.node.inputs]
            memory = [self._memory(each) for each in self.node.outputs]
            code.writeline(f"native = gradkern_{made}.native.call")
            code.writeline("if native is None or count_modes():")
            code.writeline(f"    {made} = gradkern_{made}({', '.join(tensors)})")
            code.writeline("else:")
            code.writeline(f"    {made} = native({', '.join(tensors + memory)})")

        def _memory(self, result: Any) -> str:
            sizes = map(self.wrapper.codegen_python_shape_tuple, (result.get_size(), result.get_stride()))
            return f"empty_strided_{result.layout.device.type}({', '.join(sizes)}, {result.get_dtype()})"

    def write(node: Any, writeline: Callable[[Any], None]) -> None:
        description = _description(node)
        if description is None:
            writeline(ExternKernelAllocLine(V.graph.wrapper_code, node))
            return
        writeline(Line(V.graph.wrapper_code, node))
        if description[2] is not None:
            for each in node.outputs:
                each.skip_size_stride_alignment_checks = True  # the call site looks where a call is new to it

    for name in DEFINITIONS:
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

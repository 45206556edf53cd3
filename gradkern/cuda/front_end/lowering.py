"""From typed functions of Numba to LLVM IR, as Numba does it, without what it does again and again.

    implementations   of operators and functions are looked up once for the same types
    lifetimes         of variables are found in one pass over a function, not five
    elements          of local arrays are addressed in a few instructions; Numba's thirty are for any array

The machine code is the same.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

types: Any = import_module("numba.cuda.types")  # Numba has no types
analysis: Any = import_module("numba.cuda.core.analysis")
ir: Any = import_module("numba.cuda.core.ir")
CUDALower: Any = import_module("numba.cuda.lowering").CUDALower
CUDATargetContext: Any = import_module("numba.cuda.target").CUDATargetContext
CUDATypingContext: Any = import_module("numba.cuda.target").CUDATypingContext

_MOST = 20_000  # answers that are kept; a kernel has some hundreds, most of them those of the one before
_DATA, _SHAPE = 4, 5  # fields of an array


class TypingContext(CUDATypingContext):
    """Numba's, but that it looks for what an operator or a function of Numba gives for some types once: its own tries
    up to fifteen templates each time, for each call several times.
    """

    def __init__(self) -> None:
        CUDATypingContext.__init__(self)
        self._resolved: dict[tuple[Any, Any], Any] = {}

    def refresh(self) -> None:
        """Numba does this for every function; here see TargetContext.renew."""

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(func, types.Function):
            return CUDATypingContext.resolve_function_type(self, func, args, kws)
        found = self._resolved.get((func, args))
        if found is None:
            if len(self._resolved) >= _MOST:
                self._resolved.clear()
            found = self._resolved[func, args] = CUDATypingContext.resolve_function_type(self, func, args, kws)
        return found


class TargetContext(CUDATargetContext):
    """Numba's, with a memory of what implements a function of Numba, and of the sizes of types."""

    def __init__(self, typing: TypingContext) -> None:
        self._implementations: dict[tuple[Any, Any], Any] = {}
        self._sizes: dict[str, int] = {}
        CUDATargetContext.__init__(self, typing)

    def refresh(self) -> None:
        """Numba does this for every function."""

    def renew(self) -> None:
        """Take what has been declared since."""
        CUDATypingContext.refresh(self.typing_context)
        CUDATargetContext.refresh(self)

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        if not isinstance(fn, types.Function):
            return CUDATargetContext.get_function(self, fn, sig, _firstcall)
        found = self._implementations.get((fn, sig))
        if found is None:
            try:
                found = CUDATargetContext.get_function(self, fn, sig, False)
            except NotImplementedError:  # an intrinsic: it is declared when it is typed
                self.renew()
                found = CUDATargetContext.get_function(self, fn, sig, False)
            if len(self._implementations) >= _MOST:
                self._implementations.clear()
            self._implementations[fn, sig] = found
        return found

    def get_abi_sizeof(self, ty: Any) -> int:
        """LLVM parses a module to tell."""
        name = str(ty)
        if name not in self._sizes:
            self._sizes[name] = CUDATargetContext.get_abi_sizeof(self, ty)
        return self._sizes[name]


class Lower(CUDALower):
    """Numba's, without what is for debugging; arrays are local ones, of one axis."""

    def init(self) -> None:
        """Find the variables of one block alone, and where the others are used for the last time: Numba clears
        them there, and how LLVM optimises hangs on that.
        """
        parts: dict[int, list[tuple[Any, set[str]]]] = {}
        uses: dict[int, set[str]] = {}
        defined: dict[int, set[str]] = {}
        once: set[str] = set()
        shared: set[str] = set()
        for label, block in self.blocks.items():
            parts[label], uses[label], defined[label] = [], set(), set()
            for statement in block.body:
                names = {each.name for each in _operands(statement)}
                uses[label] |= names - defined[label]
                if isinstance(statement, ir.Assign):
                    target = statement.target.name
                    (shared if target in once else once).add(target)
                    if target not in names:
                        defined[label].add(target)
                    names.add(target)
                parts[label].append((statement, names))
        shared = shared.union(*uses.values())
        self._singly_assigned_vars, self._blk_local_varmap = once - shared, {}
        for each in (*uses.values(), *defined.values()):
            each &= shared
        graph = analysis.compute_cfg_from_blocks(self.blocks)
        live = analysis.compute_live_map(graph, self.blocks, uses, defined)
        dead = analysis.compute_dead_maps(graph, self.blocks, live, defined)
        self._dead_before = {id(block): sorted(dead.escaping[label]) for label, block in self.blocks.items()}
        self._dead_after: dict[Any, list[str]] = {}
        for label, statements in parts.items():
            ahead = set(dead.internal[label])
            for statement, names in reversed(statements[:-1]):
                if last := names & ahead:
                    self._dead_after[statement] = sorted(last, reverse=True)
                    ahead -= last

    def lower_block(self, block: Any) -> None:
        self._cur_ir_block = block
        self._clear(self._dead_before[id(block)])
        for statement in block.body:
            self.loc = statement.loc
            self.lower_inst(statement)
            self._clear(self._dead_after.get(statement, ()))

    def _clear(self, names: Collection[str]) -> None:
        for name in names:
            self.delvar(name)

    def lower_inst(self, inst: Any) -> None:
        if isinstance(inst, ir.Assign):
            name = inst.target.name
            self.storevar(self.lower_assign(self.typeof(name), inst), name)
        else:
            CUDALower.lower_inst(self, inst)

    def debug_print(self, msg: str) -> None:
        """Not even asked for."""

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if expr.op == "static_getitem" and isinstance(self.typeof(expr.value.name), types.Array):
            return self.lower_getitem(resty, expr, expr.value, expr.index_var, None)  # as Numba does after a search
        return CUDALower.lower_expr(self, resty, expr)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        return self._operator(op, self.fndesc.calltypes[expr], (expr.lhs, expr.rhs), resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        kind = self.typeof(value.name)
        if not isinstance(kind, types.Array):
            return self._operator(operator.getitem, signature, (value, index), resty)
        return self.context.cast(self.builder, self.builder.load(self._element(value, index)), kind.dtype, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> None:
        value = self._cast_var(value_var, self.typeof(target_var.name).dtype)
        self.builder.store(value, self._element(target_var, index_var))

    def _operator(self, does: Any, signature: Any, operands: Sequence[Any], result: Any) -> Any:
        typing = self.context.typing_context
        function = typing.resolve_value_type(does)  # for += the one of +, perhaps not resolved before
        signature = typing.resolve_function_type(function, signature.args, {})
        given = [self._cast_var(each, kind) for each, kind in zip(operands, signature.args, strict=True)]
        made = self.context.get_function(function, signature)(self.builder, given)
        return self.context.cast(self.builder, made, signature.return_type, result)

    def _element(self, array: Any, index: Any) -> Any:
        """The address of an array's element; a negative index counts from its end."""
        builder, fields, place = self.builder, self.loadvar(array.name), self._cast_var(index, types.intp)
        data, size = builder.extract_value(fields, _DATA), builder.extract_value(fields, [_SHAPE, 0])
        negative = builder.icmp_signed("<", place, place.type(0))
        return builder.gep(data, [builder.select(negative, builder.add(place, size), place)])


def _operands(statement: Any) -> Collection[Any]:
    """The variables that a statement reads."""
    value = statement.value if isinstance(statement, ir.Assign) else statement
    return [value] if isinstance(value, ir.Var) else value.list_vars() if isinstance(value, ir.Inst) else []

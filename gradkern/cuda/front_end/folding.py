"""Partial evaluation of a kernel's source: what is constant when a kernel is built is folded before Numba sees it.

Kernels are closures over the constants of their config, and half of their statements are for other configs. Numba
prunes them after it has inlined, renamed and analysed them; taken out of the source they cost nothing. `folded` reads a
function's source and returns a function with the same arguments, where

    a closure's or a module's number, truth value, text or None is written in place of its name
    arithmetic and comparisons of constants are done; `and`, `or` (of truth values), `if` and `while` are decided
    loops of one turn are their bodies, and loops of none are gone
    a local variable that is assigned once, a constant, is that constant
    int32(0) and its like are constants of that type
    what is assigned and never read is not computed

What it does not know stays as it is: it never has to understand a statement to leave it correct.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

_operator: Any = operator  # whose functions have partial types
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: _operator.add,
    ast.Sub: _operator.sub,
    ast.Mult: _operator.mul,
    ast.Div: _operator.truediv,
    ast.FloorDiv: _operator.floordiv,
    ast.Mod: _operator.mod,
    ast.LShift: _operator.lshift,
    ast.RShift: _operator.rshift,
    ast.BitAnd: _operator.and_,
    ast.BitOr: _operator.or_,
    ast.BitXor: _operator.xor,
    ast.Pow: _operator.pow,
    ast.Eq: _operator.eq,
    ast.NotEq: _operator.ne,
    ast.Lt: _operator.lt,
    ast.LtE: _operator.le,
    ast.Gt: _operator.gt,
    ast.GtE: _operator.ge,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_numba: Any = import_module("numba.cuda")  # it has no types
_CASTS: dict[Any, Callable[[Any], Any]] = {
    _numba.int32: np.int32,
    _numba.int64: np.int64,
    _numba.float32: np.float32,
    _numba.float64: np.float64,
}
_ROUNDS = 3  # what one round folds lets the next fold more; no kernel has needed a fourth


def folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its constants folded, or itself where its source is not to be had."""
    if not isinstance(function, FunctionType) or (definition := _definition(function)) is None:
        return function
    known = folded_source(definition, _names(function))
    tree = ast.Module([definition], [])
    read = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
    namespace = {name: known[name] for name in read if name in known} | {"__name__": function.__module__}
    exec(compile(tree, function.__code__.co_filename, "exec"), namespace)
    made: Any = namespace[definition.name]
    made.__qualname__ = function.__qualname__
    return made


def folded_source(definition: ast.FunctionDef, names: Mapping[str, Any]) -> dict[str, Any]:
    """Fold a definition in place; `names` is what it finds outside it. Returns what it finds outside it then."""
    definition.decorator_list, definition.returns = [], None
    for argument in definition.args.args:
        argument.annotation = None
    used: dict[str, Any] = {}
    changed = True
    for _ in range(_ROUNDS):
        fold = _Fold(names, used, definition)
        definition.body = fold.block(definition.body)
        if not (changed or fold.changed):
            break
        drop = _Drop({**names, **used}, definition)
        definition.body = drop.block(definition.body)
        changed = drop.changed
        if not (changed or fold.changed):
            break
    return {**names, **used}


def _definition(function: FunctionType) -> ast.FunctionDef | None:
    """The function's own definition. None where there is none, where the file has changed since it was loaded, or where
    it has other than plain arguments.
    """
    try:
        [definition] = ast.parse(_source(function.__code__)).body  # a new one: it is changed
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(definition, ast.FunctionDef):
        return None
    arguments, code = definition.args, function.__code__
    plain = not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults)
    given = (function.__name__, *code.co_varnames[: code.co_argcount])
    return definition if plain and given == (definition.name, *(each.arg for each in arguments.args)) else None


@lru_cache(1024)
def _source(code: Any) -> str:
    """A function's source, in the line that it has in its file."""
    lines, start = inspect.findsource(code)
    return "\n" * (code.co_firstlineno - 1) + textwrap.dedent("".join(inspect.getblock(lines[start:])))


def _names(function: FunctionType) -> dict[str, Any]:
    """What the function's names stand for outside it: its module's, and those of the functions around it."""
    code, found = function.__code__, dict(function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            found.pop(name, None)
    for name in (*code.co_varnames, *code.co_cellvars):
        found.pop(name, None)
    return found


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None)))


def _value(node: ast.AST) -> Any:
    assert isinstance(node, ast.Constant)
    return node.value


class _Round(ast.NodeTransformer):
    """Visits statements in lists; a visit may change a list's length.

    changed: whether a visit has given anything but its node
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self.changed = False

    def visit(self, node: ast.AST) -> Any:
        made = super().visit(node)
        self.changed = self.changed or made is not node
        return made

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return node

    def block(self, body: list[Any]) -> list[Any]:
        """The statements that are left, one at least."""
        return self._statements(body) or [_nothing()]

    def _statements(self, body: list[Any]) -> list[Any]:
        self.generic_visit(ast.Module(body, []))
        return [each for each in body if not isinstance(each, ast.Pass)]

    def _is_pure(self, value: ast.expr) -> bool:
        """It does nothing but have a value."""
        return all(self._makes_a_value(each) for each in ast.walk(value) if isinstance(each, ast.Call))

    def _makes_a_value(self, call: ast.Call) -> bool:
        called = call.func
        if isinstance(called, ast.Name):
            function = self._names.get(called.id)
            builtin = called.id in ("min", "max", "abs") and function is None
            return builtin or any(function is kind for kind in _CASTS)
        return isinstance(called, ast.Attribute) and ast.unparse(called) == "cuda.local.array"


class _Fold(_Round):
    """One round: constants in, branches out."""

    def __init__(self, names: Mapping[str, Any], used: dict[str, Any], definition: ast.FunctionDef) -> None:
        super().__init__(names)
        self._used = used
        nodes = list(ast.walk(definition))
        self._locals = dict(_assigned_once(nodes))
        self._taken = {node.id for node in nodes if isinstance(node, ast.Name)}

    def _global(self, hint: str, value: Any) -> ast.Name:
        """The name of a value in the new function's module."""
        name = next((known for known, other in self._used.items() if other is value), None)
        if name is None:
            name = f"{hint}_"
            while name in self._taken or name in self._used or name in self._names:
                name += "_"
            self._used[name] = value
        return ast.Name(name, ast.Load())

    # --- expressions -------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load):
            if node.id in self._locals:
                return ast.copy_location(ast.Constant(self._locals[node.id]), node)
            made = ast.Constant(self._names.get(node.id, ...))
            if _is_constant(made):
                return ast.copy_location(made, node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = self._names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if not isinstance(owner, ModuleType) or owner.__name__.partition(".")[0] != "gradkern":
            return self.generic_visit(node)
        value = getattr(owner, node.attr)
        made = ast.Constant(value)
        return ast.copy_location(made if _is_constant(made) else self._global(node.attr, value), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._done(node, _BINARY.get(type(node.op)), node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._done(node, _UNARY.get(type(node.op)), node.operand)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        does = _BINARY.get(type(node.ops[0])) if len(node.ops) == 1 else None
        return self._done(node, does, node.left, *node.comparators)

    def _done(self, node: ast.expr, does: Callable[..., Any] | None, *operands: ast.expr) -> ast.expr:
        """The operation's result where all operands are constants; the operation where it has none."""
        if does is None or not all(map(_is_constant, operands)):
            return node
        try:
            made = ast.Constant(does(*map(_value, operands)))
        except (ArithmeticError, TypeError, ValueError):
            return node
        return ast.copy_location(made, node) if _is_constant(made) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        decides = isinstance(node.op, ast.Or)
        values: list[ast.expr] = []
        for each in map(self.visit, node.values):
            if not _is_constant(each):
                values.append(each)
            elif bool(_value(each)) == decides:
                kept = [other for other in values if not self._is_pure(other)]
                self.changed, values = self.changed or len(kept) < len(values), kept
                values.append(ast.copy_location(ast.Constant(decides), node))
                break
        if len(values) < 2:
            return values[0] if values else ast.copy_location(ast.Constant(not decides), node)
        node.values = values
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self.visit(node.test)
        if _is_constant(node.test):
            return self.visit(node.body if _value(node.test) else node.orelse)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func
        function = self._names.get(called.id) if isinstance(called, ast.Name) else None
        if not isinstance(called, ast.Name):  # a name that is called stays one, also None in a branch never taken
            node.func = self.visit(called)
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        if node.keywords or not node.args or not all(map(_is_constant, node.args)):
            return node
        values = [_value(each) for each in node.args]
        if isinstance(called, ast.Name) and called.id in ("min", "max") and called.id not in self._names:
            made = min(values) if called.id == "min" else max(values)
            return ast.copy_location(ast.Constant(made), node)
        cast = next((makes for kind, makes in _CASTS.items() if function is kind), None)
        if cast is None or len(values) != 1 or isinstance(values[0], (str, type(None))):
            return node
        try:
            made = cast(values[0])
        except (OverflowError, ValueError):
            return node
        for known in self._used.values():  # one name for each constant
            if type(known) is type(made) and known.tobytes() == made.tobytes():
                made = known
        return ast.copy_location(self._global(f"{type(made).__name__}_constant", made), node)

    # --- statements --------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant) else node

    def visit_If(self, node: ast.If) -> Any:
        node.test = self.visit(node.test)
        if _is_constant(node.test):
            return self._statements(node.body if _value(node.test) else node.orelse)
        node.body, node.orelse = self.block(node.body), self._statements(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.visit(node.test)
        if _is_constant(node.test) and not _value(node.test):
            return self._statements(node.orelse)
        node.body = self.block(node.body)
        return node

    def visit_For(self, node: ast.For) -> Any:
        node.iter = self.visit(node.iter)
        turns = _turns(node.iter)
        if turns is None or len(turns) > 1 or node.orelse or not isinstance(node.target, ast.Name):
            node.body = self.block(node.body)
            return node
        if not turns:
            return []
        name, inside = node.target.id, [each for statement in node.body for each in ast.walk(statement)]
        stored = any(isinstance(each, ast.Name) and each.id == name and _is_stored(each) for each in inside)
        if stored or any(isinstance(each, (ast.Break, ast.Continue)) for each in inside):
            node.body = self.block(node.body)
            return node
        before = self._locals.get(name)
        self._locals[name] = turns[0]
        body = self._statements(node.body)
        del self._locals[name]
        if before is not None:
            self._locals[name] = before
        turn = ast.copy_location(ast.Constant(turns[0]), node)
        return [ast.copy_location(ast.Assign([node.target], turn), node), *body]


class _Drop(_Round):
    """One round: assignments to what nobody reads, and branches with nothing in them, go."""

    def __init__(self, names: Mapping[str, Any], definition: ast.FunctionDef) -> None:
        super().__init__(names)
        self._read: set[str] = set()
        for node in ast.walk(definition):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self._read.add(node.target.id)
            if isinstance(node, ast.Name) and not _is_stored(node):
                self._read.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) != 1:
            return node
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            return node if target.id in self._read or not self._is_pure(value) else None
        if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            return node
        if len(target.elts) != len(value.elts) or not all(isinstance(each, ast.Name) for each in target.elts):
            return node
        pairs = list(zip(target.elts, value.elts, strict=True))
        pairs = [(name, each) for name, each in pairs if name.id in self._read or not self._is_pure(each)]  # type: ignore[attr-defined]
        if len(pairs) > 1:
            self.changed = self.changed or len(pairs) < len(target.elts)
            target.elts, value.elts = [name for name, _ in pairs], [each for _, each in pairs]
            return node
        return [ast.copy_location(ast.Assign([name], each), node) for name, each in pairs]

    def visit_If(self, node: ast.If) -> Any:
        node.body, node.orelse = self._statements(node.body), self._statements(node.orelse)
        if not node.body and not node.orelse and self._is_pure(node.test):
            return None
        node.body = node.body or [_nothing()]
        return node

    def visit_For(self, node: ast.For) -> Any:
        node.body = self._statements(node.body)
        unread = isinstance(node.target, ast.Name) and node.target.id not in self._read
        if not node.body and not node.orelse and unread and _turns(node.iter) is not None:
            return None
        node.body = node.body or [_nothing()]
        return node

    def visit_While(self, node: ast.While) -> Any:
        node.body = self.block(node.body)
        return node


def _nothing() -> ast.Pass:
    return ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)


def _is_stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _turns(iterated: ast.AST) -> range | None:
    """The range of constants that is iterated over."""
    if not (isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "range"):
        return None
    if iterated.keywords or not all(map(_is_constant, iterated.args)):
        return None
    return range(*map(_value, iterated.args))


def _assigned_once(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Of a definition's nodes, the local variables that one statement assigns, and that a constant."""
    stores = Counter(node.id for node in nodes if isinstance(node, ast.Name) and _is_stored(node))
    stores.update(node.arg for node in nodes if isinstance(node, ast.arg))
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_constant(node.value):
            target = node.targets[0]
            if isinstance(target, ast.Name) and stores[target.id] == 1:
                yield target.id, _value(node.value)

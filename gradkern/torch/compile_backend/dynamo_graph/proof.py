"""Stage 1: the proof that calls of Dynamo's graph may become one call in another place. Every pass asks for it.

What cannot be proven stays as the model wrote it, with the reason in the report. Memory is compared by storages: two
tensors that share one are one, whatever part of it they cover. A call writes what its schema says. Of what has none
only the functions listed here are known.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import BuiltinFunctionType, MappingProxyType
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore[reportMissingImports]
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket  # pyright: ignore[reportMissingImports]
from torch.amp import autocast_mode  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]
from torch.utils._pytree import tree_leaves  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.graph import replaces

_C: Any = torch._C  # pyright: ignore[reportPrivateImportUsage]
_STATISTICS = {"running_mean", "running_var"}  # batch norms write them, though PyTorch's schemas do not say so
_IN_PLACE = {getattr(operator, name) for name in dir(operator) if name.startswith("i") and name[1:] in dir(operator)}
_IN_PLACE |= {operator.setitem, operator.delitem}
_NAMESPACES = {"torch", *[f"torch._C._{name}" for name in ("nn", "linalg", "fft", "special", "sparse", "nested")]}
"""Of functions in C++ that are those of aten of the same names."""
_FUNCTIONAL = {each for each in vars(functional).values() if inspect.isfunction(each)}
_PURE = {
    *(getattr, hasattr, isinstance, len, max, min, sum, abs, round, pow, int, float, bool, slice, tuple, list),
    *[getattr(torch.functional, name) for name in torch.functional.__all__],
    *[each for name, each in vars(torch).items() if name.startswith("sym_")],
    *(torch._check, torch._assert, getattr(_C._autograd, "_get_data_attr", getattr)),
    *(_C._set_grad_enabled, autocast_mode._enter_autocast, autocast_mode._exit_autocast),
}
"""Functions without a schema that write into nothing but `out`."""
_PURE_METHODS = {"float", "double", "half", "bfloat16", "long", "int", "short", "bool", "type", "tolist", "nelement"}
_EXCHANGES_MEMORY = {"set_", "resize_"}
_OPENS, _CLOSES = ("_increment_nesting", "_enter_dual_level"), ("_decrement_nesting", "_exit_dual_level")
"""The ends of names of functions that open and close a transform of torch.func, or forward-mode AD."""


class _Modes(NamedTuple):
    """The modes in force at a call. unknown: the last call before it whose effects on the modes are not known."""

    grad: bool | None = None
    autocast: tuple[Any, ...] = ()
    transforms: int = 0
    unknown: fx.Node | None = None


class Proof:
    """Proofs about the calls of one graph, as it is when this is made.

    grad  whether gradients are recorded where the graph begins; None if that is not known
    """

    def __init__(self, graph: fx.Graph, grad: bool | None = None) -> None:
        self._written: dict[fx.Node, frozenset[int] | None] = {}
        self._memory: dict[fx.Node, frozenset[int]] = {}
        self._modes: dict[fx.Node, _Modes] = {}
        self._exchanging = ""
        modes = _Modes(grad)
        for node in graph.nodes:
            modes = self._modes[node] = self._behind(node, modes)
            if name_of(node) in _EXCHANGES_MEMORY:
                self._exchanging = name_of(node)

    def _behind(self, node: fx.Node, modes: _Modes) -> _Modes:
        if node.target is _C._set_grad_enabled:
            return modes._replace(grad=node.args[0])
        if node.target is autocast_mode._enter_autocast:
            return modes._replace(autocast=(*modes.autocast, (node, node.args)))
        if node.target is autocast_mode._exit_autocast:
            return modes._replace(autocast=tuple([each for each in modes.autocast if each[0] is not node.args[0]]))
        if self.written(node) is not None:
            return modes
        change = name_of(node).endswith(_OPENS) - name_of(node).endswith(_CLOSES)
        return modes._replace(transforms=modes.transforms + change, unknown=node)

    def against(
        self,
        nodes: Iterable[fx.Node],
        place: fx.Node,
        reads: Iterable[Any] = (),
        writes: Iterable[Any] = (),
        saves: Iterable[Any] = (),
        results: Mapping[fx.Node, torch.Tensor] = MappingProxyType({}),
    ) -> str:
        """Why the nodes may not become one call in the place of one of them; "" if they may. Only these nodes use what
        all but the last of them compute.

        reads    the tensors that the call is given
        writes   those of them that it writes
        saves    the tensors that its backward pass reads
        results  what `replace` is to put in the place of nodes
        """
        nodes = sorted(nodes)
        reason = self._exchanging and f"{self._exchanging} changes the memory of a tensor"
        reason = reason or next(filter(None, [self.other_modes(each, place) for each in nodes]), "")
        if reason or self._modes[place].transforms:
            return reason or "a transform of torch.func is in force"
        given = [each for each in reads if isinstance(each, fx.Node)]
        if any(each.op not in ("placeholder", "get_attr") and place < each for each in given):
            return "an argument is computed between its calls"
        written = memory(writes)
        for node in filter(lambda each: each not in nodes, _between(nodes[0], nodes[-1])):
            changed = self.written(node)
            if changed is None or (changed and changed & memory([each for each in given if each < node])):
                return f"{name_of(node)} writes in between what it reads"
            if written and written & _touched(node):
                return f"{name_of(node)} uses in between what it writes"
        later = self.writes_after(nodes[-1], memory(saves))
        if later:
            return f"{later} writes later what its gradient is computed from"
        return "" if all(itertools.starmap(replaces, results.items())) else "its results have other strides"

    def writes_after(self, node: fx.Node, used: frozenset[int]) -> str:
        """What writes this memory, or may do so, after that call; "" if nothing does."""
        for each in _between(node) if used else ():
            written = self.written(each)
            if used & (_touched(each) if written is None else written):
                return name_of(each)
        return ""

    def sees_write(self, write: fx.Node) -> str:
        """What sees what a call writes into its first argument, but for users of the call's result; "" if nothing does.
        Where nothing does, the call may as well compute a new tensor.
        """
        used = memory(write.args[0])
        for each in write.graph.nodes:
            inputs = each.all_input_nodes if write < each else ()
            seen = [each] if each.op in ("placeholder", "get_attr") else [other for other in inputs if other < write]
            if any(used & self._memory_of(other) for other in seen):
                return name_of(each)
        return ""

    def _memory_of(self, node: fx.Node) -> frozenset[int]:
        """Kept: each write asks for that of every node."""
        if node not in self._memory:
            self._memory[node] = memory(node)
        return self._memory[node]

    def other_modes(self, one: fx.Node, other: fx.Node) -> str:
        """What is in force for the one call and not for the other; "" if nothing is."""
        first, second = self._modes[one], self._modes[other]
        unknown = first.unknown if other < one else second.unknown
        if unknown is not None and first.unknown is not second.unknown:
            return f"what {name_of(unknown)} does in between is not known"
        if first.autocast != second.autocast:
            return "autocast is not the same for all of it"
        return "" if first == second else "grad mode is not the same for all of it"

    def written(self, node: fx.Node) -> frozenset[int] | None:
        """The memory that a call writes; None if that is not known."""
        if node not in self._written:
            bodies = _bodies(node)
            if bodies:
                parts = [self.written(each) for body in bodies for each in body.graph.nodes]
                self._written[node] = None if None in parts else frozenset().union(*filter(None, parts))
            else:
                arguments = _written_arguments(node)
                self._written[node] = None if arguments is None else memory(arguments)
        return self._written[node]


def _bodies(node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that a higher-order operator is given."""
    if not isinstance(node.target, HigherOrderOperator):
        return []
    root: Any = node.graph.owning_module
    names = [each.target for each in node.all_input_nodes if each.op == "get_attr"]
    found = [root.get_submodule(name) for name in names if name in dict(root.named_modules())]
    return [each for each in found if isinstance(each, fx.GraphModule)]


def _written_arguments(node: fx.Node) -> list[Any] | None:
    """The arguments that a call writes; None if that is not known."""
    if node.op not in ("call_function", "call_method"):
        return None if node.op == "call_module" else []
    target: Any = _operator(node.target) if isinstance(node.target, str) else node.target
    if target in _IN_PLACE:
        return [node.args[0]]
    if target in _PURE or node.target in _PURE_METHODS or getattr(target, "__module__", "") in ("_operator", "math"):
        return [node.kwargs.get("out")]
    if target in _FUNCTIONAL:
        return _written_by_functional(node)
    places = _written_places(target)
    if places is None:
        return None
    of_places = [node.kwargs.get(name) if place is None else node.args[place : place + 1] for place, name in places]
    named = [node.kwargs.get(name) for _, name in places]
    return [*of_places, *named, node.kwargs.get("out")]


def _operator(method: str) -> Any:
    """The function for a method such as __imul__ and __radd__, else its name."""
    if not method.startswith("__"):
        return method
    return getattr(operator, method, None) or getattr(operator, f"__{method[3:]}", method)


def _written_by_functional(node: fx.Node) -> list[Any]:
    target: Any = node.target
    given = inspect.signature(target).bind(*node.args, **node.kwargs).arguments
    if target in (functional.batch_norm, functional.instance_norm):
        return [given.get(each) for each in _STATISTICS]
    if target in (functional.embedding, functional.embedding_bag) and given.get("max_norm") is not None:
        return [given["weight"]]
    return [node.args[0] if node.args else node.kwargs] if given.get("inplace") else []


@cache
def _written_places(target: Any) -> frozenset[tuple[int | None, str]] | None:
    """Places and names of the arguments that an operator, or a function or method of its name, writes."""
    if isinstance(target, OpOverload):
        schemas = [target._schema]
    else:
        is_function = isinstance(target, BuiltinFunctionType) and target.__module__ in _NAMESPACES
        name = target if isinstance(target, str) else target.__name__ if is_function else ""
        packet = target if isinstance(target, OpOverloadPacket) else getattr(torch.ops.aten, name or "-", None)
        if packet is None:
            return None
        schemas = [getattr(packet, each)._schema for each in packet.overloads()]
    found = [(place, each) for schema in schemas for place, each in enumerate(schema.arguments)]
    return frozenset(
        (None if each.kwarg_only else place, each.name)
        for place, each in found
        if each.name in _STATISTICS or (each.alias_info is not None and each.alias_info.is_write)
    )


def memory(arguments: Any) -> frozenset[int]:
    """The storages of the tensors among these arguments, and within them."""
    return storages([each.meta.get("example_value") for each in tree_leaves(arguments) if isinstance(each, fx.Node)])


def storages(values: Any) -> frozenset[int]:
    """Those of the tensors among these values, and within them."""
    tensors = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
    return frozenset(each.untyped_storage()._cdata for each in tensors if not is_functorch_wrapped_tensor(each))


def _touched(node: fx.Node) -> frozenset[int]:
    """The memory of what a call is given and returns."""
    return memory([node, *node.all_input_nodes])


def _between(first: fx.Node, last: fx.Node | None = None) -> Iterator[fx.Node]:
    """The calls after the first, and before the last or the end."""
    node = first if first is last else first.next
    while node is not last and node.op != "output":
        yield node
        node = node.next


def name_of(node: fx.Node) -> str:
    """What is called; of a method such as __eq__, which Dynamo of PyTorch 2.11 calls, the operator's name."""
    target: Any = _operator(node.target) if isinstance(node.target, str) else node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))

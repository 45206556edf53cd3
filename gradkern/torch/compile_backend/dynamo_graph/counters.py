"""Stage 1: the counters of batches that batch norms keep, counted on in one kernel and not in one each."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import value

__all__ = ["fuse"]


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    found: dict[Any, list[fx.Node]] = defaultdict(list)
    for node in graph.find_nodes(op="call_method", target="add_"):
        counter = value(node.args[0])
        if counter is not None and _counts(node, counter):
            found[counter.device].append(node)
    foreach_add: Any = torch._foreach_add_  # pyright: ignore[reportPrivateImportUsage]
    for alike in found.values():
        counted = [each.args[0] for each in alike]
        if len(alike) > 1 and not fusion.proof.against(alike, alike[-1], counted, counted):
            with graph.inserting_before(alike[-1]):
                graph.call_function(foreach_add, (counted, 1))
            for each in alike:
                graph.erase_node(each)


def _counts(node: fx.Node, counter: torch.Tensor) -> bool:
    """Whether it adds one to an input of the graph, a single number, that nothing else uses."""
    source: Any = node.args[0]
    plain = node.args[1:] == (1,) and not node.kwargs and not node.users
    alone = source.op == "placeholder" and list(source.users) == [node]
    return plain and alone and counter.dim() == 0 and counter.dtype is torch.int64

"""Stage 3, in the forward graph: running statistics are written where they are, without a copy of each."""

from __future__ import annotations

import operator

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.batch_norm import FORWARD, IN_PLACE

__all__ = ["replace"]

_NEW = {0: 0, 3: 1, 4: 2}
"""The place that a result of FORWARD has among those of IN_PLACE."""


def replace(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=FORWARD):
        results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        copies = [_copy(node, results.get(place), node.args[place + 2]) for place in (1, 2)]
        if len(results) < len(node.users) or None in copies:
            continue
        for place, copy in zip((1, 2), copies, strict=True):
            graph.erase_node(copy)  # pyright: ignore[reportArgumentType]
            graph.erase_node(results.pop(place))
        node.target = IN_PLACE
        values = node.meta["val"]
        node.meta["val"] = tuple([values[place] for place in _NEW])
        for place, user in results.items():
            user.args = (node, _NEW[place])


def _copy(node: fx.Node, result: fx.Node | None, buffer: fx.Node) -> fx.Node | None:
    """What copies the result over the buffer, if nobody else reads either."""
    if result is None or len(result.users) != 1 or set(buffer.users) != {node, copy := next(iter(result.users))}:
        return None
    return copy if copy.target is torch.ops.aten.copy_.default and copy.args[:2] == (buffer, result) else None

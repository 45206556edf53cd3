"""Stage 3, in the forward and in the backward graph: what gradkern's kernels and Inductor's want.

What Inductor computes for a batch norm's gradient, a max pool's or a 3-D convolution's has strides that suit these;
gradkern computes the gradient of the filters of a network's first convolution; running statistics are written where
they are; and small tables of costly functions are computed once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._inductor import inductor_prims  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import batch_norm, windows
from gradkern.torch.compile_backend.dynamo_graph.depthwise_conv import CONV_WEIGHT_GRADIENT, of_each_axis
from gradkern.torch.compile_backend.dynamo_graph.fusion import off_gpu
from gradkern.torch.compile_backend.gates import Gates, hint
from gradkern.torch.operators import new_like

_aten = torch.ops.aten

_PLACES = {batch_norm.BACKWARD: (2, (0, 1, 3)), windows.MAX_POOL_BACKWARD: (1, (0,))}
"""By the operator, the place of an argument that the forward pass has saved, and those of what has its shape."""


def agree_on_strides(graph: fx.Graph) -> None:
    """What Inductor computes itself it lays out as it likes: behind an average over positions, say, in C order, though
    all else is channels-last. A batch norm's kernels want one order for all, and would copy. A 3-D convolution's
    gradient is copied by PyTorch, slowly, where it is cut out of another, as that of a concatenation is: Inductor's
    copy is quicker.
    """
    for target, (saved, others) in _PLACES.items():
        for node in graph.find_nodes(op="call_function", target=target):
            _agree(node, node.args[saved], others)
    dense = _aten.is_non_overlapping_and_dense.default
    for node in graph.find_nodes(op="call_function", target=_aten.convolution_backward.default):
        gradient, x = (each.meta["val"] for each in node.args[:2])
        if x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d) and not dense(gradient):
            order: Any = torch.channels_last_3d
            with graph.inserting_before(node):
                made = graph.call_function(_aten.clone.default, (node.args[0],), {"memory_format": order})
            made.meta["val"] = torch.empty_like(gradient, memory_format=order)
            node.update_arg(0, made)


def _agree(node: fx.Node, saved: Any, others: Iterable[int]) -> None:
    if saved is None or saved.op != "placeholder":
        return  # Inductor decides later on the strides of what the graph computes
    strides = saved.meta["val"].stride()
    if not all(isinstance(each, int) for each in strides):
        return
    with node.graph.inserting_before(node):
        for place in others:
            each: Any = node.args[place]
            if each is not None:
                made = node.graph.call_function(inductor_prims.force_stride_order, (each, strides))
                made.meta["val"] = each.meta["val"]
                node.update_arg(place, made)


# --- convolutions of few channels -------------------------------------------------------------------------------------

_FEW_CHANNELS = "dW of few channels"
_TYPES = (torch.float16, torch.bfloat16)
_VECTOR = 8  # elements of 16 bits: gradkern's kernel takes fewer channels than that, and filters in such vectors


def take_few_channels(graph: fx.Graph, gates: Gates) -> None:
    """dW of a convolution of few channels in 16 bits, as the first of a network is, is wanted alone, as images need no
    gradient, and gradkern has a kernel of its own for it, where tensor cores want more channels than there are. All
    others but depthwise ones are PyTorch's in both directions: cuDNN's are fast there.
    """
    for node in graph.find_nodes(op="call_function", target=_aten.convolution_backward.default):
        grad, x, weight, _, *sizes, transposed, _, groups, mask = node.args
        if transposed or groups != 1 or list(mask) != [False, True, False] or not _fits(x, weight, sizes, gates):
            continue
        both = [of_each_axis(each, 2) for each in sizes]
        with graph.inserting_before(node):
            made = graph.call_function(CONV_WEIGHT_GRADIENT, (grad, x, weight, *both, groups))
        made.meta["val"] = new_like(weight.meta["val"])
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 1:
                user.replace_all_uses_with(made)
            graph.erase_node(user)  # of those that are not wanted there may be one, that nobody reads
        graph.erase_node(node)


def _fits(x: fx.Node, weight: fx.Node, sizes: Any, gates: Gates) -> bool:
    image, filters = x.meta["val"], weight.meta["val"]
    if image.dim() != 4 or image.dtype not in _TYPES or off_gpu(image):
        return False
    channels, dilation = filters.shape[1], sizes[2]
    few = channels < _VECTOR and filters.shape[0] % _VECTOR == 0 and all(each == 1 for each in dilation)
    return few and not gates.reason(_FEW_CHANNELS, image)


# --- running statistics -----------------------------------------------------------------------------------------------

_NEW = {0: 0, 3: 1, 4: 2}
"""The place that a result of FORWARD has among those of IN_PLACE."""


def write_in_place(graph: fx.Graph) -> None:
    """Let batch norms write running statistics where they are, without a copy of each."""
    for node in graph.find_nodes(op="call_function", target=batch_norm.FORWARD):
        results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        copies = [_copy(node, results.get(place), node.args[place + 2]) for place in (1, 2)]
        if len(results) < len(node.users) or None in copies:
            continue
        for place, copy in zip((1, 2), copies, strict=True):
            graph.erase_node(copy)  # pyright: ignore[reportArgumentType]
            graph.erase_node(results.pop(place))
        node.target = batch_norm.IN_PLACE
        values = node.meta["val"]
        node.meta["val"] = tuple([values[place] for place in _NEW])
        for place, user in results.items():
            user.args = (node, _NEW[place])


def _copy(node: fx.Node, result: fx.Node | None, buffer: fx.Node) -> fx.Node | None:
    """What copies the result over the buffer, if nobody else reads either."""
    if result is None or len(result.users) != 1 or set(buffer.users) != {node, copy := next(iter(result.users))}:
        return None
    return copy if copy.target is _aten.copy_.default and copy.args[:2] == (buffer, result) else None


# --- tables -----------------------------------------------------------------------------------------------------------

_COSTLY = {
    *(_aten.sin, _aten.cos, _aten.tan, _aten.asin, _aten.acos, _aten.atan, _aten.atan2),
    *(_aten.sinh, _aten.cosh, _aten.asinh, _aten.acosh, _aten.atanh, _aten.lgamma, _aten.digamma),
}
"""What takes a GPU tens of instructions, and a power of an exponent that is no constant."""
_POWERS = (_aten.pow.Tensor_Tensor, _aten.pow.Scalar)
_BEGINNINGS = {torch.ops.prims.iota, _aten.arange, _aten.full, _aten.scalar_tensor, _aten.mm, _aten.bmm}
"""Where a table may begin, beside the graph's inputs. Not in a reduction, whose kernel goes on with what reads it."""
_BROADCAST = 8
"""How many elements of what reads a table each of its elements has at least."""


def keep_tables(graph: fx.Graph, gates: Gates) -> None:
    """Have Inductor store every small table of costly functions, computed once, and not where it is broadcast.

    Inductor writes what is elementwise into every kernel that reads it. So the cosines of rotary embeddings, one for
    each position and pair of features, are computed anew for every sample, head and layer, in both passes. A table that
    lies in memory costs one launch, and what reads it is bound by memory again: in a Llama-like model on an H200
    kernels that turn queries and keys took 300 us each, and take 40 to 52.
    """
    costs: dict[fx.Node, bool] = {}  # of what is elementwise from its beginnings on: whether a costly function is in it
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        elementwise, inputs = _is_elementwise(node), node.all_input_nodes
        for table in [each for each in inputs if elementwise and costs.get(each)]:
            often = hint(value.numel()) >= _BROADCAST * hint(table.meta["val"].numel())
            if often and not gates.reason("broadcast tables", value):
                _store(table)
                costs[table] = False
        if node.op in ("placeholder", "get_attr") or _packet(node) in _BEGINNINGS:
            costs[node] = False
        elif elementwise and all(each in costs for each in inputs):
            costly = _packet(node) in _COSTLY or node.target in _POWERS
            costs[node] = costly or any(costs[each] for each in inputs)


def _packet(node: fx.Node) -> Any:
    """What is called, whatever its arguments; None of what is no operator."""
    return getattr(node.target, "overloadpacket", None)


def _is_elementwise(node: fx.Node) -> bool:
    """Also what only says where elements are, and what puts tensors side by side."""
    target: Any = node.target
    if _packet(node) is None:
        return False
    return target.is_view or _packet(node) is _aten.cat or torch.Tag.pointwise in target.tags


def _store(table: fx.Node) -> None:
    while table.target.is_view:  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
        table = table.all_input_nodes[0]
    table.meta["inductor_realize_to_strides"] = True

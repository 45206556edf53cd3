"""torch.compile(model, backend="gradkern"): gradkern's rewriting before Inductor, and Inductor."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.system.data_stack import with_room

_MANY_NODES = 100
"""Of a graph that takes the host half a millisecond or more: room on the stack costs at most 2 % of that."""


def gradkern(
    graph_module: fx.GraphModule, inputs: Any, *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """The backend: see `gradkern.torch.compile_backend`."""
    from torch._guards import TracingContext, tracing  # pyright: ignore[reportMissingImports]
    from torch._inductor import list_mode_options  # pyright: ignore[reportMissingImports]
    from torch._inductor.compile_fx import compile_fx  # pyright: ignore[reportMissingImports]

    from gradkern.torch.compile_backend import findings, zero_gradients
    from gradkern.torch.compile_backend.call_sites import write_call_sites
    from gradkern.torch.compile_backend.choice import Choice, copied, has_open_sizes, of_dynamo
    from gradkern.torch.compile_backend.dynamo_graph.cross_entropy import logits_among_results
    from gradkern.torch.compile_backend.dynamo_graph.padded_logits import cut, give_whole
    from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
    from gradkern.torch.compile_backend.gates import gates_of
    from gradkern.torch.compile_backend.inductor_graphs.passes import config_with_passes
    from gradkern.torch.compile_backend.operators import register_lowerings

    write_call_sites()
    register_lowerings()
    chosen = dict(options or {})
    gates = gates_of(chosen.pop("gradkern", None))
    settings = {**list_mode_options(mode or "default"), **chosen}
    is_captured = bool(settings.get("triton.cudagraphs"))
    wants_room = len(graph_module.graph.nodes) >= _MANY_NODES and not is_captured
    # what `tune` compares with; Inductor finds a CUDA graph's static inputs only while Dynamo compiles
    is_compared = not (has_open_sizes(inputs) or is_captured)
    plain = copied(graph_module) if is_compared else graph_module
    with findings.of_graph():
        rewrite(graph_module, gates)
        padded = give_whole(graph_module.graph)
        logits = logits_among_results(graph_module.graph)
        ours: Any = compile_fx(graph_module, inputs, config_patches=config_with_passes(settings, gates))
    if logits:
        ours = zero_gradients.made_for(ours, logits)
    if padded:
        ours = cut(ours, padded)
    dynamo = TracingContext.try_get()

    def compile_plain(given: Any) -> Any:
        """With Dynamo's fake inputs and mode, as torch.compile: without them Inductor uses no cache of graphs."""
        made = of_dynamo(plain)
        if dynamo is None or made is None:
            return compile_fx(plain, given, config_patches=settings)
        with tracing(TracingContext(dynamo.fake_mode)):
            return compile_fx(plain, made, config_patches=settings)

    compiled = Choice(ours, compile_plain) if is_compared else ours
    return with_room(compiled) if wants_room else compiled


def _reset() -> None:
    """What torch.compiler.reset() is to forget: the graphs of mode="reduce-overhead"."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None:
        trees.reset_cudagraph_trees()


gradkern.reset = _reset  # pyright: ignore[reportFunctionMemberAccess]


def register() -> None:
    """Let torch.compile find the backend by its name, where no installed package says so."""
    if not entry_points(group="torch_dynamo_backends", name="gradkern"):
        from torch._dynamo import register_backend  # pyright: ignore[reportMissingImports]

        register_backend(gradkern, name="gradkern")

"""Sites: calls of Dynamo's graph that may become one operator. Here is what is checked, reported and replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.graph import replace, where
from gradkern.torch.compile_backend.dynamo_graph.proof import Proof
from gradkern.torch.compile_backend.gates import Gates
from gradkern.torch.operators import short_name


@dataclass(frozen=True)
class Site:
    """Calls that may become one operator.

    name     the fusion, as gates.GATES has it
    at       the call that is reported
    x        the tensor whose size the gates look at
    nodes    the calls; nothing else uses what they compute but `results`
    make     puts the operator into the graph, in the place of `place`: what it returns replaces the results, in order
    results  those of the calls whose results others use, with what replaces them, without data
    reason   why no operator computes it; "" if one does
    doubt    why it is taken only on request

    place, reads, writes and saves are those of Proof.against; place is the last call by default.
    """

    name: str
    at: fx.Node
    x: torch.Tensor | None
    nodes: tuple[fx.Node, ...] = ()
    make: Callable[[fx.Graph], Sequence[fx.Node]] = lambda _: ()
    results: Mapping[fx.Node, torch.Tensor] = field(default_factory=dict)
    place: fx.Node | None = None
    reads: Sequence[Any] = ()
    writes: Sequence[Any] = ()
    saves: Sequence[Any] = ()
    reason: str = ""
    doubt: str = ""


class Fusion:
    """Of one graph: decides by the gates, proves, replaces and reports. grad: as Proof has it."""

    def __init__(self, gates: Gates, graph: fx.Graph, grad: bool | None) -> None:
        self._gates, self._graph, self.proof = gates, graph, Proof(graph, grad)
        self.reported: set[fx.Node] = set()

    def take(self, *sites: Site) -> bool:
        """Replace the first of these that can be replaced, the longest of one place first. Report it, and of those
        before it each reason once.
        """
        left: dict[str, Site] = {}
        for site in sites:
            reason = site.reason or self.against(site.name, site.x, site.doubt) or self._unproven(site)
            if not reason:
                self.report(site.name, site.at, site.x)
                self._replace(site)
                break
            left.setdefault(reason, site)
        for reason, site in left.items():
            self.report(site.name, site.at, site.x, reason)
        return len(left) < len(sites)

    def _unproven(self, site: Site) -> str:
        place = site.place or max(site.nodes)
        return self.proof.against(site.nodes, place, site.reads, site.writes, site.saves, site.results)

    def _replace(self, site: Site) -> None:
        nodes = sorted(site.nodes)
        with self._graph.inserting_before(site.place or nodes[-1]):
            made = site.make(self._graph)
        for (node, result), new in zip(site.results.items(), made, strict=True):
            replace(node, new, result)
        for each in reversed(nodes):
            if each not in site.results and not each.users:
                self._graph.erase_node(each)

    def against(self, name: str, x: torch.Tensor | None, doubt: str = "") -> str:
        """Why what has this input is not fused; "" where it may be. doubt: why it may be only on request."""
        if x is None:
            return "its input is no tensor of the graph"
        return self._gates.reason(name, x, doubt)

    def report(self, name: str, node: fx.Node, x: torch.Tensor | None, reason: str = "", matched: bool = True) -> None:
        """Report a fusion that begins with this call, or why there is none; not matched: a norm that is part of nothing
        that could be fused.
        """
        self.reported.add(node)
        shown = "" if x is None else f"{short_name(x.dtype)}[{', '.join(map(str, x.shape))}]"
        findings.add(findings.Finding(name, where(node), shown, reason, matched))


_ON_EVERY_DEVICE = False  # for tests: on a CPU PyTorch's kernels are as fast, or faster


def off_gpu(x: torch.Tensor) -> str:
    """Why what pays on GPUs alone is left to Inductor; "" where it is on one."""
    return "" if x.device.type == "cuda" or _ON_EVERY_DEVICE else "it is not on a GPU"


def unwanted(*tensors: torch.Tensor) -> str:
    """Why what gives these is left to Inductor, if one of them needs no gradient; else ""."""
    return "" if all(each.requires_grad for each in tensors) else "no gradient of it is wanted"

"""Cases of batch norm for gradkern's own kernels on a GPU, in guarded memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.kernels.channels.activation_alpha import with_alpha
from gradkern.policy import Policy
from helpers.batch_norm import INPUTS, OUTPUTS, Case
from helpers.batch_norm_activation import Backward
from helpers.capture import Capture
from helpers.guarded import Guarded, OnDevice, described


class Prepared:
    """A case on the device: guarded arrays, data channels-last if `last`, `offset` elements off alignment.

    cluster_size: of the persistent kernel, in place of the streaming kernel, and vectors if channels are last.
    """

    def __init__(
        self,
        operands: Case | Backward,
        outputs: tuple[str, ...] = OUTPUTS,
        cluster_size: int = 0,
        vectors: int = 0,
        last: bool = False,
        offset: int = 0,
        in_place: str = "",
        share: tuple[np.ndarray, np.ndarray, int] | None = None,
    ) -> None:
        from gradkern.cuda.device import activate, get_device

        X = operands.inputs["X"]
        self.order = (0, *range(2, X.ndim), 1) if last else tuple(range(X.ndim))
        self.shapes = {name: operands.shape(name) for name in outputs}
        given = dict(operands.inputs)
        if share is not None:
            given |= dict(zip(OUTPUTS[1:], share[:2], strict=True))
        self.host = {name: self.hold(array.shape, array.dtype, offset) for name, array in given.items()}
        for name, array in given.items():
            self.host[name].array[...] = (array.transpose(self.order) if array.ndim == X.ndim else array).ravel()
            if name != in_place:
                self.host[name].freeze()
        self.out = {name: self.hold(shape, operands.kind(name), offset) for name, shape in self.shapes.items()}
        if in_place:
            self.out["dX"] = self.host[in_place]
        inputs = {name: self.tensor(each, given[name].shape) for name, each in self.host.items()}
        results = {name: self.tensor(each, self.shapes[name]) for name, each in self.out.items()}
        self.device = get_device(0)
        with activate(self.device):
            if share is None:
                recipe = (
                    {"cluster_size": cluster_size, "vectors": vectors} if vectors else {"cluster_size": cluster_size}
                )
                activation = with_alpha(operands.attributes) if isinstance(operands, Backward) else "none"
                self.enqueue = self.candidate(inputs, results, recipe, activation)
            else:
                self.enqueue = self.part(inputs, results, share[2])
            self.there = {name: OnDevice(each) for name, each in self.host.items()}
            self.results = {
                name: self.there[in_place] if in_place and name == "dX" else OnDevice(each)
                for name, each in self.out.items()
            }

    def candidate(self, inputs: dict[str, Tensor], results: dict[str, Tensor], recipe: Any, activation: str) -> Any:
        from gradkern.cuda.scratch import scratch
        from gradkern.ops.batch_norm.cuda import persistent, streaming
        from gradkern.ops.batch_norm.cuda.problem import Problem

        tensors: dict[str, Any] = {name: inputs[name] for name in (*INPUTS, "B") if name in inputs} | results
        problem = Problem(**tensors, activation=activation)
        made: Any
        if recipe["cluster_size"]:
            made = persistent.build(problem, self.device, recipe)
        else:
            made = streaming.build(problem, self.device, {})
        made.prepare()

        def enqueue(read: tuple[int, ...], write: tuple[int, ...], stream: int) -> None:
            made(read, write, scratch(self.device, stream, made.workspace)[1], stream)

        return enqueue

    def part(self, inputs: dict[str, Tensor], results: dict[str, Tensor], count: int) -> Any:
        from gradkern.ops.batch_norm.cuda.parts import plan

        name, attributes = "BatchNormalizationGradFromSums", {"count": count}
        return plan(Call(name, inputs, results, attributes, {}, frozenset(), "cuda:0", Policy()))

    def hold(self, shape: tuple[int, ...], dtype: np.dtype, offset: int) -> Guarded:
        return Guarded((prod(shape),), dtype, offset * dtype.itemsize)

    def tensor(self, array: Guarded, shape: tuple[int, ...]) -> Tensor:
        return described(array, shape, self.order if len(shape) == len(self.order) else range(len(shape)))

    def run(self, without: tuple[str, ...] = (), stream: int = 0) -> None:
        inputs = tuple(0 if name in without else each.address for name, each in self.there.items())
        self.enqueue(inputs, tuple(each.address for each in self.results.values()), stream)

    def poison(self, stream: int = 0) -> None:
        """So that what a run before wrote is there no more, on the stream; not for results written over inputs."""
        from gradkern.cuda.device import activate

        with activate(self.device):
            for each in self.results.values():
                each.poison(stream)

    def fetch(self) -> dict[str, np.ndarray]:
        """The results, after a look at every guard."""
        from gradkern.cuda.device import activate

        with activate(self.device):
            for each in self.there.values():
                each.fetch()
            flat = {name: np.array(each.fetch()) for name, each in self.results.items()}
        if "dX" in flat:
            stored = [self.shapes["dX"][axis] for axis in self.order]
            flat["dX"] = flat["dX"].reshape(stored).transpose(np.argsort(self.order))
        return flat

    def free(self) -> None:
        from gradkern.cuda.device import activate

        with activate(self.device):
            for each in {*self.there.values(), *self.results.values()}:
                each.free()


def check(operands: Case | Backward, without: tuple[str, ...] = (), **how: Any) -> None:
    """Run and compare."""
    operands.check(results(operands, without, **how))


def results(operands: Case | Backward, without: tuple[str, ...] = (), **how: Any) -> dict[str, np.ndarray]:
    prepared = Prepared(operands, **how)
    prepared.run(without)
    found = prepared.fetch()
    prepared.free()
    return found


def check_the_bits_repeat(operands: Case, **how: Any) -> None:
    """A hundred runs after the first give what it gave."""
    prepared = Prepared(operands, **how)
    prepared.run()
    first = {name: result.tobytes() for name, result in prepared.fetch().items()}
    for _ in range(100):
        prepared.poison()
        prepared.run()
        assert {name: result.tobytes() for name, result in prepared.fetch().items()} == first
    prepared.free()


def check_a_replay(operands: Case, **how: Any) -> None:
    """Captured in a graph, and compared after the graph has run."""
    from gradkern.cuda.device import activate

    prepared = Prepared(operands, **how)
    with activate(prepared.device):
        with Capture(mode="THREAD_LOCAL") as capture:
            prepared.run(stream=capture.stream)
        capture.replay(times=3, before=prepared.poison)
    operands.check(prepared.fetch())
    prepared.free()

"""A whole training step as one CUDA graph: the host launches once what were hundreds of kernels."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.utils import _pytree  # pyright: ignore[reportMissingImports]

from gradkern.dispatch import tuning
from gradkern.dispatch.plan_cache import plan_cache
from gradkern.errors import ArgumentError, DeviceError, ProviderError
from gradkern.torch.compile_backend.choice import in_cuda_graph
from gradkern.torch.overrides import switch

Tensor = torch.Tensor


def graphed(step: Callable[..., Any], *, warmup: int = 3, capture_error_mode: str = "global") -> Graphed:
    """The step as a function that replays it: each call is one step, as a call of `step` is.

    step      a function of tensors on one GPU, or of nothing: forward and backward pass and, as one likes, clipping and
              optimizer (made with capturable=True). What it returns, tensors in tuples, lists or
              dicts, comes without gradients
    warmup    how many calls run as they are, on a stream of their own, before one is captured: at least 1, and 11 with
              DistributedDataParallel. In the first, kernels are compiled and searched for, as by `gradkern.torch.tune`
    capture_error_mode   torch.cuda.graph's: "thread_local" where other threads use the GPU meanwhile, as those of NCCL
              and of a DataLoader that pins memory do

    Inputs are copied into memory of the graph, so every call's have the shapes, types and device of the first one's.
    Results are memory of the graph, too: the next call writes over them, so clone what is to be kept. Parameters,
    buffers and gradients stay where they are: load into them, and do not replace them. What is no tensor is as it was
    in the captured call: a learning rate has to be a tensor to change. Calls follow one another on one stream.

    The graph holds the kernels and scratch memory of gradkern as long as it lives. Models compiled with
    backend="gradkern", and those that `gradkern.torch.enable` serves, are captured alike; leave out
    mode="reduce-overhead", as it captures graphs of its own. Where `tune(repeats=...)` has compared a compiled model
    with Inductor's form of it, that with the faster kernels is captured.

    Raises DeviceError where there is no GPU or an input is elsewhere, ArgumentError for inputs unlike the first ones,
    ProviderError where the step cannot be captured.

    >>> model = torch.nn.Linear(64, 10, device="cuda")
    >>> optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    >>> def step(x, target):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(x), target)
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> step = gradkern.torch.graphed(step)
    >>> for _ in range(10):
    ...     loss = step(torch.randn(32, 64, device="cuda"), torch.randint(10, (32,), device="cuda"))

    Source: PyTorch's notes on CUDA graphs, "Whole-network capture".
    """
    if not callable(step):
        raise ArgumentError(f"graphed: step is a {type(step).__name__}; expected a function of tensors")
    if type(warmup) is not int or warmup < 1:
        raise ArgumentError(f"graphed: warmup is {warmup!r}; expected a number of calls, 1 or more")
    modes = "global", "thread_local", "relaxed"
    if capture_error_mode not in modes:
        raise ArgumentError(
            f"graphed: capture_error_mode is {capture_error_mode!r}; expected one of {', '.join(modes)}"
        )
    return Graphed(step, warmup, capture_error_mode)


class Graphed:
    """What `graphed` returns. captured: whether calls replay the graph by now.

    >>> x = torch.ones(4, device="cuda")
    >>> step = gradkern.torch.graphed(lambda: x.add_(1), warmup=1)
    >>> _ = step(), step()
    >>> step.captured
    True
    """

    def __init__(self, step: Callable[..., Any], warmup: int, mode: str) -> None:
        self._step, self._left, self._mode = step, warmup, mode
        self._inputs: tuple[Tensor, ...] | None = None
        self._first = True
        self._graph: Any = None
        self._results: Any = None
        self._held: Any = None

    @property
    def captured(self) -> bool:
        return self._graph is not None

    def __call__(self, *inputs: Tensor) -> Any:
        """One step. Raises as `graphed` says."""
        if self._inputs is None:
            self._begin(inputs)
        self._take(inputs)
        if self._left:
            return self._warm()
        graph = self._graph or self._capture()
        graph.replay()
        return self._results

    def __repr__(self) -> str:
        state = "captured" if self.captured else f"{self._left} calls before it is captured"
        return f"<gradkern graphed {getattr(self._step, '__name__', self._step)}: {state}>"

    def _begin(self, inputs: tuple[Tensor, ...]) -> None:
        """Memory like the first inputs."""
        instead = "a CUDA graph is of one GPU; elsewhere call the step itself"
        for place, each in enumerate(inputs):
            name = f"graphed: input {place}"
            if not isinstance(each, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(
                    f"{name} is a {type(each).__name__}; expected a tensor: all else stays as it is in the captured "
                    "call, so let the step know it by itself"
                )
            if not each.is_cuda or each.device != inputs[0].device:
                raise DeviceError(f"{name} is on {each.device}; {instead}")
            if each.requires_grad:
                raise ArgumentError(
                    f"{name} requires grad; expected one that does not: the backward pass is part of the step, which "
                    "can make a leaf of it, x.detach().requires_grad_(), and return its gradient"
                )
        if not torch.cuda.is_available():
            raise DeviceError(f"graphed: PyTorch finds no GPU; {instead}")
        gc.collect()  # AccumulateGrad nodes of an earlier step, if they are alive, run on the stream of that step
        self._device = inputs[0].device if inputs else torch.device("cuda", torch.cuda.current_device())
        self._stream: Any = torch.cuda.Stream(self._device)
        self._inputs = tuple([torch.empty_like(each) for each in inputs])

    def _take(self, inputs: tuple[Tensor, ...]) -> None:
        """Copy this call's inputs to where the step reads them."""
        own = self._inputs or ()
        if len(inputs) != len(own):
            raise ArgumentError(f"graphed: {len(inputs)} inputs given; the first call had {len(own)}")
        for place, (mine, each) in enumerate(zip(own, inputs, strict=True)):
            given, expected = _described(each), _described(mine)
            if given != expected:
                raise ArgumentError(
                    f"graphed: input {place} is {given}; the first call's was {expected}: pad it, or drop the last "
                    "batch, or make another graphed(step) for inputs like this one"
                )
        for mine, each in zip(own, inputs, strict=True):
            if mine is not each:
                mine.copy_(each, non_blocking=True)

    def _warm(self) -> Any:
        """A step as it is, on a stream that is not the default one."""
        before = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            results = self._tuned() if self._first else self._run()
        before.wait_stream(self._stream)
        self._left -= 1
        self._first = False
        return results

    def _tuned(self) -> Any:
        if switch.is_enabled():
            return switch.tune(self._run)
        results = self._run()
        tuning.tune()  # of a compiled model that has put off searches
        return results

    def _run(self) -> Any:
        with in_cuda_graph():
            results = self._step(*(self._inputs or ()))
        return _pytree.tree_map_only(Tensor, Tensor.detach, results)

    def _capture(self) -> Any:
        graph, cause = torch.cuda.CUDAGraph(), None
        torch.clear_autocast_cache()  # of weights as they are now
        try:
            with (
                torch.cuda.stream(self._stream),
                torch.cuda.graph(graph, stream=self._stream, capture_error_mode=self._mode),
            ):
                try:
                    results = self._run()
                except Exception as error:  # that of the end of the capture says less
                    cause = error
                    raise
        except Exception as error:
            cause = cause or error
            self._free_random_numbers()
            raise ProviderError(
                f"graphed: the step cannot be captured in a CUDA graph: {type(cause).__name__}: {cause}\n"
                "In the step nothing may wait for the GPU (.item(), .cpu(), print, if tensor:) or copy from the host; "
                "an optimizer wants capturable=True; every call has to do the same, and nothing that did not come up "
                "in the warm-up; no result of an earlier step may still hold its autograd graph: .detach() it"
            ) from cause
        finally:
            torch.clear_autocast_cache()  # of memory of the graph
        self._graph, self._results = graph, results
        self._held = plan_cache.entries(), switch.runs()
        return graph

    def _free_random_numbers(self) -> None:
        """Let the device's generator go on with a copy of its state: PyTorch leaves it in a capture that has failed
        (pytorch/pytorch#171263), and every random number after it would be an error.
        """
        index = self._device.index
        for generator in torch.cuda.default_generators[index : index + 1]:
            generator.graphsafe_set_state(generator.clone_state())


def _described(tensor: Any) -> str:
    if not isinstance(tensor, Tensor):
        return f"a {type(tensor).__name__}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"

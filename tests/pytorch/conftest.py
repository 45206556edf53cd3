"""Tests of gradkern.torch, which import PyTorch: collected with --torch only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.getoption("--torch") or collection_path.suffix != ".py" else True


@pytest.fixture(autouse=True, scope="session")
def _by_python(request: pytest.FixtureRequest) -> None:
    """With --by-python, enable() has native=False where a test does not say otherwise."""
    if request.config.getoption("--by-python"):
        from gradkern.torch.overrides import switch

        switch.enable.__kwdefaults__["native"] = False  # pyright: ignore[reportOptionalSubscript]


@pytest.fixture(autouse=True)
def same_random_numbers(seed_of_test: int) -> None:
    """PyTorch's. Of 6,000 draws for one test of bfloat16, 8 were beyond the bound, and so was float64 rounded once."""
    import torch

    torch.manual_seed(seed_of_test)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """A report counts the calls of one test, whatever ran before it in this process."""
    import gradkern.torch

    gradkern.torch.forget()


@pytest.fixture
def overrides() -> Iterator[Any]:
    """gradkern.torch, enabled for the CPU, for tensors of any size, planning at once; forgotten and disabled after."""
    import gradkern.torch

    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
        yield gradkern.torch
    gradkern.torch.forget()


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that torch.compile, or gradkern.torch, knows from before, and nothing left behind."""
    import torch

    import gradkern.torch
    from gradkern.torch.compile_backend import choice

    torch.compiler.reset()
    monkeypatch.setattr(choice, "_live", WeakSet())  # what waits for the garbage collector
    yield
    torch.compiler.reset()
    gradkern.torch.forget()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch and BLAS with one thread: small steps gain nothing from more."""
    import torch
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


@pytest.fixture
def graphs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch runs the graphs that Inductor's passes, and gradkern's among them, have made: Inductor writes no C++ of
    them, whose compilation takes seconds. For tests of what graphs compute and of what is taken; what Inductor's own
    code has and calls is tested without this.
    """
    import torch
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._inductor import compile_fx
    from torch._inductor.fx_passes.post_grad import view_to_reshape
    from torch._inductor.virtualized import V

    def after_passes(graph_module: Any, inputs: Any, is_inference: bool = False, **_: Any) -> Any:
        view_to_reshape(graph_module)
        with torch.no_grad():
            mode = compile_fx.fake_tensor_prop(graph_module, inputs)
        with V.set_fake_mode(mode):
            compile_fx._recursive_post_grad_passes(graph_module, is_inference)
        return make_boxed_func(graph_module)

    compiled = compile_fx.compile_fx
    monkeypatch.setattr(
        compile_fx, "compile_fx", lambda *given, **how: compiled(*given, **{"inner_compile": after_passes, **how})
    )

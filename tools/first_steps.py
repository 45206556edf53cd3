"""The process that tools/cold_start.py starts: calls some gradients once, and once more, and prints what each took.

It is given a JSON object: work (an operator or a network), process (as there), type, batch, provider. What is loaded is
loaded in phases, each timed: PyTorch with its context, gradkern with its registry, and the libraries that its provider
needs. At the top it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

Options = dict[str, Any]
Call = Callable[[], Any]


def main() -> int:
    """Measure, and print a JSON object: empty where there is nothing to call."""
    options: Options = json.loads(sys.argv[1])
    cuda, torch = options["provider"] == "cuda", options["process"] == "torch"
    finish, phases = _nothing, {}
    if cuda or torch:
        phases["framework_seconds"], finish = timed(lambda: _framework(cuda))
    if not torch:
        phases["import_seconds"], _ = timed(_gradkern)
        phases["libraries_seconds"], _ = timed(lambda: _libraries(options))
    calls = [call for call in _calls(options) if call is not None]
    finish()
    step = partial(_step, calls, finish)
    first = step()
    if options["process"] == "background":
        phases["tune_seconds"], _ = timed(lambda: (import_module("gradkern").tune(), finish()))
    following = step()
    measured = {
        **phases,
        "first_seconds": sum(first),
        "next_seconds": sum(following),
        "calls": [{"what": what, "seconds": seconds} for (what, _), seconds in zip(calls, first, strict=True)],
    }
    print(json.dumps(measured if calls else {}))
    return 0


def _step(calls: list[tuple[str, Call]], finish: Call) -> list[float]:
    """The seconds of every call."""
    return [timed(lambda call=call: (call(), finish()))[0] for _, call in calls]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a call takes, and what it returns."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _nothing() -> None:
    pass


def _framework(cuda: bool) -> Callable[[], None]:
    """Load PyTorch, on a GPU with its context; what waits for all that was begun."""
    import torch  # pyright: ignore[reportMissingImports]

    torch.backends.cudnn.benchmark = True
    if not cuda:
        return _nothing
    torch.zeros(1, device="cuda")
    return torch.cuda.synchronize


def _gradkern() -> None:
    import gradkern

    gradkern.operators()
    gradkern.run  # noqa: B018  its module is imported now


def _libraries(options: Options) -> None:
    """What the first call would load; Numba only where something is to be compiled."""
    if options["provider"] == "cpu":
        import_module("numba")
        return
    import_module("gradkern.cuda.launch")
    if options["process"] not in ("pack", "background"):
        import_module("gradkern.cuda.packs").disable()
    if options["process"] == "empty":
        import_module("numba.cuda")
    operators = {each.operator for each in _gradients(options)}
    if "ConvGrad" in operators:  # it searches among cuDNN's kernels and cuBLAS products, too
        import_module("gradkern.cudnn.library").library()
        import_module("gradkern.cublas.library").bindings()


def _gradients(options: Options) -> list[Any]:
    return import_module("networks").gradients_of(options["work"], options["batch"])


def _calls(options: Options) -> list[tuple[str, Call] | None]:
    """The gradients with their sizes, all arrays made; None for those that PyTorch does not have."""
    return [_call(gradient, options) for gradient in _gradients(options)]


def _call(gradient: Any, options: Options) -> tuple[str, Call] | None:
    import gradkern
    from gradkern.cli.sizes import named

    inputs = _arrays(gradient, options)
    what = f"{gradient.operator} {named(gradient.example)} {','.join(gradient.outputs)}"
    attributes: dict[str, Any] = dict(gradient.example.attributes)
    if options["process"] == "torch":
        from peers import torch_peer

        call = torch_peer(gradient.operator, inputs, attributes, gradient.outputs)
        return None if call is None else (what, call)
    arguments = {**inputs, **attributes, "outputs": gradient.outputs, "provider": options["provider"]}
    if options["process"] != "background":
        arguments["policy"] = {"search": "exhaustive"}
    return what, lambda: gradkern.run(gradient.operator, **arguments)


def _arrays(gradient: Any, options: Options) -> dict[str, Any]:
    import numpy as np
    from memory_orders import in_order

    import gradkern
    from gradkern.cli.sizes import combinations
    from gradkern.contract import samples

    operator = gradkern.operators()[gradient.operator]
    (types, *_) = combinations(operator, options["type"])
    if options["provider"] == "cuda":
        made = import_module("gpu_timing").inputs_of(operator, types, gradient.example)
    else:
        made = samples.inputs_of(operator, types, gradient.example, np.random.default_rng(0))
    return {name: in_order(array, gradient.order) for name, array in made.items()}


if __name__ == "__main__":
    sys.exit(main())

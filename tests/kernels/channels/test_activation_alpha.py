"""An activation with its alpha in one word: what a kernel is made of, and what a search does not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradkern.kernels.channels.activation_alpha import with_alpha, without_alpha


@pytest.mark.parametrize("alpha", [0.01, 0.0, 1e-30, 0.1 + 0.2, 1])
def test_leaky_relu_carries_its_alpha_to_the_last_bit(alpha: float) -> None:
    word = with_alpha({"activation": "leaky_relu", "activation_alpha": alpha})
    assert without_alpha(word) == ("leaky_relu", alpha)


def test_the_others_are_their_names_whatever_alpha_is() -> None:
    for name in ("none", "relu", "silu"):
        assert with_alpha({"activation": name, "activation_alpha": 0.3}) == name
        assert without_alpha(name) == (name, 0)
    assert with_alpha({}) == "none"


def test_each_alpha_is_a_kernel_of_its_own_and_one_search_is_for_all_gradients() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from gradkern.call import Call, Tensor
    from gradkern.cuda.device import Device
    from gradkern.cuda.dry_run import dry_run
    from gradkern.ops.batch_norm.cuda import forward, plan
    from gradkern.policy import Policy

    X = Tensor(np.dtype(np.float32), (8, 16, 32), (2048, 128, 4), 16)
    channels = Tensor(np.dtype(np.float32), (16,), (4,), 16)
    norm = {"X": X, "scale": channels, "B": channels}
    gradient = {"dY": X, "X": X, "Y": X, **dict.fromkeys(("Scale", "saved_mean", "saved_inv_std"), channels)}
    attributes = {"epsilon": 1e-5, "momentum": 0.9, "unbiased": 1, "mode": "auto", "activation": "leaky_relu"}
    for module, inputs, output in ((forward, norm, "Y"), (plan, gradient, "dX")):
        keys, kernels = set[tuple[str, str]](), set[str]()
        for alpha in (0.01, 0.1, 0.2):
            with dry_run(Device(0, (9, 0), 132, 232448)) as dry:
                call = Call(
                    "",
                    inputs,
                    {output: X},
                    {**attributes, "activation_alpha": alpha},
                    *({}, frozenset[Any](), "cuda:0", Policy()),
                )
                if module is plan:
                    task = plan._task(call, dry)
                    next(iter(task.sources[0].candidates())).prepare()
                    keys.add((task.kind, task.key))
                else:
                    forward.plan(call)
            kernels.update(spec.description for spec in dry.specs)
        assert len(keys) == (module is plan)
        assert len(kernels) == 3

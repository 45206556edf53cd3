"""tools/fit.py on times that a model itself gives: what it finds explains them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

import fit

from gradkern.cuda.dry_run import device_named, dry_run
from gradkern.kernels.channels.times import times


@pytest.mark.parametrize("name", fit.MODELS)
def test_a_fit_finds_coefficients_that_explain_the_times(name: str) -> None:
    with dry_run(device_named("H100, H200")) as dry:
        groups = [samples for _, samples in fit.problems(name, 20, dry)]
    assert len(groups) > 10
    now: Any = times(fit.MODELS[name][0])
    real = replace(now, launch=now.launch * 1.7, bandwidth=now.bandwidth * 0.6, streaming=now.streaming * 1.3)
    random = Random(1)
    for samples in groups:
        for each in samples:
            each.measured = each.predict(real) * random.uniform(0.99, 1.01)
    found = fit.fitted(groups, now, seconds=20)
    mean = {of: sum(map(abs, fit.errors(groups, of))) / len(fit.errors(groups, of)) for of in (now, found)}
    assert mean[found] < 0.02 < mean[now]
    assert max(fit.regrets(groups, found)) < 1.05

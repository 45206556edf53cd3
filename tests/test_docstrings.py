"""The examples in the docstrings of gradkern's public functions run, and give what they say."""

from __future__ import annotations

import doctest
import inspect
import io
import json

import numpy as np
import pytest

import gradkern

FUNCTIONS = [name for name in gradkern.__all__ if inspect.isfunction(inspect.unwrap(getattr(gradkern, name)))]
X = np.ones((2, 4, 8, 8), np.float32)
ROWS = np.ones((4, 8), np.float32)
GIVEN = {
    "run": {"dY": X, "X": X, "W": np.ones((4, 4, 3, 3), np.float32)},
    "prepare": {"dY": ROWS, "X": ROWS, "scale": ROWS[0], "mean": ROWS[:, 0], "inv_std": ROWS[:, 0]},
    "policy": {"dY": X, "X": X, "W": np.ones((4, 4, 1, 1), np.float32)},
    "recorded": {"file": io.StringIO(), "json": json},
    "tune": {"step": lambda: None},
}
"""What an example takes as given."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_an_example_that_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    documented = inspect.getdoc(getattr(gradkern, name)) or ""
    given = {"gradkern": gradkern, **GIVEN.get(name, {})}
    example = doctest.DocTestParser().get_doctest(documented, given, name, None, None)
    assert example.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0, capsys.readouterr().out


def test_every_public_function_is_tried() -> None:
    assert FUNCTIONS == ["operators", "policy", "prepare", "recorded", "run", "tune"]

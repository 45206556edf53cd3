"""The examples in the docstrings of gradkern.torch's public names run, and give what they say."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import gradkern
import gradkern.torch

pytestmark = pytest.mark.thorough

ON_GPU = ("graphed", "Graphed")
MODULES = [each for each in vars(gradkern.torch).values() if inspect.isclass(each) and issubclass(each, nn.Module)]


@pytest.fixture(autouse=True)
def nothing_in_force() -> Iterator[None]:
    torch.manual_seed(0)
    gradkern.torch.forget()
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.gpu] * (each in ON_GPU)) for each in gradkern.torch.__all__]
)
def test_a_public_name_has_an_example_that_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    documented = inspect.getdoc(getattr(gradkern.torch, name)) or ""
    example = doctest.DocTestParser().get_doctest(documented, {"torch": torch, "gradkern": gradkern}, name, None, None)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0, capsys.readouterr().out


@pytest.mark.parametrize("module", MODULES)
def test_a_module_takes_what_pytorchs_does_with_the_same_defaults(module: type[nn.Module]) -> None:
    pytorchs = getattr(nn, module.__name__.replace("LinearGELU", "Linear").replace("Invertible", ""))
    own, theirs = (inspect.signature(each.__init__).parameters for each in (module, pytorchs))
    assert {name: (each.kind, each.default) for name, each in theirs.items()}.items() <= {
        name: (each.kind, each.default) for name, each in own.items()
    }.items()
    assert list(own)[: len(theirs) - ("bias" in theirs and theirs["bias"].kind is inspect.Parameter.KEYWORD_ONLY)] == [
        name for name, each in theirs.items() if each.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert all(each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in own.values())

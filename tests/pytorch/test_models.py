"""Models as their packages make them: every call that gradkern can answer is answered, and gradients are PyTorch's."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from importlib import import_module
from typing import Any

import pytest
import torch
from helpers.models import MODELS
from torch.utils._python_dispatch import TorchDispatchMode

import gradkern.torch
from gradkern.torch.aten import TRANSLATIONS

pytestmark = [pytest.mark.torch, pytest.mark.models, pytest.mark.thorough, pytest.mark.usefixtures("one_thread")]

REPLACED = {
    "torchvision convnext_tiny": {"Linear + GELU": 18, "Conv2d": 18},
    "torchvision efficientnet_b0": {"BatchNorm2d + SiLU": 33, "Conv2d": 16},
    "torchvision vit": {"Linear + GELU": 2},
    "torchvision resnet50": {"BatchNorm2d + ReLU": 33, "BatchNorm2d + add + ReLU": 16},
    "timm convnext_atto": {"Conv2d": 12},
    "timm efficientnet_b0": {"BatchNormAct2d with SiLU": 33, "Conv2d": 16},
}
LEFT = {
    "torchvision convnext_tiny": {"its class is LayerNorm2d": 5},
    "timm convnext_atto": {"its class is LayerNorm2d": 17},
    "timm vit": {"its class is LayerNorm": 5},  # timm's own
}


class CountCalls(TorchDispatchMode):
    """Counts aten calls that `gradkern.torch` has a translation for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += operator.overloadpacket.__name__ in {each.name for each in TRANSLATIONS}
        return operator(*args, **(kwargs or {}))


def gradients(model: torch.nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)  # of dropout
    model.zero_grad()
    y: Any = model(x)
    getattr(y, "logits", y).sin().mean().backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    most = max(float(each.abs().max()) for each in theirs.values())  # some are zero but for rounding
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=1e-9, atol=1e-12 * most)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_from_elsewhere_has_pytorchs_gradients(name: str) -> None:
    make, example = MODELS[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages' own
        model, x = make().double().train(), example()
    with CountCalls() as counted:
        expected = gradients(model, x)
    gradkern.torch.forget()
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
        gradients(model, x)
        before = gradkern.torch.report()
        ours = gradients(model, x)
        after = gradkern.torch.report()
    assert_same(ours, expected)
    assert (after.taken - before.taken, after.declined - before.declined) == (counted.calls, 0)
    assert counted.calls > 0
    again = gradients(model, x)
    assert [again[name].equal(each) for name, each in expected.items()] == [True] * len(expected)

    state = copy.deepcopy(model.state_dict())
    done = gradkern.torch.accelerate(model)
    assert Counter(done.replaced.values()) == REPLACED.get(name, {})
    assert Counter(done.left.values()) == LEFT.get(name, {})
    assert_same(gradients(model, x), expected)
    model.load_state_dict(state, strict=True)
    make().double().load_state_dict(model.state_dict(), strict=True)
    done.undo()
    assert_same(gradients(model, x), expected)
    gradkern.torch.forget()


SURGERY = {
    "torch's SyncBatchNorm": torch.nn.SyncBatchNorm.convert_sync_batchnorm,
    "timm's frozen": lambda model: import_module("timm.layers").freeze_batch_norm_2d(model),
    "timm's frozen and back": lambda model: import_module("timm.layers").unfreeze_batch_norm_2d(
        import_module("timm.layers").freeze_batch_norm_2d(model)
    ),
}


@pytest.mark.parametrize("surgery", SURGERY)
@pytest.mark.parametrize("name", ["torchvision resnet50", "torchvision efficientnet_b0", "timm efficientnet_b0"])
def test_norms_that_are_replaced_in_an_accelerated_model_leave_its_results(name: str, surgery: str) -> None:
    make, example = MODELS[name]
    torch.manual_seed(0)
    plain, x = make().double(), example()
    model = copy.deepcopy(plain)
    assert gradkern.torch.accelerate(model).replaced
    model, plain = (SURGERY[surgery](each) for each in (model, plain))
    if "Sync" in surgery:  # which is not trained on a CPU
        torch.testing.assert_close(model.eval()(x), plain.eval()(x), rtol=0, atol=0)
    else:
        assert_same(gradients(model, x), gradients(plain, x))


@pytest.mark.filterwarnings("ignore:.torch.jit.(script|trace|trace_method|script_method). is deprecated")
@pytest.mark.parametrize("name", ["torchvision resnet50", "torchvision efficientnet_b0", "torchvision convnext_tiny"])
def test_tracers_see_an_accelerated_model_as_it_was(name: str) -> None:
    make, example = MODELS[name]
    plain, x = make().double().eval(), example()
    extraction: Any = import_module("torchvision.models.feature_extraction")
    model = copy.deepcopy(plain)
    assert gradkern.torch.accelerate(model).replaced
    names = extraction.get_graph_node_names(model)
    assert names == extraction.get_graph_node_names(plain)
    middle = names[1][len(names[1]) // 2]
    found, expected = (extraction.create_feature_extractor(each, [middle])(x) for each in (model, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    traced: Any = torch.jit.trace(model, (x,))
    scripted: Any = torch.jit.script(model)
    for each in (traced, scripted, model):
        torch.testing.assert_close(each(x), plain(x), rtol=0, atol=0)

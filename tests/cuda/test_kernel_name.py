"""Kernels have names that a profiler shows and that tell operators, types and configs apart."""

from __future__ import annotations

import re

import pytest
from helpers.layer_norm import ALL_OUTPUTS, INVERTIBLE, LAYER, SIMPLIFIED

from gradkern.cuda.device_code.kernel_name import MOST_LETTERS, kernel_name, operator_words
from gradkern.ops.bias_gelu.cuda import config as gelu
from gradkern.ops.layer_norm.cuda import config as norm


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("LayerNormalizationGrad", "layer_norm_grad"),
        ("SimplifiedLayerNormalizationGrad", "simplified_layer_norm_grad"),
        ("BiasFastGeluGrad_dX", "bias_fast_gelu_grad"),
    ],
)
def test_operators_are_written_in_words(operator: str, words: str) -> None:
    assert operator_words(operator) == words


def test_a_name_is_letters_digits_and_underscores_and_not_long() -> None:
    assert kernel_name("conv", "", "bfloat16", 3, "1x2") == "gradkern_conv_bf16_3_1x2"
    assert kernel_name("a-b c.ü") == "gradkern_a_b_c_"
    assert len(kernel_name("x" * 500)) == MOST_LETTERS


def test_forms_have_names_of_their_own() -> None:
    norms = [
        norm.LayerNormConfig(
            operator, data, data, data, data, "float32", frozenset(outputs), 8, lanes, 2, 4, phase=phase
        )
        for operator in (LAYER, SIMPLIFIED, INVERTIBLE)
        for data in ("float16", "bfloat16")
        for lanes in (32, 64)
        for outputs in (ALL_OUTPUTS[operator], ("X_grad",))
        for phase in ("fused", "row_sums", "apply")
    ]
    gelus = [
        gelu.BiasGeluConfig(operator, "bfloat16", "bfloat16", outputs, 8, lanes)
        for operator in ("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")
        for lanes in (32, 64)
        for outputs in (("dX",), ("dX", "dB"))
    ]
    names = {config.name for config in (*norms, *gelus)}
    assert len(names) == len(norms) + len(gelus)
    assert all(re.fullmatch(rf"gradkern_\w{{1,{MOST_LETTERS - 9}}}", name) for name in names)
    assert "gradkern_layer_norm_grad_bf16_1x32x2x8" in names


def test_the_machine_code_has_the_name() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from gradkern.cuda.compile import compile_kernel
    from gradkern.search.kernels import fill

    made = compile_kernel(fill("float32"), 3, (9, 0), 256, name="gradkern_search_fill_f32")
    assert made.name == "gradkern_search_fill_f32"
    assert f".visible .entry {made.name}(" in made.ptx
    assert f".text.{made.name}\0".encode() in made.cubin

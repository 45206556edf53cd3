"""The README's example runs as it stands, and the errors it quotes are those that callers get."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradkern

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLE = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import gradkern" in block)
QUOTED = next(block for block in re.findall(r"```\n(.*?)```", README, re.DOTALL) if "ConvGrad:" in block).splitlines()


def test_the_example_runs_with_numpy_alone() -> None:
    done = subprocess.run([sys.executable, "-c", EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(8, 512) (512,) (512,)\n<gradkern plan LayerNormalizationGrad on cpu")


def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("ConvGrad", arrays((2, 4, 9), (2, 4, 9), (2, 4, 9)), {}),
        ("ConvGrad", arrays((2, 4, 9), (2, 4, 9), (4, 4, 1)), {"pad": [0, 0]}),
        (
            "LayerNormalizationGrad",
            [*arrays((2, 3)), *arrays((2, 3), (3,), dtype="float16"), *arrays((2,), (2,))],
            {},
        ),
    ],
)
def test_a_quoted_error_is_what_the_call_raises(operator: str, inputs: list[np.ndarray], attributes: dict) -> None:
    with pytest.raises(gradkern.GradkernError) as caught:
        gradkern.run(operator, *inputs, **attributes)
    quoted = [line.removesuffix(" ...").rstrip(",") for line in QUOTED]
    assert any(str(caught.value).startswith(line) for line in quoted), f"the README does not quote: {caught.value}"

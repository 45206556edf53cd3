"""`gradkern run` computes a model on arrays from a file, and writes what it updates beside the outputs."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("array_api_compat", reason="needs the extra onnx")

from onnx import TensorProto, helper  # noqa: E402  after onnx is known to be there

from gradkern.cli import main  # noqa: E402


@pytest.fixture
def sgd(tmp_path: Path) -> Path:
    """A model of one step: weights, a sequence, are updated in place."""
    values = [helper.make_tensor_value_info("lr", TensorProto.FLOAT, [1])]
    values += [
        helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in ("weights", "gradients")
    ]
    step = helper.make_node("SGDOptimizerV2", ["lr", "weights", "gradients"], ["done"], "step", domain="com.microsoft")
    done = [helper.make_tensor_value_info("done", TensorProto.BOOL, [1])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([step], "graph", values, done)
    path = tmp_path / "step.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def arrays() -> dict[str, np.ndarray]:
    one, two = np.ones(3, np.float32), np.full((2, 2), 2, np.float32)
    inputs = {"weights.0": one, "weights.1": two, "gradients.0": one, "gradients.1": two}
    return {"lr": np.array([0.5], np.float32), **inputs}


def test_a_model_is_computed_from_file_to_file(sgd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = sgd.with_name("in.npz"), sgd.with_name("out.npz")
    np.savez(source, allow_pickle=False, **arrays())
    command = ["run", str(sgd), "--inputs", str(source), "--outputs", str(target)]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "gradkern.onnx  SGDOptimizerV2 step" in lines[0]
    assert lines[-1].endswith("1 nodes")
    with np.load(target) as found:
        assert sorted(found.files) == ["done", "weights.0", "weights.1"]
        np.testing.assert_array_equal(found["weights.0"], np.full(3, 0.5, np.float32))
        np.testing.assert_array_equal(found["weights.1"], np.ones((2, 2), np.float32))
    assert main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["outputs"]["weights.1"] == ["float32", 2, 2]
    assert [node["op"] for node in facts["nodes"]] == ["SGDOptimizerV2"]


def test_what_is_wrong_is_one_line_and_nothing_is_written(sgd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = sgd.with_name("in.npz"), sgd.with_name("out.npz")
    command = ["run", str(sgd), "--inputs", str(source), "--outputs", str(target)]
    wrong = {"lr": arrays()["lr"], "weight.0": arrays()["lr"]}
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, lr=np.arange(1000))
    damaged = packed.getvalue()[:60] + bytes(20) + packed.getvalue()[80:]
    single = io.BytesIO()
    np.save(single, np.ones(3))
    gap = {name.replace("weights.0", "weights.2"): each for name, each in arrays().items()}
    for content, message in (
        (None, "No such file"),
        (b"text", "is no .npz file"),
        (single.getvalue(), "is no .npz file"),
        (damaged, "is no .npz file"),
        (wrong, "no input 'weight.0'"),
        (gap, "array weights.0 of the sequence weights is missing"),
    ):
        if isinstance(content, bytes):
            source.write_bytes(content)
        elif content is not None:
            np.savez(source, allow_pickle=False, **content)
        assert main(command) == 1
        assert message in capsys.readouterr().err
    np.savez(source, allow_pickle=False, **arrays())
    assert main([*command, "--provider", "gpu"]) == 1
    assert "unknown provider 'gpu'" in capsys.readouterr().err
    assert main(["run", str(source), *command[2:]]) == 1
    assert "no ONNX model" in capsys.readouterr().err
    assert not target.exists()
    for elsewhere, message in ((target.parent, "it is a folder"), (target / "none" / "out.npz", "there is no folder")):
        assert main([*command[:-1], str(elsewhere)]) == 1
        assert f"cannot be written: {message}" in capsys.readouterr().err
    for given, what in ((sgd, "model"), (source, "inputs")):
        before = given.read_bytes()
        assert main([*command[:-1], str(given)]) == 1
        assert f"{given} is the file of the {what}; name another for the outputs" in capsys.readouterr().err
        assert given.read_bytes() == before


def test_outputs_that_cannot_be_written_are_named(
    sgd: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = sgd.with_name("in.npz"), sgd.with_name("out.npz")
    np.savez(source, allow_pickle=False, **arrays())

    def full(handle: object, name: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(handle))

    monkeypatch.setattr("gradkern.system.cache_files.os.replace", full)
    assert main(["run", str(sgd), "--inputs", str(source), "--outputs", str(target)]) == 1
    assert capsys.readouterr().err == f"{target} cannot be written: No space left on device\n"
    assert sorted(each.name for each in sgd.parent.iterdir()) == sorted([sgd.name, source.name])

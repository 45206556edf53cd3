"""`gradkern warmup`: plans are made ahead of time, of the registry's sizes or of a file's calls."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.calls import FakeProvider, arguments

import gradkern
from gradkern import cli
from gradkern.policy import searching

OPERATORS = gradkern.operators()
GELU, LN = "BiasGeluGrad_dX", "LayerNormalizationGrad"
Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def show(folder: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Run `gradkern warmup` on the CPU with these arguments: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["warmup", *arguments, "--provider", "cpu"])
        out, err = capsys.readouterr()
        return code, re.sub(r"\d+\.\d+ s\b", "0.0 s", out), err

    return run


def lines(path: Path, *calls: Any) -> str:
    path.write_text("\n".join(json.dumps(call) for call in calls) + "\n\n")
    return str(path)


# --- the registry's sizes --------------------------------------------------------------------------------------------


def test_each_plan_is_a_plain_line_and_the_last_line_sums_up(show: Shown, provider: FakeProvider, folder: Path) -> None:
    assert show(GELU, "--types", "bfloat16") == (
        0,
        "BiasGeluGrad_dX rows=6 columns=40 bfloat16 on cpu: fake, 0.0 s\n"
        "BiasGeluGrad_dX rows=3x5 columns=33 bfloat16 on cpu: fake, 0.0 s\n"
        "BiasGeluGrad_dX rows=() columns=17 bfloat16 on cpu: fake, 0.0 s\n"
        f"3 plans in 0.0 s, 0 kernels and 0 searches new in {folder}\n",
        "",
    )


def test_without_names_every_operator_is_warmed_in_float32(show: Shown, provider: FakeProvider) -> None:
    assert show()[0] == 0
    assert [call.operator for call in provider.calls] == [
        name for name, operator in OPERATORS.items() for _ in operator.examples
    ]
    assert {call.inputs[OPERATORS[call.operator].data.name].dtype.name for call in provider.calls} == {"float32"}


def test_benchmarks_are_the_large_sizes(show: Shown, provider: FakeProvider) -> None:
    show(LN, "--benchmarks")
    assert [call.axes["columns"] for call in provider.calls] == [
        example.axes["columns"] for example in OPERATORS[LN].benchmarks
    ]


def test_all_types_are_all_combinations(show: Shown, provider: FakeProvider) -> None:
    show(LN, "--types", "all")
    assert len(provider.calls) == len(OPERATORS[LN].combinations) * len(OPERATORS[LN].examples)


def test_several_types_are_the_first_combination_of_each(show: Shown, provider: FakeProvider) -> None:
    show(LN, "--types", "float64,float16")
    types = [call.inputs["Y_grad"].dtype.name for call in provider.calls]
    assert types == ["float64"] * len(OPERATORS[LN].examples) + ["float16"] * len(OPERATORS[LN].examples)


# --- a file's calls --------------------------------------------------------------------------------------------------


def test_a_files_calls_are_planned_as_they_say(show: Shown, provider: FakeProvider, tmp_path: Path) -> None:
    path = lines(
        tmp_path / "calls",
        {"op": GELU, "axes": {"rows": [7], "columns": 5}},
        {"op": GELU, "axes": {"rows": [7], "columns": 5}, "types": "float16", "outputs": ["dX", "dB"]},
        {
            "op": LN,
            "axes": {"rows": [2], "columns": [3, 4]},
            "types": {"T": "bfloat16", "V": "float32"},
            "attributes": {"axis": 1},
        },
    )
    assert show("--calls", path)[0] == 0
    first, second, third = provider.calls
    assert (first.inputs["X"].shape, first.inputs["X"].dtype.name, list(first.outputs)) == ((7, 5), "float32", ["dX"])
    assert (second.inputs["X"].dtype.name, list(second.outputs)) == ("float16", ["dX", "dB"])
    assert (third.inputs["X"].dtype.name, third.inputs["scale"].dtype.name) == ("bfloat16", "float32")
    assert third.attributes["axis"] == 1


def test_names_choose_among_a_files_calls(show: Shown, provider: FakeProvider, tmp_path: Path) -> None:
    gelu = {"op": GELU, "axes": {"rows": [7], "columns": 5}}
    norm = {"op": LN, "axes": {"rows": [7], "columns": [5]}}
    show(GELU, "--calls", lines(tmp_path / "calls", norm, gelu))
    assert [call.operator for call in provider.calls] == [GELU]


def test_a_dash_reads_standard_input(show: Shown, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"op": GELU, "axes": {"rows": [7], "columns": 5}})
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert show("--calls", "-")[0] == 0
    assert len(provider.calls) == 1


GOOD: dict[str, Any] = {"op": GELU, "axes": {"rows": [7], "columns": 5}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "expected an object with op, axes and types"),
        (json.dumps({**GOOD, "size": 1}), "unknown key 'size'; known are op, axes, types, attributes, inputs, "),
        (json.dumps({"op": GELU}), "'axes' is missing"),
        (json.dumps({**GOOD, "op": "Gelu"}), "unknown operator 'Gelu'"),
        (json.dumps({**GOOD, "op": ["Gelu"]}), "op is ['Gelu']; expected a name"),
        (json.dumps({**GOOD, "axes": {"rows": [7]}}), f"{GELU}: axes: gives no size to 'columns'"),
        (json.dumps({**GOOD, "axes": [7]}), f"{GELU}: axes: input should be a valid dictionary, got [7]"),
        (json.dumps({**GOOD, "types": "int8"}), f"{GELU}: unknown type of T 'int8'; known are float32, "),
        (json.dumps({**GOOD, "types": 8}), f"{GELU}: types is 8; expected a type, or types by variable"),
        (json.dumps({**GOOD, "strides": [4]}), f"{GELU}: strides is [4]; expected an object"),
        (json.dumps({**GOOD, "strides": {"Z": [4]}}), f"{GELU}: strides of 'Z'"),
        (json.dumps({**GOOD, "strides": {"X": [4]}}), f"{GELU}: strides of X are [4]; expected 2 numbers of bytes"),
        (json.dumps({**GOOD, "strides": {"B": ["4"]}}), f"{GELU}: strides of B are ['4']; expected 1 numbers of bytes"),
        (json.dumps({**GOOD, "inputs": "X"}), f"{GELU}: inputs is 'X'; expected a list of names"),
        (json.dumps({**GOOD, "inputs": ["dY", "X", "W"]}), f"{GELU}: inputs has 'W'; inputs are dY, X, B"),
        (json.dumps({**GOOD, "inputs": ["dY"]}), f"{GELU}: inputs lacks X, which is not optional"),
        (json.dumps({**GOOD, "alignment": {"X": 3}}), f"{GELU}: alignment of X is 3; expected 1, 2, 4, 8 or 16"),
        (json.dumps({**GOOD, "policy": {"speed": 9}}), "policy: unknown field 'speed'"),
        (json.dumps({**GOOD, "policy": {"search": "none"}}), "policy: search is 'none'"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_before_anything_is_planned(
    show: Shown, provider: FakeProvider, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "calls"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n")
    code, out, err = show("--calls", str(path))
    assert (code, out, provider.calls) == (1, "", [])
    assert err.startswith(f"{path}:2: {message}")


def test_a_file_that_is_not_there_is_refused(show: Shown, tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert show("--calls", str(path)) == (1, "", f"{path}: No such file or directory\n")


# --- the calls of a real run -----------------------------------------------------------------------------------------


def test_the_calls_of_a_run_are_planned_again_with_the_searches_that_were_put_off(
    show: Shown, provider: FakeProvider, tmp_path: Path
) -> None:
    wide = np.zeros((6, 80), np.float32)[:, ::2]
    B = np.zeros(40, np.float32)
    gradkern.run(GELU, wide, wide, B, outputs=["dB"])
    gradkern.run("ConvGrad", **arguments("ConvGrad", 1), outputs=["dW"], policy={"allow_tf32": False})
    gradkern.run("ConvGrad", **arguments("ConvGrad", 3))
    gradkern.run(LN, **arguments(LN, 1))
    batch_norm = arguments("BatchNormalizationGrad", 1)
    gradkern.run("BatchNormalizationGrad", **batch_norm, B=batch_norm["Scale"], activation="relu")
    planned = list(provider.calls)
    lines = [json.loads(json.dumps(call)) for call in gradkern.recorded()]
    assert lines[0]["strides"] == {"dY": [320, 8], "X": [320, 8]}
    assert lines[1]["policy"] == {"allow_tf32": False}
    assert lines[-1]["inputs"] == [*batch_norm, "B"]
    assert "inputs" not in lines[0]
    path = tmp_path / "calls"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert show("--calls", str(path))[0] == 0
    assert provider.calls[len(planned) :] == [replace(call, policy=searching(call.policy)) for call in planned]
    assert provider.calls[-1].policy.search == "exhaustive"


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_call_that_fails_does_not_stop_the_others(
    show: Shown, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    plan = provider.plan

    def sometimes(call: Any) -> Any:
        if call.axes["columns"] == 33:
            raise MemoryError("too large")
        return plan(call)

    monkeypatch.setattr(provider, "plan", sometimes)
    code, out, err = show(GELU)
    assert code == 1
    assert out.splitlines()[-1] == f"2 plans in 0.0 s, 0 kernels and 0 searches new in {folder}"
    assert err == ("failed: BiasGeluGrad_dX rows=3x5 columns=33 float32 on cpu: MemoryError('too large')\n1 failed\n")


def test_a_refused_call_fails_in_the_words_of_the_contract(show: Shown, provider: FakeProvider, tmp_path: Path) -> None:
    path = lines(tmp_path / "calls", {"op": GELU, "axes": {"rows": [7], "columns": 5}, "outputs": ["dY"]})
    code, _, err = show("--calls", path)
    assert code == 1
    assert err.startswith(f"failed: {GELU} rows=7 columns=5 float32 on cpu: {GELU}: unknown output 'dY'")


def test_where_nothing_can_be_kept_nothing_is_compiled(show: Shown, provider: FakeProvider, folder: Path) -> None:
    folder.write_text("a file, not a folder")
    assert show(GELU) == (
        1,
        "",
        f"nothing can be kept in {folder}: File exists; GRADKERN_CACHE_DIR names another folder\n",
    )
    assert provider.calls == []


NOTHING = "nothing to warm: no operator takes these types on a provider that can run here\n"


def test_types_that_no_operator_takes_are_exit_code_one(show: Shown) -> None:
    assert show("--types", "uint32") == (1, "", NOTHING)  # of bits of masks, and no operator's data


def test_operators_without_the_provider_are_left_out(
    show: Shown, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(OPERATORS[GELU], providers={"tpu": ("tpu",)})
    monkeypatch.setattr("gradkern.contract.registry.operators", lambda: {**OPERATORS, GELU: changed})
    assert show()[0] == 0
    assert {call.operator for call in provider.calls} == OPERATORS.keys() - {GELU}


def test_a_provider_that_cannot_run_here_says_why(show: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradkern.cli.sizes.unavailable", lambda provider: f"{provider} is on holiday")
    assert show(GELU) == (1, "", f"{GELU}: cpu cannot run here: cpu is on holiday\n")


def test_an_unknown_operator_is_exit_code_one(show: Shown) -> None:
    code, out, err = show("ConvGrd")
    assert (code, out) == (1, "")
    assert err.startswith("unknown operator 'ConvGrd' (did you mean ConvGrad or Conv?); `gradkern ops` lists ")


def test_sizes_and_a_file_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["warmup", "--benchmarks", "--calls", "-"])
    assert caught.value.code == 2
    assert "argument --calls: not allowed with argument --benchmarks" in capsys.readouterr().err


# --- as a process ----------------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "gradkern", "warmup", GELU, "--provider", "cpu"]


@pytest.mark.thorough
def test_kernels_are_compiled_once_and_kept(folder: Path) -> None:
    for new in ("1 kernel", "0 kernels"):
        done = subprocess.run(COMMAND, capture_output=True, text=True, check=True)
        *plans, last = done.stdout.splitlines()
        assert re.fullmatch(rf"3 plans in [\d.]+ s, {new} and 0 searches new in {re.escape(str(folder))}", last)
        assert len(plans) == 3
        assert done.stderr == ""


@pytest.mark.thorough
def test_a_terminal_gets_a_progress_bar_and_no_lines(folder: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=slave, env=environment, text=True)
    os.close(slave)
    drawn = b""
    try:
        while part := os.read(master, 4096):
            drawn += part
    except OSError:  # how Linux says that the terminal's other end is closed
        pass
    os.close(master)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert b"planning" in drawn
    assert len(out.splitlines()) == 1

"""The command line: what it lists, its exit codes, and how it starts and ends as a process."""

import argparse
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers.checkout import ROOT
from ruamel.yaml import YAML

import gradkern
from gradkern import cli
from gradkern.contract import registry
from gradkern.contract.schema import Operator, names_of
from gradkern.system import providers

LIST_OPS = ROOT / "tools" / "list_ops.py"
OPERATORS = gradkern.operators()
NAMES = list(OPERATORS)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Run `gradkern ops` with these arguments: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["ops", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def shown_json(show: Shown, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = show("--json", *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)["operators"]


# --- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 80, 132])
@pytest.mark.parametrize("arguments", [[], ["ConvGrad", "LayerNormalizationGrad", "BatchNormalizationGrad"]])
def test_piped_or_not_no_line_is_wider_than_the_terminal(
    show: Shown, monkeypatch: pytest.MonkeyPatch, columns: int, arguments: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = show(*arguments)[1]
    assert all(len(line) <= columns for line in out.splitlines())
    assert out.isascii()
    assert "\x1b" not in out
    words = set(out.split())
    for name in arguments:
        assert {*OPERATORS[name].doc.split(), *OPERATORS[name].axes, *OPERATORS[name].attributes} <= words


def test_the_list_is_a_line_for_each_operator_with_what_it_computes(show: Shown) -> None:
    code, out, err = show()
    assert (code, err) == (0, "")
    assert [row.split()[0] for row in out.splitlines()] == NAMES
    for row, operator in zip(out.splitlines(), OPERATORS.values(), strict=True):
        said = row.split(maxsplit=1)[1]
        assert said == operator.doc or operator.doc.startswith(said.removesuffix(" ..."))


def test_a_terminal_gets_the_same_in_its_own_width() -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, LIST_OPS], stdout=slave, env={**ENVIRONMENT, "COLUMNS": "120"})
    os.close(slave)
    drawn = b""
    try:
        while part := os.read(master, 4096):
            drawn += part
    except OSError:  # how Linux says that the terminal's other end is closed
        pass
    os.close(master)
    assert process.wait() == 0
    lines = drawn.decode().splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert 80 < max(map(len, lines)) <= 120


def test_a_provider_that_cannot_run_here_says_why(
    show: Shown, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    cpu = replace(providers.PROVIDERS["cpu"], packages={"numba": "numba", "a_module_nobody_has": "a_package"})
    monkeypatch.setattr(providers, "PROVIDERS", {**providers.PROVIDERS, "cpu": cpu})
    request.addfinalizer(providers.unavailable.cache_clear)
    providers.unavailable.cache_clear()
    reason = "a_module_nobody_has not installed (pip install a_package)"
    monkeypatch.setenv("COLUMNS", "200")
    assert f"\n    cpu     {reason}" in show("ConvGrad")[1]
    available = shown_json(show, "ConvGrad")[0]["available"]
    assert available["cpu"] == {"available": False, "reason": reason, "modules": ["cpu.plan"]}


def test_a_provider_this_version_does_not_have_says_so() -> None:
    assert providers.unavailable("tpu") == "this version of gradkern does not have it"


# --- one operator ----------------------------------------------------------------------------------------------------


def test_a_named_operator_is_shown_whole(show: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradkern.cli.ops.unavailable", {"cuda": "no NVIDIA GPU"}.get)
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = show("InvertibleLayerNormalizationGrad")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "InvertibleLayerNormalizationGrad  (com.microsoft, since version 1)",
        "  Gradient of layer normalization from its output; the normalized input is rebuilt as (Y - bias) / scale.",
        "  inputs",
        "    Y_grad:G       (rows, columns)                                               gradient of the output",
        "    Y:V            (rows, columns)                                               output of the forward pass",
        "    scale:V        (columns) or (product of columns)                             "
        "scale of each column; a zero cannot be inverted (nonzero)",
        "    bias:V         (columns) or (product of columns)                             bias of each column",
        "    inv_std_var:U  (rows) or (rows, 1 for each of columns) or (product of rows)  "
        "1 / sqrt(variance + epsilon) of each row (positive)",
        "  outputs",
        "    X_grad:T      as Y      gradient of the input of the forward pass (optional)",
        "    scale_grad:V  as scale  gradient of scale (optional)",
        "    bias_grad:V   as scale  gradient of the bias (optional)",
        "  attributes",
        "    axis         int, default -1  first normalized dimension",
        "    X_grad_type  type, default V  type of X_grad; without it the type of an `out` array for X_grad, "
        "else that of V",
        "  types",
        "    G    gradient of the output; the type of T or of V",
        "    T    X_grad alone",
        "    U    saved statistics",
        "    V    output of the forward pass, scale, bias and their gradients",
        "  combinations",
        *(
            f"    {', '.join(f'{key}={value}' for key, value in row.items())}"
            for row in OPERATORS["InvertibleLayerNormalizationGrad"].combinations
        ),
        "  axes",
        "    rows     group  dimensions before `axis`",
        "    columns  group  dimensions from `axis` on",
        "  in place",
        "    Y_grad -> X_grad",
        "    Y -> X_grad",
        "  providers",
        "    cuda    no NVIDIA GPU",
        "    cpu     available",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_can_be_shown_whole_with_all_it_has(
    show: Shown, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    out, operator = show(name)[1], OPERATORS[name]
    for each in (*operator.inputs, *operator.outputs):
        assert f"    {each.name}:{each.type} " in out
        assert each.doc in out
    for attribute, contract in operator.attributes.items():
        assert f"    {attribute} " in out
        assert contract.doc in out


def test_several_names_are_shown_each_once_in_the_order_of_the_list(show: Shown) -> None:
    out = show("LayerNormalizationGrad", "ConvGrad", "ConvGrad")[1]
    assert [line.split()[0] for line in out.splitlines() if "since version" in line] == [
        "ConvGrad",
        "LayerNormalizationGrad",
    ]


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_json_has_a_schema_version_and_every_field_of_every_contract(show: Shown) -> None:
    code, out, _ = show("--json")
    assert code == 0
    document = json.loads(out)
    assert list(document) == ["schema", "gradkern", "operators"]
    assert document["schema"] == 3
    assert document["gradkern"] == gradkern.__version__
    assert [entry["name"] for entry in document["operators"]] == NAMES
    for entry in document["operators"]:
        assert list(entry) == ["name", *names_of(Operator), "available"]
        modules = [*OPERATORS[entry["name"]].providers["cpu"]]
        assert entry["available"]["cpu"] == {"available": True, "reason": None, "modules": modules}


def test_json_says_what_the_registry_says(show: Shown) -> None:
    written = YAML(typ="safe", pure=True).load(registry.path().read_text(encoding="utf-8"))["operators"]
    assert sorted(written) == sorted(NAMES)
    for name, each in written.items():
        rows = [{key: types if isinstance(types, list) else [types] for key, types in row.items()}
                for row in each["combinations"]]  # fmt: skip
        every = [dict(zip(row, types, strict=True)) for row in rows for types in product(*row.values())]
        assert_holds(shown_json(show, name)[0], {**each, "combinations": every})


def assert_holds(shown: Any, written: Any) -> None:
    """All that is written is shown; what is not written may be shown as a default."""
    if isinstance(written, dict):
        for key, value in written.items():
            assert_holds(shown[str(key)], value)  # JSON's keys are text
    elif isinstance(written, list):
        for one, other in zip(shown, written, strict=True):
            assert_holds(one, other)
    else:
        assert shown == written


# --- choosing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bfloat16", "float64"])
def test_types_chooses_operators_that_take_data_of_a_type(
    show: Shown, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    only = [row for row in OPERATORS["ConvGrad"].combinations if row["T"] == "float32"]
    changed = replace(OPERATORS["ConvGrad"], combinations=tuple(only))
    monkeypatch.setattr(registry, "operators", lambda: {**OPERATORS, "ConvGrad": changed})
    expected = [key for key in NAMES if key != "ConvGrad" and name in OPERATORS[key].data_types]
    assert [entry["name"] for entry in shown_json(show, "--types", name)] == expected


def test_provider_chooses_operators_that_a_provider_computes(show: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(OPERATORS["ConvGrad"], providers={"cuda": ("cudnn",)})
    monkeypatch.setattr(registry, "operators", lambda: {**OPERATORS, "ConvGrad": changed})
    expected = [key for key in NAMES if key != "ConvGrad"]
    assert [entry["name"] for entry in shown_json(show, "--provider", "cpu")] == expected


def test_nothing_that_matches_is_exit_code_one(show: Shown) -> None:
    arguments = ["BatchNormalizationMergeStatistics", "--types", "float16"]
    assert show(*arguments) == (1, "", "no operator matches\n")
    code, out, err = show("--json", *arguments)
    assert (code, json.loads(out)["operators"], err) == (1, [], "no operator matches\n")


@pytest.mark.parametrize("command", [["ops"], ["warmup"], ["explain", "ConvGrad"]], ids=lambda each: each[0])
@pytest.mark.parametrize(
    ("option", "value", "hint", "known"),
    [("--types", "float7", "float16", "float32, float64"), ("--provider", "cpus", "cpu", "cuda")],
)
def test_an_unknown_type_or_provider_is_named_with_those_that_are_known(
    command: list[str], option: str, value: str, hint: str, known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, option, value]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{value!r} (did you mean " in err
    assert f"{hint}?)" in err or f"{hint} or" in err
    assert known in err


def test_an_unknown_name_is_exit_code_one_and_gets_the_nearest(show: Shown) -> None:
    assert show("ConvGrd", "Fft", "ConvGrad") == (
        1,
        "",
        "unknown operator 'ConvGrd' (did you mean ConvGrad or Conv?); `gradkern ops` lists the operators\n"
        "unknown operator 'Fft'; `gradkern ops` lists the operators\n",
    )


@pytest.mark.parametrize(
    ("arguments", "command", "message"),
    [
        ([], "", "the following arguments are required: COMMAND"),
        (["opps"], "", "argument COMMAND: invalid choice: 'opps' "),
        (["ops", "--jsn"], " ops", "unrecognized arguments: --jsn (did you mean --json?)"),
        (["ops", "--types"], " ops", "argument --types: expected one argument"),
        (["cache", "info", "now"], " cache info", "unrecognized arguments: now"),
        (["cache", "clear", "--drry"], " cache clear", "unrecognized arguments: --drry (did you mean --dry-run?)"),
    ],
)
def test_a_wrong_command_line_is_exit_code_two(
    arguments: list[str], command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: gradkern{command} ")
    assert f"gradkern{command}: error: {message}" in err


def test_a_refused_registry_is_exit_code_three(show: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = tmp_path / "registry.yaml"
    bad.write_text("schema: 2\noperators: {}\n")
    monkeypatch.setattr(registry, "path", lambda: bad)
    registry.operators.cache_clear()
    try:
        assert show() == (
            3,
            "",
            "registry.yaml:1: schema: is 2; this gradkern reads schema 1\n"
            "registry.yaml:2: operators: expected a mapping of operators, at least one\n",
        )
    finally:
        monkeypatch.undo()
        registry.operators.cache_clear()


def test_version_and_help_say_what_they_should(capsys: pytest.CaptureFixture[str]) -> None:
    for argument, expected in (("--version", f"gradkern {gradkern.__version__}\n"), ("--help", "exit codes: 0 done")):
        with pytest.raises(SystemExit) as caught:
            cli.main([argument])
        assert caught.value.code == 0
        assert expected in capsys.readouterr().out


# --- the page and the shell ------------------------------------------------------------------------------------------


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that can be given, such as "gradkern cache info", and its parser."""
    nested = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not nested:
        yield parser.prog, parser
    for each in nested:
        for inner in each.choices.values():
            yield from commands(inner)


def test_the_page_names_every_command_and_every_option() -> None:
    page = (ROOT / "tools" / "docs" / "command-line.md").read_text(encoding="utf-8")
    known = dict(commands(cli.parser()))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"`{each.split()[1]}`" in readme or f"`{each}" in readme for each in known)
    named = {*re.findall(r"`(gradkern(?: [a-z]+)+)[ `]", page)}
    assert {each for each in named if each in known} == {*known}
    for command, parser in known.items():
        for option in (each for action in parser._actions for each in action.option_strings if each[:2] == "--"):
            assert option == "--help" or f"{option}" in page, f"{command} {option}"


def test_every_help_says_what_its_arguments_are() -> None:
    for command, parser in commands(cli.parser()):
        for action in parser._actions:
            assert action.help, f"{command} {action.metavar or action.dest}"


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["ca"], ["cache"]),
        (["cache", "cl"], ["clear"]),
        (["ops", "ConvG"], ["ConvGrad"]),
        (["explain", "--pro"], ["--provider"]),
        (["warmup", "--provider", "c"], ["cpu", "cuda"]),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_options_and_operators(
    line: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    assert cli.main(["completion", "bash"]) == 0
    ask = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_gradkern; printf "%s\\n" "${COMPREPLY[@]}"'
    script = f"{capsys.readouterr().out}\nCOMP_WORDS=(gradkern {' '.join(line)}); {ask}"
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == words, done.stderr


def test_completion_without_shtab_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "zsh"]) == 1
    assert capsys.readouterr().err.startswith("gradkern completion: shtab is not installed: ")


# --- as a process ----------------------------------------------------------------------------------------------------


def test_list_ops_runs_from_any_folder(tmp_path: Path) -> None:
    command = [sys.executable, LIST_OPS, "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["operators"]) == len(NAMES)


def test_list_ops_loads_neither_kernels_nor_frameworks() -> None:
    command = [sys.executable, "-X", "importtime", LIST_OPS]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    roots = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "gradkern" in roots
    assert not roots & {"numba", "llvmlite", "scipy", "torch"}


def test_listing_loads_neither_arrays_nor_numba_nor_cuda() -> None:
    code = (
        "import sys; before = {*sys.modules}; from gradkern.cli import main\n"
        "for arguments in ['ops'], ['ops', '--json'], ['ops', 'ConvGrad']: assert main(arguments) == 0\n"
        "print(*{each.partition('.')[0] for each in {*sys.modules} - before}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"numpy", "numba", "llvmlite", "cuda", "torch", "ml_dtypes"}


@pytest.mark.parametrize("arguments", [["ops"], ["ops", "--json"], ["ops", "ConvGrad"]], ids=" ".join)
def test_a_reader_that_leaves_early_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gradkern", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


COMMAND = [sys.executable, "-m", "gradkern"]


def ended(*arguments: str, **options: Any) -> tuple[int, str]:
    """Run the command as a process: its exit code and what it says on standard error."""
    done = subprocess.run([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, check=False, **options)
    return done.returncode, done.stderr


def test_the_package_is_a_command_too() -> None:
    assert ended("--version", stdout=subprocess.DEVNULL) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["ops"], ["ops", "--json"], ["cache", "info"]])
def test_output_to_a_full_device_is_one_line_and_exit_code_one(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        said = ended(*arguments, stdout=full)
    assert said == (1, "gradkern: the output cannot be written: No space left on device\n")


def test_a_closed_output_is_one_line_and_exit_code_one() -> None:
    said = ended("ops", preexec_fn=lambda: os.close(1))
    assert said == (1, "gradkern: standard output is closed\n")


def test_from_a_zip_file_it_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "gradkern.zip"
    with zipfile.ZipFile(path, "w") as file:
        for each in [*(ROOT / "gradkern").rglob("*.py"), ROOT / "registry.yaml"]:
            file.write(each, each.relative_to(ROOT))
    environment = {**os.environ, "PYTHONPATH": str(path)}
    code, said = ended("ops", env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
    hint = "gradkern runs from files in a folder, not from a zip file"
    assert (code, said) == (3, f"{path}/registry.yaml cannot be read: Not a directory; {hint}\n")


@pytest.mark.thorough
@pytest.mark.parametrize(("arguments", "seconds"), [(["warmup", "--types", "all"], 3.0), (["doctor"], 0.4)])
def test_an_interrupt_is_one_line_and_exit_code_130(arguments: list[str], seconds: float, tmp_path: Path) -> None:
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(tmp_path)}
    start = f"import sys; from gradkern.cli import main; print(flush=True); sys.exit(main({arguments}))"
    process = subprocess.Popen(
        [sys.executable, "-c", start], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (130, "gradkern: interrupted\n")
    assert "plans in" not in out


# --- without the packages for CUDA -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [["cuda"], ["numba_cuda"], ["cuda", "numba_cuda", "nvidia"]])
@pytest.mark.parametrize("more", [[], ["--refresh"], ["--jobs", "2", "pack"]])
def test_to_build_a_pack_without_the_packages_for_cuda_says_which_and_how_to_get_them(
    missing: list[str], more: list[str], tmp_path: Path
) -> None:
    """In a process that has imported none of them."""
    code = (
        f"import sys; sys.path[:0] = {str(ROOT)!r},; sys.modules.update(dict.fromkeys({missing}))\n"
        f"from gradkern.cli import main; sys.exit(main(['pack', 'build', '--arch', 'sm_90', *{more}]))"
    )
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("gradkern pack build: ")
    assert " not installed (pip install 'gradkern[cu1" in said
    assert list(tmp_path.iterdir()) == []

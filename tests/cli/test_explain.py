"""`gradkern explain`: the plan of a call that is only described, for all that a command line can say."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from helpers.calls import FakeProvider

import gradkern
from gradkern import cli
from gradkern.cli import explain, sizes
from gradkern.cli.sizes import Wanted, example_of, types_of
from gradkern.contract import request
from gradkern.contract.binder import Binder
from gradkern.dispatch import planner
from gradkern.dispatch.run import plan_for
from gradkern.search.store import Measurement, SearchResult
from gradkern.system import driver
from gradkern.system.driver import Driver, Gpu

OUTPUTS = "X_grad, scale_grad, bias_grad, X_grad_sum, branch_grad"
LN, AXES = "LayerNormalizationGrad", '{"rows": [4096], "columns": [1024]}'
OPERATORS = gradkern.operators()
Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no line breaks."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Run `gradkern explain` with these arguments: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["explain", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def facts(show: Shown, provider: FakeProvider) -> Callable[..., dict[str, Any]]:
    """What `gradkern explain --json` says, nothing being compiled."""

    def run(*arguments: str) -> dict[str, Any]:
        code, out, err = show(*arguments, "--provider", "cpu", "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


# --- what it says ----------------------------------------------------------------------------------------------------


def test_a_plan_is_shown_whole(show: Shown, provider: FakeProvider) -> None:
    assert show(LN, "--axes", AXES, "--types", "bfloat16", "--provider", "cpu") == (
        0,
        "LayerNormalizationGrad\n"
        "  sizes       rows=4096 columns=1024\n"
        "  types       G=bfloat16, T=bfloat16, U=float32, V=bfloat16, S=bfloat16\n"
        "  attributes  axis=1\n"
        "  outputs     X_grad, scale_grad, bias_grad\n"
        "  provider    cpu on cpu\n"
        "  kernel      fake\n"
        "  scratch     24 bytes\n"
        "  traffic     25,204,736 bytes at least: every input read once, every output written once\n",
        "",
    )


def test_json_has_a_schema_and_every_field(facts: Callable[..., dict[str, Any]], provider: FakeProvider) -> None:
    assert facts(LN, "--axes", AXES, "--outputs", "X_grad") == {
        "schema": 3,
        "gradkern": gradkern.__version__,
        "operator": LN,
        "axes": {"rows": [4096], "columns": [1024]},
        "attributes": {"axis": 1, "branch_grad_type": None},
        "types": {"G": "float32", "T": "float32", "U": "float32", "V": "float32", "S": "float32"},
        "outputs": ["X_grad"],
        "provider": "cpu",
        "device": "cpu",
        "kernel": "fake",
        "scratch": 24,
        "bytes": 3 * 4096 * 1024 * 4 + 2 * 4096 * 4 + 1024 * 4,
        "searches": {},
        "launches": [],
        "bandwidth": None,
        "bound_microseconds": None,
    }


@pytest.mark.parametrize("name", OPERATORS)
def test_every_size_of_the_registry_is_explained_in_every_combination(name: str, provider: FakeProvider) -> None:
    operator = OPERATORS[name]
    for number, example in enumerate((*operator.examples, *operator.benchmarks), start=1):
        assert explain._registered(name, operator, number) == example
        for types in operator.combinations:
            plan = Wanted(name, operator, example, types).plan("cpu")
            tensors = {each.name: each.type for each in (*operator.inputs, *operator.outputs)}
            for tensor, variable in tensors.items():
                described = plan.call.inputs.get(tensor) or plan.call.outputs.get(tensor)
                assert described is None or described.dtype.name == types[variable]


def test_sizes_beyond_this_machine_are_planned_without_arrays(facts: Callable[..., dict[str, Any]]) -> None:
    assert facts(LN, "--axes", '{"rows": [4000000000], "columns": [65536]}')["bytes"] > 3e15


def test_attributes_go_with_axes(facts: Callable[..., dict[str, Any]]) -> None:
    axes = {"N": 1, "C": 2, "M": 4, "C_per_group": 2, "spatial": [9], "kernel": [3], "out": [4]}
    shown = facts("ConvGrad", "--axes", json.dumps(axes), "--attributes", '{"strides": [2]}')
    assert (shown["attributes"]["strides"], shown["axes"]) == ([2], axes)


def test_types_may_be_named_by_variable(facts: Callable[..., dict[str, Any]]) -> None:
    types = facts(LN, "--axes", AXES, "--types", "T=bfloat16,V=float32")["types"]
    assert types == {"G": "bfloat16", "T": "bfloat16", "U": "float32", "V": "float32", "S": "bfloat16"}


def test_a_type_that_no_input_has_is_asked_for_by_its_attribute(facts: Callable[..., dict[str, Any]]) -> None:
    shown = facts("InvertibleLayerNormalizationGrad", "--axes", AXES, "--types", "T=float32,V=float16")
    assert (shown["types"]["T"], shown["attributes"]["X_grad_type"]) == ("float32", "float32")


def test_a_plan_for_a_description_computes_what_a_plan_for_arrays_computes() -> None:
    operator = OPERATORS["BiasGeluGrad_dX"]
    example = operator.examples[0]
    plan = Wanted("BiasGeluGrad_dX", operator, example, operator.combinations[0]).plan("cpu")
    arrays = [np.linspace(-1, 1, each.size, dtype=each.dtype).reshape(each.shape) for each in plan.call.inputs.values()]
    np.testing.assert_array_equal(plan(*arrays).dX, gradkern.run("BiasGeluGrad_dX", *arrays).dX)


# --- on a GPU --------------------------------------------------------------------------------------------------------


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, bandwidth: float) -> dict[str, Any]:
    """What is explained of a plan with one launch, on a machine with a GPU whose memory has this bandwidth."""
    monkeypatch.setattr(driver, "ask", lambda: Driver((13, 0), (Gpu(0, "NVIDIA H200", (9, 0), 2**37, bandwidth),)))
    operator = OPERATORS[LN]
    example = example_of(LN, operator, {"rows": [4096], "columns": [1024]}, {})
    wanted = Wanted(LN, operator, example, types_of(LN, operator, "float32"))
    kernel = SimpleNamespace(name="gradkern_rows", registers=96, spilled=0, shared_bytes=110_592)
    launch = SimpleNamespace(kernel=kernel, grid=132, threads=512, cluster=4)
    made = wanted.plan("cpu")
    plan: Any = SimpleNamespace(
        operator=LN, provider="cuda", call=made.call, kernel="rows", scratch=0, bytes=made.bytes,
        launches=(launch,),
    )  # fmt: skip
    return explain.explained(wanted, plan)


def test_arrays_are_described_as_new_ones_on_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    name, fake = "BiasGeluGrad_dX", FakeProvider()
    operator = replace(OPERATORS[name], providers={"cuda": ("cuda.plan",)})
    monkeypatch.setitem(request._binders, name, Binder(name, operator))
    monkeypatch.setattr(planner, "unavailable", lambda provider: None)
    monkeypatch.setitem(sys.modules, "gradkern.ops.bias_gelu.cuda.plan", fake)
    plan = Wanted(name, operator, operator.examples[0], operator.combinations[0]).plan("cuda")
    (call,) = fake.calls
    assert (plan.provider, call.device) == ("cuda", "cuda:0")
    assert {each.alignment for each in call.inputs.values()} == {16}


def test_a_launch_and_the_bound_are_shown(monkeypatch: pytest.MonkeyPatch, provider: FakeProvider) -> None:
    facts = on_a_gpu(monkeypatch, 4.9e12)
    bounds = {"blocks": 132, "threads": 512, "cluster": 4}
    assert facts["launches"] == [
        {"name": "gradkern_rows", **bounds, "registers": 96, "spilled": 0, "shared_bytes": 110_592}
    ]
    assert facts["bound_microseconds"] == pytest.approx(facts["bytes"] / 4.9e12 * 1e6)
    assert explain._text(facts).splitlines()[-3:] == [
        "  launch 1    gradkern_rows",
        "              132 blocks of 512 threads, in clusters of 4, 110,592 bytes of shared memory, "
        "96 registers a thread, 0 bytes spilled",
        "  bound       10.3 microseconds at 4,900 GB/s, the memory's nominal rate (clock x bus width)",
    ]


def test_plans_of_gradkerns_own_kernels_tell_their_launches() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")
    from gradkern.cuda.launch import LaunchPlan
    from gradkern.cuda.launches_plan import scratch_plan
    from gradkern.search.plan import WinnerPlan

    one, device = (cast(Any, SimpleNamespace()) for _ in range(2))
    assert scratch_plan("gelu", 8, one, device).launches == LaunchPlan("whole", one).launches == (one,)
    for alone, launches in ((LaunchPlan("whole", one), (one,)), (None, ())):
        task = SimpleNamespace(inputs=(None, None), outputs=(None,))
        choice: Any = SimpleNamespace(candidate=SimpleNamespace(alone=alone, workspace=0), task=task)
        assert WinnerPlan(device, choice, "all").launches == launches


def test_a_driver_that_does_not_tell_the_rate_gives_no_bound(
    monkeypatch: pytest.MonkeyPatch, provider: FakeProvider
) -> None:
    facts = on_a_gpu(monkeypatch, 0.0)
    assert (facts["bandwidth"], facts["bound_microseconds"]) == (None, None)
    assert "bound" not in explain._text(facts)


# --- what it refuses -------------------------------------------------------------------------------------------------

ROWS = "; ".join(", ".join(f"{key}={value}" for key, value in row.items()) for row in OPERATORS[LN].combinations)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["LayerNormGrad"], "unknown operator 'LayerNormGrad' (did you mean "),
        ([LN, "--axes", '{"rows": [3]}'], f"{LN}: axes: gives no size to 'columns'\n"),
        (
            [LN, "--axes", '{"row": [3], "columns": [4]}'],
            f"{LN}: axes.row: no axis 'row' (did you mean rows?); axes has rows, columns; axes: gives ",
        ),
        ([LN, "--axes", '{"rows": 3, "columns": [4]}'], f"{LN}: axes.rows: expected a list of sizes, got one size\n"),
        (
            [LN, "--axes", '{"rows": [3], "columns": ["4"]}'],
            f"{LN}: axes.columns: expected a size or a list of sizes, 0 or more, got ('4',)\n",
        ),
        (
            [LN, "--axes", AXES, "--attributes", '{"axs": 1}'],
            f"{LN}: attributes.axs: no attribute 'axs' (did you mean axis?); attributes ",
        ),
        ([LN, "--axes", AXES, "--attributes", '{"axis": 7}'], f"{LN}: attribute axis is 7, but input X has rank 2; "),
        ([LN, "--example", "9"], f"{LN}: no example 9; it has 8, 1 to 4 small ones for tests\n"),
        ([LN, "--example", "0"], f"{LN}: no example 0; it has 8, 1 to 4 small ones for tests\n"),
        (
            [LN, "--types", "G=float16,V=float64"],
            f"{LN}: no registered combination has the types G=float16,V=float64; registered are {ROWS}\n",
        ),
        ([LN, "--types", "int8"], f"{LN}: unknown type of G 'int8'; known are float32, float64, float16, bfloat16\n"),
        ([LN, "--types", "g=float16"], f"{LN}: unknown type variable 'g' (did you mean G?); known are G, T, U, V, S\n"),
        ([LN, "--strides", '{"X": [40, 1]}'], f"{LN}: strides of X are [40, 1], with 1; expected 2 numbers of bytes, "),
        ([LN, "--strides", '{"X": [160]}'], f"{LN}: strides of X are [160]; expected 2 numbers of bytes, multiples "),
        ([LN, "--strides", f'{{"X": [{2**63}, 4]}}'], f"{LN}: strides of X are [{2**63}, 4], with {2**63}; expected "),
        ([LN, "--strides", '{"x": [160, 4]}'], f"{LN}: strides of 'x' (did you mean X?); inputs are Y_grad, X, "),
        ([LN, "--outputs", "dX"], f"{LN}: unknown output 'dX'"),
        ([LN, "--provider", "cpus"], f"{LN}: no provider 'cpus' (did you mean cpu?); registered are "),
    ],
)
def test_what_does_not_fit_the_contract_is_exit_code_one(show: Shown, arguments: list[str], message: str) -> None:
    code, out, err = show(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: OP"),
        ([LN, "--axes", "{"], "argument --axes: '{' is not JSON: "),
        ([LN, "--axes", "[1]"], "argument --axes: '[1]' is not a JSON object"),
        ([LN, "--axes", AXES, "--example", "1"], "argument --example: not allowed with argument --axes"),
    ],
)
def test_a_wrong_command_line_is_exit_code_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["explain", *arguments])
    assert caught.value.code == 2
    assert f"gradkern explain: error: {message}" in capsys.readouterr().err


def test_a_provider_that_cannot_run_here_says_why(show: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradkern.cli.sizes.unavailable", lambda provider: f"{provider} is on holiday")
    code, _, err = show(LN, "--provider", "cpu")
    assert (code, err) == (1, f"{LN}: cpu cannot run here: cpu is on holiday\n")


def test_an_unknown_operator_has_no_plan() -> None:
    with pytest.raises(
        gradkern.UnknownOperatorError, match=r"^unknown operator 'ConvGrd' \(did you mean ConvGrad or Conv\?\)"
    ):
        plan_for("ConvGrd", {})


def test_it_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "gradkern", "explain", "BiasFastGeluGrad_dX", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["provider"] in ("cpu", "cuda")


# --- searches ---------------------------------------------------------------------------------------------------------


class Searching(FakeProvider):
    """A provider that searches, or has done so."""

    def __init__(self, found: SearchResult | None) -> None:
        super().__init__()
        self.found = found
        self.asked: list[Any] = []

    def searches(self, call: Any) -> Any:
        self.asked.append(call)
        return {"X_grad": (self.found, [] if self.found else ["first", "second"])}


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Callable[[SearchResult | None], Searching]:
    """In place of a CUDA provider, on a machine that seems to have a GPU, one with this result of a search."""

    def make(found: SearchResult | None) -> Searching:
        fake = Searching(found)
        monkeypatch.setitem(sys.modules, "gradkern.ops.layer_norm.cuda.plan", fake)
        for module in (planner, sizes):
            monkeypatch.setattr(module, "unavailable", lambda provider: None)
        monkeypatch.setattr(driver, "ask", lambda: None)
        return fake

    return make


def row(name: str, **found: Any) -> Measurement:
    return Measurement(name, "cudnn", name, {}, **found)


def test_lines_are_as_long_as_the_terminal_is_wide(
    show: Shown, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = show("MaxPoolGrad", "--provider", "cpu")[1]
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = show("MaxPoolGrad", "--provider", "cpu")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    assert out.split() == whole.split()


def test_no_output_is_no_default(show: Shown) -> None:
    assert show(LN, "--outputs", "")[::2] == (1, f"{LN}: unknown output ''; its outputs are {OUTPUTS}\n")


def test_a_search_that_nobody_made_is_not_made_now(show: Shown, searching: Callable[..., Searching]) -> None:
    fake = searching(None)
    code, out, _ = show(LN, "--axes", AXES, "--provider", "cuda", "--policy", '{"allow_tf32": false}')
    assert code == 0
    assert (
        "search X_grad  none is kept; gradkern.tune() or gradkern warmup makes it. 2 candidates: first, second" in out
    )
    assert [call.policy.search for call in fake.calls] == ["default"]
    assert [call.policy for call in fake.asked] == [gradkern.Policy(allow_tf32=False)]


def test_the_ranking_of_a_kept_search_is_shown(show: Shown, searching: Callable[..., Searching]) -> None:
    ranking = row("quick", seconds=1.25e-4, workspace=4096, notes=("tf32",)), row("next", seconds=2e-4)
    others = row("wrong", reason="its result is 5.0e-01 away", wrong=True), row("unfit", reason="no")
    fake = searching(SearchResult("LN", {}, ranking, others, True, 2.04))
    code, out, _ = show(LN, "--axes", AXES, "--provider", "cuda")
    assert code == 0
    assert [" ".join(line.split()) for line in out.splitlines()[-4:]] == [
        "search X_grad 2.0 s, 2 ranked, 2 not; confirmed by independent results",
        "1. 125.0 us quick, workspace 4,096 bytes, tf32",
        "2. 200.0 us next, workspace 0 bytes",
        "wrong wrong: its result is 5.0e-01 away",
    ]
    assert [call.policy.search for call in fake.calls] == ["default", "background"]
    document = json.loads(show(LN, "--axes", AXES, "--provider", "cuda", "--json")[1])
    assert document["searches"]["X_grad"]["rejected"][1]["reason"] == "no"


def test_strides_of_the_arrays_are_planned(show: Shown, provider: FakeProvider) -> None:
    assert show(LN, "--axes", AXES, "--strides", '{"X": [8192, 4]}', "--provider", "cpu")[0] == 0
    assert provider.calls[0].inputs["X"].strides == (8192, 4)

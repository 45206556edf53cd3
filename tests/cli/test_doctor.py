"""`gradkern doctor`: every case it tells apart, the command it gives for each, and its exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.calls import FakeProvider
from helpers.checkout import ROOT
from helpers.installed import FakeCudnn, cudnn, install, only, satisfy

import gradkern
from gradkern import cli
from gradkern.cli import checks, doctor
from gradkern.cli.catalogue import calls
from gradkern.cli.checks import Check, absent, fine, problem
from gradkern.cli.doctor import (
    begin_check,
    check_cache,
    check_driver,
    check_margin,
    check_packages,
    check_packs,
    check_provider,
)
from gradkern.cuda import pack, packs
from gradkern.cuda.compile import Compiled
from gradkern.cuda.dry_run import GPUS
from gradkern.cuda.spec import source_digest
from gradkern.system import cache_files, driver
from gradkern.system.driver import Driver, Gpu
from gradkern.system.packages import of_extra

H200 = Gpu(0, "NVIDIA H200", (9, 0), 150_109_880_320, 4.9e12)
GPU = Driver((13, 0), (H200,))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no line breaks."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that packages and libraries are looked for in."""
    return only(tmp_path, monkeypatch)


def fits(site: Path, major: int | None = None) -> None:
    """Install all that gradkern needs, and all but cuDNN that it needs for a CUDA."""
    wanted = [*of_extra(""), *(of_extra(f"cu{major}") if major else [])]
    satisfy(site, *(each.text for each in wanted if "cudnn" not in each.name))
    if major:
        install(site, "cuda-bindings", f"{major}.0.1")


# --- the driver ------------------------------------------------------------------------------------------------------


def test_no_driver_is_no_problem() -> None:
    assert list(check_driver(None)) == [absent("driver", "no NVIDIA driver: only the CPU provider is available")]


def test_a_driver_without_a_gpu_is_no_problem() -> None:
    text = "for CUDA 13.0, shows no GPU: only the CPU provider is available"
    assert list(check_driver(Driver((13, 0), ()))) == [absent("driver", text, version="13.0")]


def test_a_gpu_is_described() -> None:
    first, second = check_driver(GPU)
    assert first == fine("driver", "for CUDA 13.0", version="13.0")
    assert (second.name, second.status) == ("GPU 0", "fine")
    assert second.text == "NVIDIA H200, compute capability 9.0, 139.8 GiB, 4,900 GB/s nominal"
    assert second.facts["memory"] == 150_109_880_320


def test_a_gpu_that_nobody_has_measured_is_said_to_be() -> None:
    _, gpu, more = check_driver(Driver((13, 0), (Gpu(0, "NVIDIA B200", (10, 0), 2**37, 8e12),)))
    assert (gpu.status, more.status, more.name) == ("fine", "absent", "GPU 0")
    assert more.text.startswith("nobody has measured compute capability 10.0: ")
    assert more.text.endswith("`gradkern doctor --self-test` compares them with the CPU's")


def test_the_gpus_of_the_results_are_measured() -> None:
    named = {
        each
        for path in (ROOT / "tools" / "results").glob("*.json")
        for each in re.findall(r'"gpu": "NVIDIA (\w+)', path.read_text(encoding="utf-8"))
    }
    of = {each: {capability for name, (capability, *_) in GPUS.items() if each in name} for each in named}
    assert all(capabilities and capabilities <= {*doctor.MEASURED} for capabilities in of.values()), of


def test_a_driver_that_fails_is_a_problem_in_its_own_words() -> None:
    (found,) = check_driver(Driver((12, 4), (), "system not yet initialized (CUresult 802)"))
    text = "for CUDA 12.4, answers: system not yet initialized (CUresult 802)"
    assert found == problem("driver", text, "nvidia-smi", version="12.4")


def test_a_driver_too_old_and_a_gpu_too_old_are_problems() -> None:
    old = Gpu(0, "Tesla P100", (6, 0), 2**34, 0.0)
    first, second = check_driver(Driver((11, 8), (old,)))
    assert first == problem("driver", "for CUDA 11.8; gradkern needs CUDA 12: install a newer driver")
    assert second.status == "problem"
    assert second.text == "Tesla P100, compute capability 6.0, 16.0 GiB; gradkern needs 7.5"


# --- packages --------------------------------------------------------------------------------------------------------


def problems(asked: Driver | None, major: int) -> list[tuple[str, str | None]]:
    return [(each.text, each.remedy) for each in check_packages(asked, major) if each.status == "problem"]


def test_without_the_package_that_compares_versions_only_it_is_missed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    satisfy(site, *(each.text for each in of_extra("") if each.name != "packaging"))
    for name in [each for each in sys.modules if each.partition(".")[0] == "packaging"]:
        monkeypatch.delitem(sys.modules, name)
    assert problems(None, 12) == [("packaging not installed", "pip install 'packaging>=23.2'")]


@pytest.mark.parametrize("major", [12, 13])
def test_all_that_is_asked_for_is_no_problem(site: Path, major: int) -> None:
    fits(site, major)
    first, *rest = check_packages(GPU, major)
    assert (first.status, rest) == ("fine", [])
    assert first.facts["versions"]["numba-cuda"] == "0.30"
    assert f"cuda-bindings {major}.0.1" in first.text


def test_packages_for_cuda_may_be_missing_or_odd_without_a_gpu(site: Path) -> None:
    fits(site)
    install(site, "numba-cuda", "0.20.0")
    assert problems(None, 13) == problems(Driver((13, 0), ()), 13) == []


def test_missing_packages_are_one_problem_with_one_command(site: Path) -> None:
    fits(site)
    names = [each for each in of_extra("cu13") if "cudnn" not in each.name]
    words = " ".join(f"'{each.text}'" for each in names)
    text = f"{', '.join(each.name for each in names)} not installed"
    assert problems(GPU, 13) == [(text, f"pip install {words}")]


@pytest.mark.parametrize(
    ("version", "found"), [("13.3.1", []), ("12.9.0", ["cuda-bindings 12.9.0 does not fit cuda-python>=13,<14"])]
)
def test_the_bindings_stand_for_the_package_that_only_asks_for_them(site: Path, version: str, found: list[str]) -> None:
    satisfy(site, *(each.text for extra in ("", "cu13") for each in of_extra(extra) if each.name != "cuda-python"))
    install(site, "cuda-bindings", version)
    assert [text for text, _ in problems(GPU, 13)] == found


def test_a_core_package_is_missed_on_any_machine(site: Path) -> None:
    satisfy(site, *(each.text for each in of_extra("") if each.name != "platformdirs"))
    assert problems(None, 13) == [("platformdirs not installed", "pip install 'platformdirs>=4'")]


def test_numpy_that_numba_cuda_cannot_be_imported_with(site: Path) -> None:
    satisfy(site, *(each.text for each in of_extra("") if each.name != "numpy"))
    install(site, "numpy", "2.5.1")
    install(site, "numba-cuda", "0.30.4")
    assert problems(None, 13) == [
        (
            "numpy 2.5.1 does not fit numpy>=2,<2.5 (numba-cuda cannot be imported with it)",
            "pip install 'numpy>=2,<2.5'",
        )
    ]


def test_packages_for_a_newer_cuda_than_the_drivers(site: Path) -> None:
    fits(site, 13)
    words = " ".join(f"'{each.text}'" for each in of_extra("cu12"))
    text = "cuda-bindings is for CUDA 13, but the driver runs CUDA 12 at most"
    assert problems(Driver((12, 9), (H200,)), 13) == [(text, f"pip install {words}")]


def test_without_project_and_package_it_says_that_nothing_is_known(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "of_extra", lambda extra: [])
    text = "gradkern is neither installed nor a checkout: what it needs is not known"
    assert problems(None, 13) == [(text, None)]


@pytest.mark.parametrize(
    ("bindings", "asked", "major"),
    [
        ("12.9.5", GPU, 12),
        ("13.0.1", None, 13),
        ("14.0", GPU, 13),
        ("11.8", None, 12),
        (None, Driver((12, 4), ()), 12),
        (None, None, 13),
    ],
)
def test_the_cuda_in_use_is_that_of_the_bindings_or_else_the_drivers(
    site: Path, bindings: str | None, asked: Driver | None, major: int
) -> None:
    if bindings:
        install(site, "cuda-bindings", bindings)
    assert doctor._major(asked) == major


# --- the cache -------------------------------------------------------------------------------------------------------


def test_the_cache_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "kernels"))
    folder = str(tmp_path / "kernels")
    assert list(check_cache()) == [fine("cache", f"{folder}, 0 kernels, 0 bytes", folder=folder, kernels=0, bytes=0)]


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("a file, not a folder")
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(file))
    text = f"{file} cannot be written: File exists; what is not there is compiled anew in every process"
    assert list(check_cache()) == [problem("cache", text, "export GRADKERN_CACHE_DIR=FOLDER", folder=str(file))]


def test_a_cache_that_is_not_trusted_or_not_gradkerns_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    cpu, cuda = tmp_path / "cpu", tmp_path / "cuda"
    (cuda / "theirs").mkdir(parents=True)
    cpu.mkdir()
    cpu.chmod(0o777)
    text = f"{cuda} is not used: it is not gradkern's: it has 'theirs' and no CACHEDIR.TAG of gradkern"
    assert list(check_cache()) == [
        problem("cache", f"{cpu} is not used: other users may write it", f"chmod go-w {cpu}", folder=str(cpu)),
        problem("cache", text, "export GRADKERN_CACHE_DIR=FOLDER", folder=str(cuda)),
    ]


def test_a_folder_of_nobodys_home_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", "~nobody-of-this-name/kernels")
    folder = "~nobody-of-this-name/kernels"
    text = f"{folder} cannot be written: the home folder is not known; what is not there is compiled anew in every"
    assert list(check_cache()) == [
        problem("cache", f"{text} process", "export GRADKERN_CACHE_DIR=FOLDER", folder=folder)
    ]


# --- packs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack of one kernel for an H200, in the cache."""
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(packs, "PACKAGED", tmp_path / "packaged")
    modules = ("gradkern.search.kernels",)
    about = pack.About("1.0", (9, 0), source_digest(*modules), modules, ())
    path = packs.installed_path((9, 0))
    cache_files.write(path, pack.build(about, {"00" * 32: Compiled(b"machine code", 32, 0)}))
    return path


def test_a_pack_is_described(packed: Path) -> None:
    facts = {"kernels": 1, "path": str(packed), "bytes": packed.stat().st_size}
    expected = fine("pack", f"{packed}, 1 kernel, {facts['bytes']} bytes", **facts)
    assert list(check_packs([(9, 0)])) == list(check_packs([])) == [expected]


def test_a_gpu_without_a_pack_is_said_to_have_none(packed: Path) -> None:
    (_, found) = check_packs([(9, 0), (8, 0), (6, 0)])
    text = "none for compute capability 8.0: what a call needs is compiled at the first"
    assert found == absent("pack", f"{text}; `gradkern pack build` compiles what is popular")


def test_a_pack_that_does_not_fit_is_a_problem_with_a_remedy(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:-1])
    (found,) = check_packs([])
    assert (found.status, found.text) == ("problem", f"{packed} is not used: it is cut off")
    assert found.remedy == "gradkern pack build --arch sm_90"


def test_a_pack_of_the_package_is_mended_where_it_comes_from(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs.PACKAGED.mkdir()
    packed.rename(packs.PACKAGED / packed.name)
    (packs.PACKAGED / packed.name).write_bytes(b"")
    (found,) = check_packs([])
    assert found.remedy == f"gradkern pack build --refresh {packs.PACKAGED}"  # in a checkout
    monkeypatch.setattr(doctor, "in_checkout", lambda: False)
    (found,) = check_packs([])
    assert found.remedy == "pip install --force-reinstall --no-deps gradkern"


# --- the SM margin ---------------------------------------------------------------------------------------------------


def test_a_margin_is_shown_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "0"):
        monkeypatch.setenv("GRADKERN_SM_MARGIN", text)
        assert list(check_margin()) == []
    monkeypatch.setenv("GRADKERN_SM_MARGIN", "24")
    text = "24 multiprocessors are left free for others' kernels: GRADKERN_SM_MARGIN"
    assert list(check_margin()) == [fine("SM margin", text, multiprocessors=24)]


def test_a_margin_that_is_no_number_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKERN_SM_MARGIN", "all")
    text = "GRADKERN_SM_MARGIN is 'all'; it takes a number of multiprocessors, such as 16"
    assert list(check_margin()) == [problem("SM margin", text, "unset GRADKERN_SM_MARGIN")]


# --- the providers ---------------------------------------------------------------------------------------------------


def test_the_cpu_provider_computes() -> None:
    found = check_provider("cpu")
    assert found.status == "fine"
    assert found.text.startswith("computes BatchNormalizationGradFromSums (")


def test_a_check_in_a_process_of_its_own_finds_the_same() -> None:
    there, here = begin_check("cpu", False)(), check_provider("cpu")
    assert (there.name, there.status, there.text.split(" in ")[0]) == (
        here.name,
        here.status,
        here.text.split(" in ")[0],
    )


def test_a_check_whose_process_dies_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_BESIDE", "import os; os.abort()")
    found = begin_check("cpu", False)()
    assert (found.status, found.text) == ("problem", "fails: its process ends with exit code -6: it says nothing")


def test_a_provider_that_fails_is_a_problem(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any) -> Any:
        raise OSError("libllvmlite.so is gone")

    monkeypatch.setattr(provider, "plan", broken)
    assert check_provider("cpu") == problem("cpu provider", "fails: OSError: libllvmlite.so is gone")


def test_a_provider_whose_results_are_not_finite_is_a_problem(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spoil:
        kernel, scratch = "spoil", 0

        def __call__(self, inputs: Any, outputs: Any, stream: Any) -> None:
            outputs[0][...] = float("nan")

    def spoil(call: Any) -> Any:
        return Spoil()

    monkeypatch.setattr(provider, "plan", spoil)
    text = "fails: ArithmeticError: BatchNormalizationGradFromSums: the results of finite inputs are not finite"
    assert check_provider("cpu").text == text


def test_a_gpu_whose_kernel_is_not_compiled_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_is_compiled", lambda *_: False)
    text = "not tried: no kernel is compiled yet; `gradkern doctor --compile` compiles one and runs it"
    assert check_provider("cuda") == absent("cuda provider", text)


def test_what_the_doctor_tries_a_gpu_with_is_in_the_catalogue() -> None:
    """So a machine with a pack is tried without a compilation."""
    operator = gradkern.operators()[doctor._EXAMPLES["cuda"]]
    axes, types = operator.benchmarks[0].axes, operator.combinations[0]
    same = {"op": doctor._EXAMPLES["cuda"], "types": dict(types)}
    columns = axes["columns"]
    assert isinstance(columns, tuple)
    widths = {each["axes"]["columns"][0] for each in calls() if each.items() >= same.items()}
    assert columns[0] in widths


def test_a_provider_that_no_operator_has_is_only_absent() -> None:
    assert check_provider("tpu") == absent("tpu provider", "no operator has it in this version")


# --- the command -----------------------------------------------------------------------------------------------------


def given(monkeypatch: pytest.MonkeyPatch, asked: Driver | None) -> None:
    monkeypatch.setattr(driver, "ask", lambda: asked)
    monkeypatch.setattr(doctor, "check_provider", lambda name, _: fine(f"{name} provider", "computes"))
    monkeypatch.setattr(doctor, "begin_check", lambda name, _: lambda: fine(f"{name} provider", "computes"))


def test_a_machine_without_a_gpu_is_well(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, None)
    fits(site)
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(site / "kernels"))
    assert cli.main(["doctor"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith(f"gradkern {gradkern.__version__}, Python ")
    assert lines == [
        "  -  driver        no NVIDIA driver: only the CPU provider is available",
        "  ok packages      "
        "numpy 2, numba 0.63, ml-dtypes 0.5, pydantic 2.10, ruamel.yaml 0.18, rich 13, platformdirs 4, packaging 23.2",
        "  -  NVVM          not installed; only a GPU needs it",
        "  -  cuDNN         not installed; only a GPU needs it",
        f"  ok cache         {site}/kernels, 0 kernels, 0 bytes",
        "  ok cpu provider  computes",
        "all is well",
    ]


def test_a_machine_with_a_gpu_and_nothing_for_it_has_three_problems(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, GPU)
    fits(site)
    assert cli.main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  !!")] == ["packages", "NVVM", "cuDNN"]
    assert sum(line.lstrip().startswith("mend it: pip install ") for line in lines) == 3
    assert "  ok cuda provider  computes" in lines
    assert lines[-1] == "3 problems found"


def test_json_has_a_schema_every_check_and_the_verdict(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, GPU)
    fits(site, 13)
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    install(site, "nvidia-nvvm", "13.0.88", {"nvidia/cu13/lib/libnvvm.so.4": b"compiler"})
    monkeypatch.setattr(checks.check_cudnn, "__defaults__", (lambda path: FakeCudnn(91900, 13000),))
    assert cli.main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["schema", "gradkern", "python", "system", "healthy", "checks"]
    assert (document["schema"], document["healthy"]) == (3, True)
    names = ["driver", "GPU 0", "packages", "NVVM", "cuDNN", "cache", "pack", "cpu provider", "cuda provider"]
    assert [each["name"] for each in document["checks"]] == names
    for each in document["checks"]:
        assert list(each) == ["name", "status", "text", "remedy", "facts"]
    assert document["checks"][1]["facts"]["capability"] == [9, 0]


def test_one_problem_is_one() -> None:
    assert list(doctor._lines([Check("cache", "problem", "full", "rm -r x")])) == [
        "  !! cache  full",
        "            mend it: rm -r x",
        "1 problem found",
    ]


def test_it_runs_as_a_process_here() -> None:
    command = [sys.executable, "-m", "gradkern", "doctor", "--json"]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert done.returncode == (0 if document["healthy"] else 1)
    assert done.stderr == ""
    assert next(each for each in document["checks"] if each["name"] == "cpu provider")["status"] == "fine"


def test_lines_are_as_long_as_the_terminal_is_wide(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, None)
    fits(site)
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(site / "kernels"))
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    packages = out[out.index("packages") : out.index("NVVM")]
    assert max(map(len, packages.splitlines())) <= 80 < len(" ".join(packages.split()))
    assert "ruamel.yaml 0.18, rich 13, platformdirs 4, packaging 23.2" in " ".join(packages.split())


def test_it_works_where_no_package_is_installed() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from gradkern.cli import main; sys.exit(main(['doctor']))"
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if name != "GRADKERN_CACHE_DIR"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    names = ", ".join(each.name for each in of_extra(""))
    words = " ".join(f"'{each.text}'" for each in of_extra(""))
    assert f"  !! packages      {names} not installed\n                   mend it: pip install {words}\n" in done.stdout
    assert "  !! cache         no folder is known: No module named 'platformdirs'\n" in done.stdout
    assert "  !! cpu provider  fails: ModuleNotFoundError: No module named 'numpy'\n" in done.stdout

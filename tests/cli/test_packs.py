"""`gradkern pack`: what is built is what calls need, what is taken is whole and fits, and every mistake is one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern import cli
from gradkern.cuda import cache, packs, workers
from gradkern.cuda.compile import Compiled
from gradkern.cuda.pack import Pack
from gradkern.cuda.spec import KernelSpec
from gradkern.system import driver
from gradkern.system.driver import Driver, Gpu

Shown = Callable[..., tuple[int, str, str]]

CALLS = [
    {"op": "BiasGeluGrad_dX", "axes": {"rows": [64], "columns": 1024}, "types": "float32", "outputs": ["dX"]},
    {"op": "BiasGeluGrad_dX", "axes": {"rows": [64], "columns": 1024}, "types": "float32", "outputs": ["dX", "dB"]},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(packs, "PACKAGED", tmp_path / "packaged")
    packs.reset()
    yield tmp_path
    packs.reset()


@pytest.fixture
def show(folder: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Run `gradkern pack` with these arguments: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(["pack", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def calls(folder: Path) -> Path:
    path = folder / "calls.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in CALLS))
    return path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[KernelSpec]:
    """What is compiled, which takes no time here."""
    specs: list[KernelSpec] = []

    def compile_none(spec: KernelSpec) -> Compiled:
        specs.append(spec)
        return Compiled(spec.name.encode(), 32, 0, spec.name)

    monkeypatch.setattr(workers, "available", lambda: False)
    monkeypatch.setattr(KernelSpec, "compile", compile_none)
    return specs


def test_a_pack_is_built_for_the_calls_of_a_file_and_used(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]
) -> None:
    code, out, err = show("build", "--arch", "sm_90", "--calls", calls)
    path = folder / "cache" / "packs" / "sm_90.pack"
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: {len(compiled)} kernels of 2 calls, {path.stat().st_size:,} bytes, in ")
    assert {spec.capability for spec in compiled} == {(9, 0)}
    for spec in compiled:
        found = packs.find(spec)
        assert found is not None
        assert found.cubin == spec.name.encode()


def test_a_pack_of_an_architecture_is_for_all_its_known_gpus(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]
) -> None:
    """An L4's kernels are compiled for 8.0 as well, where the pack is for 8.0."""
    assert show("build", folder, "--arch", "sm_80,sm_89", "--calls", calls)[0] == 0
    older, newer = (Pack(folder / f"sm_{each}.pack") for each in ("80", "89"))
    assert older.about.capability == (8, 0)
    assert len(older) >= len(newer) >= 2
    assert not list((folder / "cache").glob("packs/*"))


def test_a_kernel_is_compiled_for_one_architecture_after_another(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]
) -> None:
    """They share its IR; each pack has the kernels of its own."""
    assert show("build", folder, "--arch", "sm_80,sm_90,sm_120", "--calls", calls)[0] == 0
    order = [spec.on((0, 0)) for spec in compiled]
    assert len({*order}) < len(order)
    assert len([*groupby(order)]) == len({*order})
    for capability in ((8, 0), (9, 0), (12, 0)):
        pack = Pack(folder / f"sm_{capability[0]}{capability[1]}.pack")
        assert {*pack.keys()} == {spec.digest for spec in compiled if spec.capability == capability}


def test_a_pack_of_ptx_is_for_gpus_that_are_newer(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]
) -> None:
    assert show("build", "--arch", "compute_90", "--calls", calls)[0] == 0
    assert (folder / "cache" / "packs" / "compute_90.pack").exists()
    for spec in compiled:
        assert (spec.capability, spec.ptx) == ((9, 0), True)
        assert packs.find(spec.on((10, 0))) is not None
        assert packs.find(spec.on((9, 0))) is None
    assert "kernels for compute capability 9.0 and later, as PTX, gradkern" in show("info")[1]


def test_without_an_architecture_it_is_the_gpus(show: Shown, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ask", lambda: None)
    assert show("build", "--calls", calls) == (
        1,
        "",
        "gradkern pack build: no GPU is found here; name the architectures to build for: --arch sm_90,sm_80\n",
    )


def test_the_kernels_of_the_gpu_that_is_here_are_those_of_its_size(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradkern.cuda import device
    from gradkern.cuda.device import Device

    monkeypatch.setattr(driver, "ask", lambda: Driver((13, 0), (Gpu(0, "a GPU", (8, 9), 1 << 34, 1e12),)))
    monkeypatch.setattr(device, "_opened", lambda index: Device(index, (8, 9), 60, 101376, 1))
    assert show("build", "--calls", calls)[0] == 0
    assert {spec.capability for spec in compiled} == {(8, 9)}
    assert packs.find(compiled[0]) is not None


def test_what_the_cache_has_is_not_compiled_again(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]
) -> None:
    assert show("build", folder / "first", "--arch", "sm_90", "--calls", calls)[0] == 0
    spec, *others = compiled
    cache.keep(cache.key_of(spec.module, spec.description, spec.capability), Compiled(b"kept", 32, 0))
    compiled.clear()
    assert show("build", folder / "second", "--arch", "sm_90", "--calls", calls)[0] == 0
    assert compiled == others
    kept = Pack(folder / "second").read(spec.digest)
    assert kept is not None
    assert kept.cubin == b"kept"


def test_a_pack_is_refreshed_where_another_would_be_built_by_what_it_lacks(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "sm_90.pack"
    asked = ("build", folder, "--arch", "sm_90", "--calls", calls, "--refresh")
    assert show(*asked)[0] == 0
    every = list(compiled)
    compiled.clear()
    assert show(*asked) == (0, f"{path}: it is as it would be built now\n", "")
    calls.write_text(calls.read_text().splitlines()[0])
    assert show(*asked)[0] == 0
    assert len(Pack(path)) < len(every)
    assert not compiled  # what is still wanted was there
    calls.write_text("".join(json.dumps(each) + "\n" for each in CALLS))
    assert show(*asked)[0] == 0
    assert 0 < len(compiled) < len(every)
    assert len(Pack(path)) == len(every)
    monkeypatch.setattr(cache, "versions", lambda: ("another compiler 2.0",))
    compiled.clear()
    assert show(*asked)[0] == 0
    assert len(compiled) == len(every)


def test_a_damaged_pack_is_refreshed_as_a_whole(
    show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]
) -> None:
    path = folder / "sm_90.pack"
    asked = ("build", folder, "--arch", "sm_90", "--calls", calls, "--refresh")
    assert show(*asked)[0] == 0
    whole, every = path.read_bytes(), list(compiled)
    path.write_bytes(whole[:-1])
    compiled.clear()
    assert show(*asked)[0] == 0
    assert compiled == every
    assert path.read_bytes() == whole


def test_a_kernel_that_cannot_be_compiled_is_named_and_nothing_is_written(
    show: Shown, folder: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(spec: KernelSpec) -> Compiled:
        raise RuntimeError("no such architecture")

    monkeypatch.setattr(workers, "available", lambda: False)
    monkeypatch.setattr(KernelSpec, "compile", fail)
    code, _, err = show("build", folder / "out", "--arch", "sm_90", "--calls", calls)
    assert code == 1
    assert err.startswith("kernel gradkern_bias_gelu_grad")
    assert err.endswith(" cannot be compiled for compute capability 9.0: RuntimeError: no such architecture\n")
    assert not (folder / "out").exists()


def test_a_call_that_cannot_be_planned_is_left_out_and_named(
    show: Shown, folder: Path, compiled: list[KernelSpec]
) -> None:
    odd = {**CALLS[0], "axes": {"rows": [64], "columns": 1024}, "policy": {"kernel": "none of this name"}}
    path = folder / "calls.jsonl"
    path.write_text(json.dumps(CALLS[0]) + "\n" + json.dumps(odd) + "\n")
    code, _, err = show("build", "--arch", "sm_90", "--calls", path)
    assert code == 0
    assert "left out: BiasGeluGrad_dX: " in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--arch", "hopper"), "gradkern pack build: architecture 'hopper'; expected a name as sm_90"),
        (
            ("--arch", "sm_77"),
            "gradkern pack build: no GPU is known of which sm_77 is the architecture; known are sm_75,",
        ),
        (
            ("/no/such/folder/file", "--arch", "sm_90"),
            "gradkern pack build: /no/such/folder/file: no file can be written",
        ),
        (("/no/such/file", "--arch", "sm_90,sm_80"), "gradkern pack build: /no/such/file is no folder; several"),
        (("--arch", "sm_90", "--calls", "/no/such/file"), "/no/such/file: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(show: Shown, calls: Path, arguments: tuple[str, ...], says: str) -> None:
    if "--calls" not in arguments:
        arguments = (*arguments, "--calls", str(calls))
    code, out, err = show("build", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(says)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("jobs", ["0", "two", "1.5"])
def test_a_number_of_jobs_that_is_none_is_a_wrong_command_line(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["pack", "build", "--jobs", jobs])
    assert caught.value.code == 2
    assert "is no number of processes" in capsys.readouterr().err


# --- install and info ------------------------------------------------------------------------------------------------


@pytest.fixture
def file(show: Shown, folder: Path, calls: Path, compiled: list[KernelSpec]) -> Path:
    """A pack that another machine has made."""
    path = folder / "from elsewhere"
    assert show("build", path, "--arch", "sm_90", "--calls", calls)[0] == 0
    return path


def test_a_pack_that_fits_is_taken(show: Shown, folder: Path, file: Path) -> None:
    number = len(Pack(file))
    path = folder / "cache" / "packs" / "sm_90.pack"
    assert show("install", file) == (0, f"{path}: {number} kernels\n", "")
    code, out, _ = show("info")
    assert code == 0
    assert out.startswith(f"{path}, {file.stat().st_size:,} bytes\n  {number} kernels for compute capability 9.0, ")
    (described,) = json.loads(show("info", "--json")[1])["packs"]
    assert (described["path"], described["fault"]) == (str(path), None)


def test_what_is_damaged_or_does_not_fit_is_not_taken(
    show: Shown, folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file.read_bytes()
    for bad, reason in (
        (data[:-1], "it is cut off"),
        (data[:-1] + bytes([data[-1] ^ 1]), "the digest of kernel "),
        (b"a photograph", "it is no pack of this format"),
    ):
        file.write_bytes(bad)
        code, _, err = show("install", file)
        assert code == 1
        assert err.startswith(f"{file} is not taken: {reason}")
    file.write_bytes(data)
    monkeypatch.setattr(packs, "source_digest", lambda *_: "other sources")
    assert "it was made from other sources, those of gradkern" in show("install", file)[2]
    assert not (folder / "cache" / "packs").exists()
    assert show("install", folder / "nowhere")[2] == f"{folder / 'nowhere'}: No such file or directory\n"


def test_a_pack_that_is_not_used_is_shown_with_the_reason_and_exit_code_one(
    show: Shown, folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show("install", file)
    monkeypatch.setattr(packs, "source_digest", lambda *_: "other sources")
    code, out, _ = show("info")
    assert code == 1
    assert "(not used: it was made from other sources, those of gradkern " in out


def test_without_packs_it_says_how_to_get_one(show: Shown) -> None:
    assert show("info") == (
        0,
        "no pack: `gradkern pack build` makes one, `gradkern pack install FILE` takes one\n",
        "",
    )

"""Results of searches are carried in one file: `gradkern cache export` and `import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.fake_candidates import DEVICE, FakeBench, FakeCandidate, task

from gradkern import cli
from gradkern.policy import Policy
from gradkern.search import store
from gradkern.search.tuner import choose
from gradkern.system import cache_files

POLICY = Policy("exhaustive", workspace_limit=1000)
A, B = FakeCandidate("a", 2e-3), FakeCandidate("b", 1e-3)


def searched(key: str = "problem", benches: list[FakeBench] | None = None) -> str:
    def open_bench(*_: object) -> FakeBench:
        assert benches is not None, "searched again"
        benches.append(FakeBench())
        return benches[-1]

    return choose(task((A, B), key=key), POLICY, DEVICE, open_bench=open_bench).candidate.name


@pytest.fixture
def exported(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A file with two results, of a cache that is empty now."""
    for key in ("problem", "another"):
        searched(key, [])
    file = tmp_path / "searches"
    assert cli.main(["cache", "export", str(file)]) == 0
    assert capsys.readouterr().out == f"2 searches written to {file}\n"
    assert cache_files.clear("search") is None
    return file


def test_what_was_imported_is_not_searched_again(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "import", str(exported)]) == 0
    assert capsys.readouterr().out == f"2 searches new of 2 in {exported}\n"
    assert searched() == "b"


def test_results_of_this_machine_stay(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched("problem", [])
    (path,) = cache_files.entries("search")
    before = path.read_bytes()
    assert cli.main(["cache", "import", "--json", str(exported)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["searches"], document["new"]) == (2, 1)
    assert path.read_bytes() == before


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def of_another_version(path: Path) -> None:
    document = json.loads(cache_files.unseal(store._BUNDLE, path.read_bytes()))
    path.write_bytes(cache_files.seal(store._BUNDLE, json.dumps(document | {"gradkern": "0.0"}).encode()))


def of_no_results(path: Path) -> None:
    document = {"gradkern": cli.__version__, "results": [{"ranking": []}]}
    path.write_bytes(cache_files.seal(store._BUNDLE, json.dumps(document).encode()))


def of_one_search(path: Path) -> None:
    searched("problem", [])
    path.write_bytes(cache_files.entries("search")[0].read_bytes())
    cache_files.clear("search")


def for_all_to_write(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damaged, "its digest does not fit its content"),
        (of_another_version, "it is of gradkern 0.0; this is "),
        (of_no_results, "it lacks or has too much: 'rejected'"),
        (of_one_search, "it is no file of this format"),
        (for_all_to_write, "other users may write it"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    exported: Path, capsys: pytest.CaptureFixture[str], change: object, reason: str
) -> None:
    assert callable(change)
    change(exported)
    assert cli.main(["cache", "import", str(exported)]) == 1
    assert f"{exported} is not taken: {reason}" in capsys.readouterr().err
    assert cache_files.entries("search") == []


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "import", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'none'}: No such file or directory\n"


def test_bad_entries_are_left_out_and_told(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("problem", "another"):
        searched(key, [])
    first, _ = cache_files.entries("search")
    first.write_bytes(b"nothing")
    assert cli.main(["cache", "export", str(tmp_path / "file")]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        f"1 search written to {tmp_path / 'file'}\n",
        f"left out: {first}: it is no file of this format\n",
    )
    (result,) = store.read_bundle(tmp_path / "file")
    assert store.path_of(result) != first

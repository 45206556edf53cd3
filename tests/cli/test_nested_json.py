"""JSON that is nested deeper than Python's own parser, or what comes after it, can follow: one line says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradkern import cli
from gradkern.search import store
from gradkern.system import cache_files
from gradkern.system.json_text import loads

# levels: few that pass the parser, such as validation, repr and dumps follow or not, and more than any parser takes
DEPTHS = (70, 500, 995, 5_000, 200_000)


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("option", ["axes", "attributes", "strides", "policy"])
def test_an_option_that_is_nested_is_a_wrong_command_line(
    option: str, depth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["explain", "LayerNormalizationGrad", f"--{option}", f'{{"rows": {nested(depth)}}}'])
    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "is not JSON: it is nested" in last
    assert len(last) < 1000


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("command", [["warmup", "--calls"], ["pack", "build", "--arch", "sm_90", "--calls"]])
def test_a_call_that_is_nested_is_named_by_its_line(
    command: list[str], depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba_cuda" if command[0] == "pack" else "numba")
    file = tmp_path / "calls"
    first = '{"op": "BiasGelu", "axes": {"rows": [2], "columns": 4}}'
    file.write_text(f'{first}\n{{"op": "BiasGelu", "axes": {{"rows": {nested(depth)}}}}}\n')
    assert cli.main([*command, str(file)]) == 1
    assert [line[: len(f"{file}:2: it is nested")] for line in capsys.readouterr().err.splitlines()] == [
        f"{file}:2: it is nested"
    ]


@pytest.mark.parametrize("depth", DEPTHS)
def test_searches_that_are_nested_are_not_taken(depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sealed, so that nothing else tells them from sound ones."""
    result = store.SearchResult("ConvGrad dX", {"task": "a problem"}, (), (), True, 1.5)
    store.save(result)
    store.write_bundle(tmp_path / "sound", [result])
    sealed: Any = f'{{"title": "ConvGrad dX", "conditions": {nested(depth)}}}'.encode()
    path = store.path_of(result)
    cache_files.write(path, cache_files.seal(store._MAGIC, sealed))
    with pytest.warns(RuntimeWarning, match="is searched again: it is nested"):
        assert store.load(store.key_of(result.conditions)) is None
    assert list(store.newest("ConvGrad", 9)) == []
    assert cli.main(["cache", "verify"]) == 1
    assert "it is nested" in capsys.readouterr().out
    (tmp_path / "given").write_bytes(cache_files.seal(store._BUNDLE, sealed))
    (tmp_path / "given").chmod(0o600)
    assert cli.main(["cache", "import", str(tmp_path / "given")]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "is not taken: it is nested" in said


@pytest.mark.parametrize("depth", [0, 1, 30, 64])
def test_what_is_nested_as_far_as_anybody_needs_is_read(depth: int) -> None:
    assert loads(nested(depth)) == json.loads(nested(depth))
    assert loads(nested(max(depth - 1, 0), '{"a": "[[[["}')) is not None


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nonsense", "\ud800", '{"a": 1}}'])
def test_what_is_no_json_is_refused_as_ever(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra data|Illegal|enclosed"):
        loads(text)

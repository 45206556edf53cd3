"""Packs: a kernel of one is run before any other is looked for; one that is damaged, or does not fit, is not used."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gradkern.cuda import cache, pack, packs
from gradkern.cuda import launch as launches
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import Device
from gradkern.cuda.pack import About, Pack
from gradkern.cuda.spec import KernelSpec, source_digest

HOPPER = (9, 0)
BUILDER = "gradkern.search.kernels:compare"
MODULE = BUILDER.partition(":")[0]


def spec_of(number: int, capability: tuple[int, int] = HOPPER) -> KernelSpec:
    return KernelSpec(BUILDER, (f"type {number}",), f"kernel_{number}", 4, 64, 1, capability)


def kernel_of(number: int) -> Compiled:
    return Compiled(b"\x7fELF" + bytes([number]) * 1000 * (number + 1), 32 + number, number, f"kernel_{number}")


def about(capability: tuple[int, int] = HOPPER, **others: Any) -> About:
    return About(
        **{"gradkern": "1.0", "sources": source_digest(MODULE), "modules": (MODULE,), **others},
        capability=capability,
        compilers=("numba 1.0",),
    )


def content(count: int = 5, capability: tuple[int, int] = HOPPER, **others: Any) -> bytes:
    kernels = {spec_of(number, capability).digest: kernel_of(number) for number in range(count)}
    return pack.build(about(capability, **others), kernels)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a user's packs are; the package has none."""
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(packs, "PACKAGED", tmp_path / "packaged")
    packs.reset()
    made = tmp_path / "packs"
    made.mkdir(mode=0o700)
    yield made
    packs.reset()


def put(folder: Path, data: bytes, capability: tuple[int, int] = HOPPER, ptx: bool = False) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / packs.name_of(capability, ptx)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_kernel_of_a_pack_can_be_read_alone(tmp_path: Path, count: int) -> None:
    path = tmp_path / "any"
    path.write_bytes(content(count))
    found = Pack(path)
    assert (len(found), found.about.kernels, found.about) == (count, count, about(kernels=count))
    for number in reversed(range(count)):
        assert found.read(spec_of(number).digest) == kernel_of(number)
    for digest in ("00" * 32, "ff" * 32, spec_of(count).digest):
        assert found.read(digest) is None
    assert sorted(found.keys()) == sorted(spec_of(number).digest for number in range(count))


def test_a_pack_is_the_same_bytes_whatever_the_order_of_its_kernels() -> None:
    kernels = {spec_of(number).digest: kernel_of(number) for number in range(4)}
    assert pack.build(about(), kernels) == pack.build(about(), dict(reversed(kernels.items())))


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "it is no pack of this format"),
    "foreign": (lambda data: b"GIF89a" * 1000, "it is no pack of this format"),
    "cut in the start": (lambda data: data[:20], "it is cut off"),
    "cut in the head": (lambda data: data[:200], "it is cut off"),
    "cut in the kernels": (lambda data: data[:-5], "it is cut off"),
    "a bit of the head": (lambda data: data[:90] + bytes([data[90] ^ 1]) + data[91:], "its digest does not fit"),
    "a length": (lambda data: data[:50] + b"\xff\xff" + data[52:], "it is cut off"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_head_is_refused(tmp_path: Path, damage: str) -> None:
    change, reason = DAMAGE[damage]
    path = tmp_path / "any"
    path.write_bytes(change(content()))
    with pytest.raises(ValueError, match=reason):
        Pack(path)


def test_any_changed_byte_of_a_pack_is_noticed(tmp_path: Path) -> None:
    """By the digest of the head, or by that of the kernel that it is in."""
    data = content(2)
    path = tmp_path / "any"
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(ValueError, match=r"no pack|cut off|digest"):  # noqa: PT012
            found = Pack(path)
            for number in range(2):
                assert found.read(spec_of(number).digest) == kernel_of(number)


def test_a_pack_that_says_something_else_of_itself_is_refused() -> None:
    for said in (b"{}", b"[]", b"nonsense", b'{"capability": 90}'):
        with pytest.raises(ValueError, match="what it says of itself"):
            pack.about_of(said)


SAID: dict[str, Any] = {
    "an infinite capability": {"capability": [float("inf"), 0]},
    "a capability that is no number": {"capability": [float("nan"), 0]},
    "a negative capability": {"capability": [-9, -3]},
    "a minor number that a name has no room for": {"capability": [9, 10]},
    "a capability of fractions": {"capability": [9.5, 0.5]},
    "a capability of booleans": {"capability": [True, False]},
    "a capability of texts": {"capability": ["9", "0"]},
    "a capability of three numbers": {"capability": [9, 0, 0]},
    "a capability of zero": {"capability": [0, 0]},
    "kernels as a text": {"kernels": "5"},
    "infinitely many kernels": {"kernels": float("inf")},
    "PTX as a number": {"ptx": 1},
    "a list as its version": {"gradkern": []},
    "sources that are no text": {"sources": None},
    "calls that are no text": {"calls": {}},
    "something else": {"more": 1},
}


@pytest.mark.parametrize("what", SAID)
def test_what_a_pack_says_of_itself_is_of_the_right_kind(folder: Path, what: str) -> None:
    said = json.dumps({**asdict(about()), **SAID[what]}).encode()
    with pytest.raises(ValueError, match="what it says of itself"):
        pack.about_of(said)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"capability": ' * 200 + b"1" + b"}" * 200])
def test_what_a_pack_says_of_itself_is_not_nested_deeply(text: bytes) -> None:
    with pytest.raises(ValueError, match="what it says of itself lacks or has too much: it is nested"):
        pack.about_of(text)


def with_stored(stored: bytes, length: int) -> bytes:
    """A pack of one kernel that is stored as these bytes and said to have so many; all digests fit."""
    said = json.dumps({**asdict(about()), "kernels": 1}).encode()
    offset = pack._START.size + len(said) + pack._RECORD.size
    key = bytes.fromhex(spec_of(0).digest)
    head = said + pack._RECORD.pack(key, hashlib.sha256(stored).digest(), offset, len(stored), length)
    return pack._START.pack(pack._MAGIC, hashlib.sha256(head).digest(), len(said), 1) + head + stored


PACKED = kernel_of(0).packed()
STREAM = zlib.compress(PACKED)
STORED: dict[str, tuple[bytes, int]] = {
    "no stream": (b"no stream of zlib's", 100),
    "nothing": (b"", 100),
    "a stream that is cut off": (STREAM[:-10], len(PACKED)),
    "a stream without its check": (STREAM[:-4], len(PACKED)),
    "a stream with a wrong check": (STREAM[:-1] + bytes([STREAM[-1] ^ 1]), len(PACKED)),
    "one byte more than is said": (STREAM, len(PACKED) - 1),
    "one byte less than is said": (STREAM, len(PACKED) + 1),
    "much more than is said": (zlib.compress(bytes(1 << 22)), 100),
    "more than a kernel has": (zlib.compress(bytes(1 << 22)), 0xFFFFFFFF),
    "no bytes": (zlib.compress(b""), 0),
    "no kernel": (zlib.compress(b"\2\0\0\0[]"), 6),
    "a header that is nested": (zlib.compress((100_000).to_bytes(4, "little") + b"[" * 100_000), 100_004),
}


@pytest.mark.parametrize("what", STORED)
def test_a_kernel_that_is_not_what_the_head_says_is_refused(folder: Path, what: str) -> None:
    """Whoever wrote the pack: the digests fit. A call goes on without it."""
    path = put(folder, with_stored(*STORED[what]))
    with pytest.raises(ValueError, match="kernel"):
        Pack(path).read(spec_of(0).digest)
    with pytest.raises(ValueError, match="kernel"):
        packs.read(path)
    with pytest.warns(RuntimeWarning, match="is not used: .*kernel"):
        assert packs.find(spec_of(0)) is None


def test_a_kernel_of_exactly_the_bytes_that_are_said_is_read(folder: Path) -> None:
    put(folder, with_stored(STREAM, len(PACKED)))
    assert packs.find(spec_of(0)) == kernel_of(0)


def test_what_a_kernel_unpacks_to_is_bounded(folder: Path) -> None:
    """512 KiB that make 512 MiB."""
    squeezed = zlib.compressobj(9)
    stored = b"".join(squeezed.compress(bytes(1 << 20)) for _ in range(512)) + squeezed.flush()
    path = put(folder, with_stored(stored, 1 << 16))
    tracemalloc.start()
    with pytest.raises(ValueError, match="has not the 65536 bytes"):
        Pack(path).read(spec_of(0).digest)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 22


# --- where packs are looked for --------------------------------------------------------------------------------------


def test_a_kernel_is_found_in_the_users_pack_first(folder: Path) -> None:
    spec = spec_of(1)
    assert packs.find(spec) is None
    packs.reset()
    put(packs.PACKAGED, pack.build(about(), {spec.digest: kernel_of(1), spec_of(2).digest: kernel_of(2)}))
    assert packs.find(spec) == kernel_of(1)
    packs.reset()
    put(folder, pack.build(about(), {spec.digest: kernel_of(9)}))
    assert packs.find(spec) == kernel_of(9)
    assert packs.find(spec_of(2)) == kernel_of(2)
    assert packs.find(spec_of(3)) is None


@pytest.mark.parametrize(
    ("made_for", "device", "serves"),
    [
        ((8, 0), (8, 0), True),
        ((8, 0), (8, 6), True),
        ((8, 0), (8, 9), True),
        ((8, 9), (8, 6), False),
        ((8, 0), (9, 0), False),
        ((8, 0), (8, 7), False),
        ((8, 7), (8, 7), True),
        ((12, 0), (12, 1), True),
    ],
)
def test_a_pack_serves_later_devices_of_its_major_number(
    folder: Path, made_for: tuple[int, int], device: tuple[int, int], serves: bool
) -> None:
    """CUDA C++ programming guide: a cubin of X.y runs on X.z for z >= y, but not between desktop and Tegra."""
    put(folder, content(capability=made_for), made_for)
    assert packs.find(spec_of(1, device)) == (kernel_of(1) if serves else None)


@pytest.mark.parametrize(
    ("device", "serves"), [((9, 0), False), ((9, 1), False), ((10, 0), True), ((11, 0), True), ((8, 9), False)]
)
def test_ptx_serves_devices_of_greater_major_numbers(folder: Path, device: tuple[int, int], serves: bool) -> None:
    """CUDA C++ programming guide: PTX of X.y runs on whatever is newer."""
    data = pack.build(about(ptx=True), {spec_of(1).on(HOPPER, ptx=True).digest: kernel_of(1)})
    put(folder, data, ptx=True)
    assert packs.find(spec_of(1, device)) == (kernel_of(1) if serves else None)


def test_machine_code_comes_before_ptx(folder: Path) -> None:
    newer = (10, 0)
    for number, made_for, ptx in ((1, HOPPER, True), (2, newer, False)):
        spec = spec_of(0).on(made_for, ptx)
        put(folder, pack.build(about(made_for, ptx=ptx), {spec.digest: kernel_of(number)}), made_for, ptx)
    assert packs.find(spec_of(0, newer)) == kernel_of(2)
    assert packs.find(spec_of(0, (12, 0))) == kernel_of(1)


def test_ptx_is_assembled_for_newer_architectures_and_names_its_kernel() -> None:
    core = pytest.importorskip("cuda.core")
    spec = KernelSpec("gradkern.search.kernels:fill", ("bfloat16",), "fill", 3, 256, 1, (8, 0), ptx=True)
    made = spec.compile()
    assert made.cubin.endswith(b"\0")
    for newer in ("sm_90", "sm_120"):
        code = core.ObjectCode.from_ptx(made.cubin[:-1])
        linked = core.Linker(code, options=core.LinkerOptions(arch=newer)).link("cubin").code
        assert bytes(linked).startswith(b"\x7fELF")
        assert b".text.fill" in bytes(linked)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_pack_is_not_used_with_one_warning(folder: Path, damage: str) -> None:
    change, reason = DAMAGE[damage]
    path = put(folder, change(content()))
    with pytest.warns(
        RuntimeWarning, match=rf"{re.escape(str(path))} is not used: {reason}.*gradkern doctor"
    ) as caught:
        assert [packs.find(spec_of(number)) for number in range(3)] == [None] * 3
    assert len(caught) == 1
    (described,) = packs.found()
    assert described.fault is not None
    assert re.search(reason, described.fault)


def test_of_a_pack_with_a_damaged_kernel_nothing_more_is_used(folder: Path) -> None:
    data = bytearray(content(1))
    data[-1] ^= 1
    put(folder, bytes(data))
    with pytest.warns(RuntimeWarning, match="the digest of kernel") as caught:
        assert packs.find(spec_of(0)) is None
    assert len(caught) == 1
    assert packs.find(spec_of(0)) is None


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"sources": "0" * 64}, "it was made from other sources, those of gradkern 1.0"),
        ({"modules": ("gradkern.ops.gone",)}, "it was made from other sources"),
    ],
)
def test_a_pack_of_other_sources_is_not_used_and_said_to_be(folder: Path, others: dict[str, Any], reason: str) -> None:
    put(folder, content(**others))
    with pytest.warns(RuntimeWarning, match=reason):
        assert packs.find(spec_of(1)) is None
    (described,) = packs.found()
    assert reason in (described.fault or "")


@pytest.mark.parametrize(("capability", "ptx"), [((8, 0), False), (HOPPER, True)])
def test_a_pack_under_another_architectures_name_is_not_used(
    folder: Path, capability: tuple[int, int], ptx: bool
) -> None:
    put(folder, content(capability=capability, ptx=ptx))
    reason = f"it is for compute capability {capability[0]}.0{', as PTX' * ptx}"
    with pytest.warns(RuntimeWarning, match=re.escape(f"{reason};")):
        assert packs.find(spec_of(1)) is None


def test_a_pack_that_others_may_write_is_not_used(folder: Path) -> None:
    put(folder, content()).chmod(0o666)
    with pytest.warns(RuntimeWarning, match="other users may write it"):
        assert packs.find(spec_of(1)) is None


def test_a_pack_of_the_package_is_trusted_as_its_code_is(folder: Path) -> None:
    put(packs.PACKAGED, content()).chmod(0o666)
    assert packs.find(spec_of(1)) == kernel_of(1)


def test_a_pack_of_the_package_of_other_sources_is_not_used_without_a_warning(folder: Path) -> None:
    """It is that of a checkout whose sources have changed since."""
    put(packs.PACKAGED, content(sources="0" * 64))
    assert packs.find(spec_of(1)) is None
    (described,) = packs.found()
    assert "other sources" in (described.fault or "")


def test_what_is_read_is_of_the_pack_that_was_opened(folder: Path) -> None:
    """A process that runs while another pack is installed sees one of the two."""
    put(folder, content())
    assert packs.find(spec_of(0)) == kernel_of(0)
    other = folder / "new"
    other.write_bytes(content(1))
    other.replace(folder / packs.name_of(HOPPER))
    assert packs.find(spec_of(4)) == kernel_of(4)


def test_without_packs_nothing_is_found_and_nothing_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.rmdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert packs.find(spec_of(1)) is None
        put(folder, content())
        monkeypatch.setattr(packs, "_disabled", True)
        packs.reset()
        assert packs.find(spec_of(1)) is None


# --- precedence ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constants:
    name: str = "gradkern_kernel"
    threads: int = 64
    blocks_per_processor: int = 2
    shared_bytes: int = 0


def loaded(monkeypatch: pytest.MonkeyPatch, device: Device) -> bytes:
    """The machine code that a first call would load."""
    monkeypatch.setattr(launches, "_loaded", {})
    monkeypatch.setattr(launches, "activate", nullcontext)
    monkeypatch.setattr(launches, "Kernel", lambda made, *_: made.cubin)
    code: Any = launches.kernel_of_config(device, BUILDER, Constants(), arguments=4)
    return code


def test_a_pack_comes_before_the_cache_and_the_cache_before_compiling(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the same bits run whether the cache is empty or not."""
    device = Device(0, HOPPER, 132, 232448)
    spec = KernelSpec(BUILDER, (Constants(),), "gradkern_kernel", 4, 64, 2, HOPPER)
    built: list[KernelSpec] = []

    def compiled(each: KernelSpec) -> Compiled:
        built.append(each)
        return Compiled(b"compiled", 1, 0)

    monkeypatch.setattr(KernelSpec, "compile", compiled)
    assert loaded(monkeypatch, device) == b"compiled"
    cache.keep(cache.key_of(spec.module, spec.description, HOPPER), Compiled(b"kept", 1, 0))
    assert loaded(monkeypatch, device) == b"kept"
    put(folder, pack.build(about(), {spec.digest: Compiled(b"packed", 1, 0)}))
    packs.reset()
    assert loaded(monkeypatch, device) == b"packed"
    (folder.parent / "cuda" / f"{cache.key_of(spec.module, spec.description, HOPPER)}.cubin").unlink()
    assert loaded(monkeypatch, device) == b"packed"
    assert built == [spec]


def test_a_specs_digest_tells_apart_all_but_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(0)
    others = [
        replace(spec, constants=("type 1",)),
        replace(spec, name="other"),
        replace(spec, arguments=5),
        replace(spec, threads=32),
        replace(spec, blocks_per_processor=2),
        spec.on((8, 0)),
        spec.on(HOPPER, ptx=True),
        replace(spec, builder="gradkern.search.kernels:fill"),
        replace(spec, builder="gradkern.ops.conv.cuda.gemm.im2col_kernel:build"),
    ]
    assert len({each.digest for each in (spec, *others)}) == len(others) + 1
    before = spec.digest, cache.key_of(spec.module, spec.description, HOPPER)
    monkeypatch.setattr(cache, "versions", lambda: ("another compiler 1.0",))
    assert spec.digest == before[0]
    assert cache.key_of(spec.module, spec.description, HOPPER) != before[1]

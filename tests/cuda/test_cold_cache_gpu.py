"""The bits of a result are those of its kernel, whether its process found everything in the cache or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.checkout import ROOT

pytestmark = pytest.mark.gpu

CODE = """
import hashlib, json, sys
import numpy as np
import gradkern

provider, pins = sys.argv[1], json.loads(sys.argv[2])
random = np.random.default_rng(0)
shapes = (4, 32, 14, 14), (4, 32, 14, 14), (32, 32, 3, 3), (64, 512)
dY, X, W, norm = (random.standard_normal(shape, np.float32) for shape in shapes)
scale, mean, inv_std = np.ones(512, np.float32), norm.mean(1, keepdims=True), 1 / norm.std(1, keepdims=True)
found = {}
for name, arrays, more in (
    ("ConvGrad", (dY, X, W), {"pads": [1, 1, 1, 1], "outputs": ["dX", "dW"]}),
    ("LayerNormalizationGrad", (norm, norm, scale, mean, inv_std), {}),
):
    policy = {"search": "exhaustive", "deterministic": True, "kernel": pins.get(name)}
    plan = gradkern.prepare(name, *arrays, provider=provider, policy=policy, **more)
    outputs = gradkern.run(name, *arrays, provider=provider, policy=policy, **more)
    wanted = [np.ascontiguousarray(each) for each in outputs if each is not None]
    found[name] = plan.kernel, [hashlib.sha256(each).hexdigest() for each in wanted]
print(json.dumps(found))
"""


def kernels_and_bits(cache: Path, pins: dict[str, str], provider: str = "cuda") -> dict[str, Any]:
    """What a fresh process with this cache runs, and the digests of what it computes."""
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", CODE, provider, json.dumps(pins)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_kernel_computes_the_same_bits_with_an_empty_cache_and_a_full_one(tmp_path: Path) -> None:
    searched = kernels_and_bits(tmp_path / "cache", {})
    assert kernels_and_bits(tmp_path / "cache", {}) == searched
    pins = {name: kernel for name, (kernel, _) in searched.items()}
    assert kernels_and_bits(tmp_path / "another", pins) == searched


def test_ptx_of_a_pack_computes_what_machine_code_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose architecture no pack has takes PTX for an older one, which its driver compiles."""
    from gradkern.cuda import launch, packs
    from gradkern.cuda.build_pack import pack_of
    from gradkern.cuda.device import activate, check, driver, get_device
    from gradkern.cuda.spec import KernelSpec

    device, older = get_device(0), (7, 5)
    if device.capability < (8, 0):
        pytest.skip("kernels are compiled for no older GPU")
    spec = KernelSpec("gradkern.search.kernels:fill", ("float32",), "fill", 3, 256, 1, device.capability)
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(packs, "PACKAGED", tmp_path / "none")
    filled: list[bytes] = []
    for ptx in (False, True):
        if ptx:
            ahead = spec.on(older, ptx=True)
            path = packs.installed_path(older, ptx=True)
            path.parent.mkdir(mode=0o700)
            path.write_bytes(pack_of({ahead.digest: ahead.compile()}, [spec.module], older, ptx=True))
            path.chmod(0o600)
        packs.reset()
        assert (packs.find(spec) is not None) == ptx
        monkeypatch.setattr(launch, "_loaded", {})
        made = launch.kernel_of(device, spec.builder, "float32", name="fill", arguments=3, threads=256)
        with activate(device):
            address = check(driver.cuMemAlloc(4000), "allocating")
            launch.Launch(made, 4, 256, [0] * 3, range(3))((int(address), 1000, 7), 0)
            found = bytearray(4000)
            check(driver.cuMemcpyDtoH(found, address, 4000), "fetching")
            driver.cuMemFree(address)
        filled.append(bytes(found))
    packs.reset()
    assert filled[0] == filled[1] != bytes(4000)

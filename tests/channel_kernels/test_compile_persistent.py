"""The persistent kernel compiles for every architecture with clusters: no spill, vector accesses."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.channel_kernels.persistent_form import (
    ARGUMENTS,
    PersistentForm,
    resident_partitions,
    single_pass_partition,
)
from gradkern.cuda.device_code.columns import ITEMSIZE

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SHARED = {(9, 0): 232448, (10, 0): 232448, (12, 0): 101376}
ALL = frozenset({"dX", "scale_sum", "bias_sum"})
KINDS = [  # types; images, channels, elements of a plane
    ((b, b, f), (64, 256, 3136)),
    ((h, f, f), (32, 512, 784)),
    ((h, h, h), (64, 512, 196)),  # four elements a vector
    ((b, b, b), (64, 2048, 49)),  # single elements
    ((f, f, f), (32, 256, 3136)),
    ((d, d, d), (32, 512, 784)),
]
Made = tuple[PersistentForm, int, str]  # form, bytes spilled, PTX


def compiled(job: tuple[Any, tuple[int, int]]) -> list[Made]:
    from gradkern.channel_kernels.persistent_kernel import build
    from gradkern.cuda.compile import compile_kernel

    (types, sizes), capability = job
    most = 16 if capability[0] < 12 else 8
    forms = [
        form
        for form, _ in resident_partitions(PersistentForm(*types, ALL, None, True, SHARED[capability]), sizes, most)
    ]
    found = single_pass_partition(PersistentForm(*types, ALL, 1e-5, False, SHARED[capability]), sizes, most, 132)
    forms += [found[0]] if found else []
    made = []
    for form in forms:
        result = compile_kernel(build(form), len(ARGUMENTS), capability, form.threads)
        made.append((form, result.spilled, result.ptx))
    return made


@pytest.fixture(scope="module")
def everything() -> dict[Any, list[Made]]:
    jobs = [(kind, each) for each in SHARED for kind in (KINDS if each == (9, 0) else KINDS[::2])]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(jobs, pool.map(compiled, jobs), strict=True))


def test_every_kind_has_a_form_where_memory_suffices(everything: dict[Any, list[Made]]) -> None:
    assert all(made for (_, capability), made in everything.items() if capability[0] < 12)


def test_no_kernel_spills_registers(everything: dict[Any, list[Made]]) -> None:
    assert not {job: made for job, made in everything.items() if any(spilled for _, spilled, _ in made)}


def test_every_kernel_has_the_accesses_it_means(everything: dict[Any, list[Made]]) -> None:
    for made in everything.values():
        for form, _, ptx in made:
            assert ptx.count("cp.async.bulk.shared::cluster.global") == form.parts
            assert ("st.async" in ptx) == (form.slices > 1)
            if form.width * ITEMSIZE[form.data] == 16:
                assert ptx.count("ld.shared.v4.b32") >= (4 if form.centred else 2)
                assert ptx.count("st.global.v4.b32") == 1

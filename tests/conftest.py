"""What every test shares: options, where tests are skipped or left out, hypothesis profiles, seeded random numbers."""

from __future__ import annotations

import gc
import os
import signal
import sys
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import hypothesis
import numpy as np
import pytest
from helpers.calls import FakeProvider

import gradkern
from gradkern.system.providers import unavailable

pytest_plugins = ["helpers.simulator"]

hypothesis.settings.register_profile("dev", max_examples=30, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=60, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("long", max_examples=2000, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torch", action="store_true", help="run the tests that need PyTorch")
    parser.addoption("--by-python", action="store_true", help="let Python answer the calls that enable() takes over")
    parser.addoption("--models", action="store_true", help="run the tests of models that torchvision and others make")
    parser.addoption("--quick", action="store_true", help="leave out the tests that compile, simulate or take seconds")
    parser.addoption("--every-kernel", action="store_true", help="run every case of those where some stand for all")
    parser.addoption("--long", action="store_true", help="run slow tests, and many more examples of each property")


def pytest_configure(config: pytest.Config) -> None:
    profile = "long" if config.getoption("--long") else "ci" if os.environ.get("CI") == "true" else "dev"
    hypothesis.settings.load_profile(profile)
    # Inductor's loops for the CPU stay scalar: it tries the compiler on every kind of vectors first, and parses more
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so begin the background jobs of a shell's script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cache = getattr(config, "cache", None)
    if cache is not None:  # compiled kernels are kept between runs, apart from the user's own
        os.environ.setdefault("GRADKERN_CACHE_DIR", str(cache.mkdir("gradkern")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The one place where markers become skips, and an order. What --every-kernel and --long add is left out without
    a word for each, and of a test that is skipped the first case stands for all: they are thousands, and a skip takes
    longer than many a test.
    """
    left_out = {
        "thorough": config.getoption("--quick"),
        "every_kernel": not (config.getoption("--every-kernel") or config.getoption("--long")),
        "slow": not config.getoption("--long"),
    }
    added = [marker for marker, without in left_out.items() if without]
    deselected, kept = [], []
    for item in items:
        (deselected if any(map(item.get_closest_marker, added)) else kept).append(item)
    if left_out["every_kernel"]:
        stood_for = _stood_for(kept)
        deselected += stood_for
        kept = [item for item in kept if item not in stood_for]
    reasons = {
        "torch": None if config.getoption("--torch") else "needs PyTorch: pytest --torch",
        "models": _missing("torchvision", "timm", "transformers") if config.getoption("--models") else "needs --models",
        "trainers": _missing("transformers", "accelerate", "lightning")
        if config.getoption("--models")
        else "needs --models",
        "gpu": unavailable("cuda") if any(item.get_closest_marker("gpu") for item in kept) else None,
    }
    without = {marker: reason for marker, reason in reasons.items() if reason is not None}
    skipped: dict[tuple[str, str], list[pytest.Item]] = {}  # cases of a test
    items.clear()
    for item in kept:
        reason = next((reason for marker, reason in without.items() if item.get_closest_marker(marker)), None)
        cases = [] if reason is None else skipped.setdefault((item.nodeid.partition("[")[0], reason), [])
        (deselected if cases else items).append(item)
        cases.append(item)
    for (_, reason), cases in skipped.items():
        text = reason if len(cases) == 1 else f"{reason} ({len(cases)} cases)"
        cases[0].add_marker(pytest.mark.skip(reason=text))
    if deselected:
        config.hook.pytest_deselected(items=deselected)
    for marker in ("thorough", "longest"):  # the long ones first: no worker ends alone
        items.sort(key=lambda item, marker=marker: not item.get_closest_marker(marker))


def _stood_for(items: list[pytest.Item]) -> set[pytest.Item]:
    """Cases of thorough tests that others stand for: the first of each test, and one in four by their names. Of those
    for a GPU all run.
    """
    tests: set[str] = set()
    found: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("thorough") and not item.get_closest_marker("gpu"):
            test = item.nodeid.partition("[")[0]
            if test in tests and zlib.crc32(item.nodeid.encode()) % 4:
                found.add(item)
            tests.add(test)
    return found


def pytest_collection_finish() -> None:
    """What there is before the first test stays to the end, so no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _missing(*packages: str) -> str | None:
    missing = [name for name in packages if find_spec(name) is None]
    return f"needs {', '.join(missing)}: pip install -e .[test-models]" if missing else None


@pytest.fixture(autouse=True)
def no_search_is_left() -> Iterator[None]:
    """What a test leaves pending, on devices that are not here, would be searched for by another's `tune`."""
    yield
    pending: Any = getattr(sys.modules.get("gradkern.dispatch.plan_cache"), "pending", None)
    for plan in pending.plans() if pending else ():
        pending.discard(plan)


@pytest.fixture
def seed_of_test(request: pytest.FixtureRequest) -> int:
    """The same in every run of a test, and another for every test."""
    return zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def rng(seed_of_test: int) -> np.random.Generator:
    """Random numbers that are the same in every run of a test, and differ between tests."""
    return np.random.default_rng(seed_of_test)


@pytest.fixture
def empty_plan_cache() -> Iterator[None]:
    """No plan is known when the test begins, and none of its own stays."""
    from gradkern import plan_cache

    plan_cache.clear()
    yield
    plan_cache.clear()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, empty_plan_cache: None) -> FakeProvider:
    """In place of every operator's CPU provider, one that computes nothing and remembers what it was asked."""
    fake = FakeProvider()
    for operator in gradkern.operators().values():
        for module in operator.providers["cpu"]:
            monkeypatch.setitem(sys.modules, f"gradkern.ops.{operator.family}.{module}", fake)
    return fake

"""Policies: checked like everything else, part of the signature, in force for a block of one thread."""

import ctypes
import threading
import weakref
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, get_type_hints

import pytest
from helpers.calls import FakeProvider, arguments, message, prepare_any

import gradkern
from gradkern import Policy, PolicyError, ProviderError
from gradkern.policy import PolicyFields, _stash, current, effective

GELU = "BiasGeluGrad_dX"
FIELDS = "search, allow_tf32, deterministic, workspace_limit, kernel"

REFUSED = [
    ({"serach": "default"}, f"policy: unknown field 'serach'; a policy has {FIELDS}"),
    (
        {"search": "fast"},
        "policy: search is 'fast'; expected one of 'exhaustive', 'heuristic', 'default', 'background'",
    ),
    ({"search": None}, "policy: search is None; expected one of 'exhaustive', 'heuristic', 'default', 'background'"),
    (
        {"search": ["default"]},
        "policy: search is ['default']; expected one of 'exhaustive', 'heuristic', 'default', 'background'",
    ),
    ({"allow_tf32": 1}, "policy: allow_tf32 is 1; expected one of True, False"),
    ({"deterministic": "yes"}, "policy: deterministic is 'yes'; expected one of True, False"),
    ({"workspace_limit": -1}, "policy: workspace_limit is -1; expected a number of bytes, 0 or more, or None"),
    ({"workspace_limit": 1.5}, "policy: workspace_limit is 1.5; expected a number of bytes, 0 or more, or None"),
    ({"workspace_limit": True}, "policy: workspace_limit is True; expected a number of bytes, 0 or more, or None"),
    ({"kernel": 7}, "policy: kernel is 7; expected a kernel's name or None"),
]


def test_fields_by_name_are_those_of_a_policy() -> None:
    assert get_type_hints(PolicyFields) == get_type_hints(Policy)


def enter(*change: Any, **fields: Any) -> None:
    with gradkern.policy(*change, **fields):
        pytest.fail("a policy that is refused came into force")


@pytest.mark.parametrize(("change", "expected"), REFUSED)
def test_a_policy_that_cannot_be_is_refused_wherever_it_is_given(
    provider: FakeProvider, change: dict[str, Any], expected: str
) -> None:
    assert message(PolicyError, gradkern.run, GELU, **arguments(GELU), policy=change) == expected
    assert message(PolicyError, gradkern.prepare, GELU, **arguments(GELU), policy=change) == expected
    assert message(PolicyError, enter, change) == expected
    assert message(PolicyError, enter, **change) == expected
    assert not provider.calls


def test_what_equals_a_value_that_was_taken_is_looked_at_by_its_own_type() -> None:
    assert effective({"workspace_limit": 1, "allow_tf32": True}) is effective(
        {"workspace_limit": 1, "allow_tf32": True}
    )
    for change in ({"workspace_limit": True, "allow_tf32": True}, {"workspace_limit": 1, "allow_tf32": 1}):
        with pytest.raises(PolicyError):
            effective(change)


def test_what_is_neither_a_policy_nor_a_mapping_is_refused(provider: FakeProvider) -> None:
    expected = "policy: expected a gradkern.Policy or a mapping, got str"
    assert message(PolicyError, gradkern.run, GELU, **arguments(GELU), policy="exhaustive") == expected


@pytest.mark.parametrize(
    "given",
    [{"search": "default"}, MappingProxyType({"search": "default"}), Policy(search="default")],
    ids=["dict", "mapping", "Policy"],
)
def test_the_provider_gets_the_policy_of_the_call(provider: FakeProvider, given: Any) -> None:
    gradkern.run(GELU, **arguments(GELU), policy=given)
    assert provider.calls[0].policy == Policy(search="default")


def test_another_policy_is_another_plan(provider: FakeProvider) -> None:
    changes = [{}, {"search": "default"}, {"allow_tf32": False}, {"deterministic": True}, {"workspace_limit": 0}]
    for change in [*changes, {"kernel": "fake"}] * 2:
        gradkern.run(GELU, **arguments(GELU), policy=change)
    assert len(provider.calls) == 6


def test_the_policy_of_a_block_holds_in_it_and_ends_with_it() -> None:
    with gradkern.policy(deterministic=True) as outer:
        assert outer == current() == Policy(deterministic=True)
        with gradkern.policy({"search": "heuristic"}, allow_tf32=False):
            assert current() == Policy(search="heuristic", allow_tf32=False, deterministic=True)
        with gradkern.policy(Policy(search="default")):
            assert current() == Policy(search="default")
        assert current() is outer
    assert current() == Policy()


def test_the_policy_of_a_block_ends_also_with_an_error() -> None:
    with pytest.raises(KeyError), gradkern.policy(deterministic=True):
        raise KeyError
    assert current() == Policy()


def test_a_call_changes_what_it_names_and_keeps_the_rest_of_the_block(provider: FakeProvider) -> None:
    with gradkern.policy(deterministic=True):
        gradkern.run(GELU, **arguments(GELU), policy={"search": "default"})
        gradkern.run(GELU, **arguments(GELU), policy=Policy(search="default"))
    assert [call.policy for call in provider.calls] == [
        Policy(search="default", deterministic=True),
        Policy(search="default"),
    ]


def test_the_policy_of_a_block_is_that_of_its_own_thread(provider: FakeProvider) -> None:
    entered, left = threading.Event(), threading.Event()
    seen: dict[str, Policy] = {}

    def inside() -> None:
        with gradkern.policy(deterministic=True):
            entered.set()
            assert left.wait(10)
            seen["inside"] = current()

    def beside() -> None:
        assert entered.wait(10)
        seen["beside"] = current()
        left.set()

    in_threads(inside, beside)
    assert seen == {"inside": Policy(deterministic=True), "beside": Policy()}


def in_threads(*functions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_policy_is_frozen() -> None:
    with pytest.raises(AttributeError):
        setattr(Policy(), "search", "default")  # noqa: B010  type checkers know that it is frozen


@pytest.mark.parametrize("name", ["BiasGeluGrad_dX", "BatchNormalizationGrad", "LayerNormalizationGrad"])
def test_a_kernel_that_is_not_there_is_refused_by_every_operator(name: str) -> None:
    inputs = arguments(name)
    own = prepare_any(name, **inputs).kernel
    assert prepare_any(name, **inputs, policy={"kernel": own}).kernel == own
    text = f"{name}: provider 'cpu' cannot take the call: cpu: has no kernel 'warp' for this call; it has '{own}'"
    assert message(ProviderError, gradkern.run, name, **inputs, policy={"kernel": "warp"}) == text


# A prototype of its own: numba-cuda gives ctypes.pythonapi.Py_DecRef argument types with which it takes no address.
let_go = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))


class Forgetful:
    """Thread-local state that takes the caller's reference to what it keeps, and lets go of it with the next."""

    def __init__(self) -> None:
        self._kept: int | None = None

    def _stash_obj_in_tls(self, key: str, value: object) -> None:
        if self._kept is not None:
            let_go(self._kept)
        self._kept = id(value)


def test_what_is_put_among_pytorchs_state_stays_where_pytorch_does_not_count_it() -> None:
    class Value:
        pass

    state, value = Forgetful(), Value()
    watched = weakref.ref(value)
    _stash(state, value)
    del value
    assert watched() is not None
    _stash(state, None)
    assert watched() is None

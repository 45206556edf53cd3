"""Contracts, plans, what they are made of and what they raise go through pickle: to other processes, and to files."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.calls import OPERATORS, arguments, prepare_any

import gradkern

GELU = "BiasGeluGrad_dX"


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_contract_is_the_same_after_pickling(name: str) -> None:
    found = again(OPERATORS[name])
    assert found == OPERATORS[name]
    with pytest.raises(TypeError):
        found.types["T"] = "other"


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_plan_is_made_again_where_it_is_unpickled(name: str, empty_plan_cache: None) -> None:
    given = arguments(name)
    fixed = OPERATORS[name].attributes  # a number on the host, given as the attribute of its name
    arrays = [each.name for each in OPERATORS[name].inputs if each.name in given and each.name not in fixed]
    inputs = {each: given[each] for each in arrays}
    plan = prepare_any(name, **given, policy={"search": "default"})
    for found in (again(plan), copy.deepcopy(plan)):
        assert found is not plan
        assert (found.call, found.kernel, repr(found)) == (plan.call, plan.kernel, repr(plan))
        for one, other in zip(found(**inputs), plan(**inputs), strict=True):
            np.testing.assert_array_equal(one, other)
    assert again(plan(**inputs))._fields == plan(**inputs)._fields


def test_a_plan_keeps_its_out_arrays_and_what_it_writes_in_place(empty_plan_cache: None) -> None:
    given = arguments(GELU)
    for out in ({"dX": np.empty_like(given["X"])}, {"dX": given["X"]}):
        found = again(prepare_any(GELU, **given, out=out, outputs=["dX", "dB"]))
        assert found(**given, out=out).dX is out["dX"]
        with pytest.raises(gradkern.ArgumentError):
            found(**given)


def test_a_plan_goes_to_another_process(tmp_path: Path, empty_plan_cache: None) -> None:
    given = arguments(GELU)
    file = tmp_path / "plan.pickle"
    file.write_bytes(pickle.dumps((gradkern.prepare(GELU, **given), given)))
    code = (
        "import pickle, sys; plan, given = pickle.load(open(sys.argv[1], 'rb')); result = plan(**given); "
        "pickle.dump(result, open(sys.argv[1], 'wb'))"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    result = pickle.loads(file.read_bytes())
    np.testing.assert_array_equal(result.dX, gradkern.run(GELU, **given).dX)
    assert type(result) is type(gradkern.run(GELU, **given))


def test_policies_statistics_and_errors_are_the_same_after_pickling() -> None:
    policy = gradkern.Policy(deterministic=True)
    assert again(policy) == policy
    statistics = gradkern.plan_cache.statistics()
    assert again(statistics) == statistics
    error = again(gradkern.ShapeError("GELU: input X has shape (1,)"))
    assert (type(error), str(error)) == (gradkern.ShapeError, "GELU: input X has shape (1,)")

"""Whatever a caller passes, in whatever place, a call is computed or refused with a GradkernError."""

import contextlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.calls import OPERATORS, FakeProvider, arguments, run_any
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gradkern

pytestmark = pytest.mark.thorough

any_provider = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = st.sampled_from(["f4", "f8", "f2", ">f4", "i4", "?", "c8", "S3", "O", "M8[s]", "f4,i4"]).map(np.dtype)
objects = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=3)
    | st.sampled_from(["float16", "bfloat16", "SAME_UPPER", "dX", "X_grad", "cpu", np.float32, ml_dtypes.bfloat16])
    | arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), fill=st.nothing())
    | st.sampled_from([np.float32(1), np.int64(-1), np.str_("dX"), object(), type, len, slice(3), 1j, np.array(None)])
)
values = st.recursive(
    objects,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["dX", "X_grad", "dW", "search", "kernel"]) | st.integers(), inner, max_size=2
        )
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(st.integers(0, 3) | st.text(max_size=2), max_size=3)
    ),
    max_leaves=6,
)
PLACES = ("outputs", "out", "provider", "stream", "policy", "domain", "version", "op")


@any_provider
@given(st.sampled_from(sorted(OPERATORS)), st.data())
def test_junk_in_any_place_is_refused_with_an_error_of_gradkern(
    provider: FakeProvider, name: str, data: st.DataObject
) -> None:
    operator = OPERATORS[name]
    places = [*PLACES, *operator.attributes, *(each.name for each in operator.inputs), "junk"]
    call: dict[str, Any] = {"op": name, **arguments(name)}
    call.update(data.draw(st.dictionaries(st.sampled_from(places), values, min_size=1, max_size=2)))
    for function in (gradkern.run, gradkern.prepare, gradkern.run):
        with contextlib.suppress(gradkern.GradkernError):
            function(**call)


@any_provider
@given(st.sampled_from(sorted(OPERATORS)), st.data())
def test_arrays_of_any_type_and_shape_are_refused_with_an_error_of_gradkern(
    provider: FakeProvider, name: str, data: st.DataObject
) -> None:
    shapes = arrays.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=3)
    dtypes = st.sampled_from(["f4", "f4", "f4", "f2", "f8"])
    inputs = [data.draw(st.builds(np.zeros, shapes, dtypes)) for _ in OPERATORS[name].inputs]
    contract = OPERATORS[name]
    required = {key: contract.examples[0].attributes[key] for key, each in contract.attributes.items() if each.required}
    with contextlib.suppress(gradkern.GradkernError):
        run_any(name, *inputs, **required)

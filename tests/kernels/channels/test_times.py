"""The coefficients of the cost models."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest

from gradkern.kernels.channels.times import DATA, ChannelsLastTimes, SinglePassTimes, name_of, times


@pytest.mark.parametrize("kind", [ChannelsLastTimes, SinglePassTimes])
def test_every_architecture_has_all_coefficients_and_says_what_was_measured(kind: type) -> None:
    for major, found in json.loads(DATA.read_text())[name_of(kind)].items():
        assert found["coefficients"].keys() == {each.name for each in fields(kind)}
        assert all(value > 0 for value in asdict(times(kind, int(major))).values())
        assert found["measured"]


def test_an_architecture_that_nobody_measured_takes_the_nearest() -> None:
    assert times(ChannelsLastTimes, 12) == times(ChannelsLastTimes, 9)

"""A jury of several outputs: a result is believed only where all of them are right."""

from __future__ import annotations

from helpers.fake_candidates import FakeCandidate

from gradkern.search.crosscheck import Difference, Jury


class Outputs:
    """Shows results of two outputs, both 1 where they are right; float64 tells of each."""

    def __init__(self) -> None:
        self.now = (0.0, 0.0)
        self.kept: list[tuple[float, float]] = []

    def whole(self) -> bool:
        return True

    def keep(self) -> int:
        self.kept.append(self.now)
        return len(self.kept) - 1

    def compare(self, kept: int) -> tuple[Difference, ...]:
        apart = [abs(a - b) for a, b in zip(self.now, self.kept[kept], strict=True)]
        return tuple(Difference(each, each) for each in apart)

    def errors(self, kept: int) -> tuple[float, ...] | None:
        return tuple(abs(each - 1) for each in self.kept[kept])


def heard(**results: tuple[float, float]) -> Jury:
    outputs = Outputs()
    jury = Jury(outputs, ("float16", "float32"), 100)
    for name, result in results.items():
        outputs.now = result
        jury.hear(FakeCandidate(name))
    return jury


def test_the_second_output_counts_as_the_first_does() -> None:
    jury = heard(wrong=(1, 1.001), too=(1, 1.001), right=(1, 1))
    assert jury.believed == {"right"}
    assert {name: verdict.reason for name, verdict in jury.verdicts().items()} == dict.fromkeys(
        ("wrong", "too"), "its result is 1.0e-03 away from float64"
    )


def test_each_output_has_the_bound_of_its_type() -> None:
    """2e-4 is within that of float16, and not within that of float32."""
    assert heard(first=(1.0002, 1), second=(1, 1.0002), right=(0.9998, 1)).believed == {"first", "right"}


def test_the_nearest_is_that_whose_worst_output_is() -> None:
    assert heard(far=(1, 1.004), near=(1.002, 1.00001)).believed == {"near"}

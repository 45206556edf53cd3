"""Results of several outputs: one is accepted only where all of them are right."""

from __future__ import annotations

from helpers.fake_candidates import FakeCandidate

from gradkern.search.crosscheck import CrossCheck, Difference


class Outputs:
    """Shows results of two outputs, both 1 where they are right; float64 tells of each."""

    def __init__(self) -> None:
        self.now = (0.0, 0.0)
        self.copies: list[tuple[float, float]] = []

    def complete(self) -> bool:
        return True

    def copy(self) -> int:
        self.copies.append(self.now)
        return len(self.copies) - 1

    def compare(self, copy: int) -> tuple[Difference, ...]:
        apart = [abs(a - b) for a, b in zip(self.now, self.copies[copy], strict=True)]
        return tuple(Difference(each, each) for each in apart)

    def errors(self, copy: int) -> tuple[float, ...] | None:
        return tuple(abs(each - 1) for each in self.copies[copy])


def crosschecked(**results: tuple[float, float]) -> CrossCheck:
    outputs = Outputs()
    check = CrossCheck(outputs, ("float16", "float32"), 100)
    for name, result in results.items():
        outputs.now = result
        check.add(FakeCandidate(name))
    return check


def test_the_second_output_counts_as_the_first_does() -> None:
    check = crosschecked(wrong=(1, 1.001), too=(1, 1.001), right=(1, 1))
    assert check.accepted == {"right"}
    assert {name: rejection.reason for name, rejection in check.rejections().items()} == dict.fromkeys(
        ("wrong", "too"), "its result is 1.0e-03 away from float64"
    )


def test_each_output_has_the_bound_of_its_type() -> None:
    """2e-4 is within that of float16, and not within that of float32."""
    assert crosschecked(first=(1.0002, 1), second=(1, 1.0002), right=(0.9998, 1)).accepted == {"first", "right"}


def test_the_nearest_is_that_whose_worst_output_is() -> None:
    assert crosschecked(far=(1, 1.004), near=(1.002, 1.00001)).accepted == {"near"}


class Exact(Outputs):
    """One output whose error is the result's distance from 1."""

    def compare(self, copy: int) -> tuple[Difference, ...]:
        return super().compare(copy)[:1]

    def errors(self, copy: int) -> tuple[float, ...] | None:
        return (abs(self.copies[copy][0] - 1),)


def test_tf32_is_judged_by_its_own_bound_whoever_came_first() -> None:
    """Long sums in float32 may be less exact than float32 promises, and TF32's as near to them as it has to be."""

    def accepted(**results: tuple[float, bool]) -> set[str]:
        outputs = Exact()
        check = CrossCheck(outputs, ("float32",), 100)
        for name, (result, tf32) in results.items():
            outputs.now = result, result
            check.add(FakeCandidate(name, notes=frozenset({"tf32"} if tf32 else ())))
        return set(check.accepted)

    rough, exact, tf32 = (1.00002, False), (1.0, False), (1.0003, True)
    assert accepted(rough=rough, exact=exact) == {"exact"}
    assert accepted(rough=rough, tf32=tf32, exact=exact) == {"rough", "tf32", "exact"}
    assert accepted(exact=exact, tf32=tf32) == {"exact", "tf32"}
    assert accepted(exact=exact, wrong=(1.003, True)) == {"exact"}

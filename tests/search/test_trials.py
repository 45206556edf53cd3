"""The trials find the fastest of the right ones, wastes no time on the slow, and say what became of each."""

import pytest
from helpers.fake_candidates import UNWRITTEN, FakeBench, FakeCandidate, FakeSource, task

from gradkern.call import Refusal
from gradkern.errors import ProviderError
from gradkern.policy import Policy
from gradkern.search.candidate import Limits
from gradkern.search.trials import Trials, joined_reasons


def tried(*sources, policy=Policy("exhaustive"), workspace=100, seconds=3.0, reference=None):  # noqa: B008  frozen
    bench = FakeBench(reference=reference)
    made = Trials(task(*sources), policy, Limits(workspace, seconds), bench, clock=bench.clock)
    made.run()
    return made, bench


def names(rows):
    return [row.name for row in rows]


def reasons(made):
    return {row.name: row.reason for row in made.rejected}


def test_the_ranking_is_by_time():
    a, b, c = FakeCandidate("a", 3e-3), FakeCandidate("b", 1e-3), FakeCandidate("c", 2e-3)
    made, _ = tried((a, b, c))
    assert names(made.ranking) == ["b", "c", "a"]
    assert [row.seconds for row in made.ranking] == [1e-3, 2e-3, 3e-3]
    assert made.confirmed


def test_a_fault_of_the_device_ends_the_search_with_the_name_of_who_made_it():
    candidates = FakeCandidate("a"), FakeCandidate("bad", fault="misaligned address"), FakeCandidate("c")
    text = "a gradient: .*fault of bad, after which this process cannot use the device: misaligned address; in a new"
    with pytest.raises(ProviderError, match=text):
        tried(candidates)


def test_sources_take_turns():
    first, second = (FakeCandidate("a1"), FakeCandidate("a2"), FakeCandidate("a3")), (FakeCandidate("b1"),)
    assert tried(first, second)[1].order == ["a1", "b1", "a2", "a3"]


def test_a_slow_one_runs_once_and_those_of_its_origin_run_last_or_not_at_all():
    quick = tuple(FakeCandidate(f"quick{each}", 1e-3) for each in range(3))
    slow = FakeCandidate("slow", 1.0, "snail"), FakeCandidate("slow too", 1.0, "snail")
    made, bench = tried((quick[0], *slow, *quick[1:]))
    assert bench.order == ["quick0", "slow", "quick1", "quick2"]
    assert slow[0].runs == 1
    assert reasons(made) == {"slow too": "skipped: a variant of the same engine was far slower than the best"}
    assert names(made.ranking)[-1] == "slow"


@pytest.mark.parametrize("loading", [0.03, 0.3])
def test_what_is_loaded_in_a_first_run_is_not_slow(loading):
    ready, loaded = FakeCandidate("a", 1e-4), FakeCandidate("b", 5e-5, loading=loading)
    made, _ = tried((ready, loaded, FakeCandidate("c", 4e-5, "b")))
    assert names(made.ranking) == ["c", "b", "a"]


def test_what_was_slow_for_one_problem_is_not_tried_for_the_next_of_its_kind_where_it_takes_long():
    def candidates(factor):
        return tuple(
            FakeCandidate(name, factor * each, name) for name, each in (("slow", 0.05), ("a", 1e-3), ("b", 1e-3))
        )

    for _ in range(2):
        assert tried(candidates(1))[1].order == ["slow", "a", "b"]
    made, bench = tried(candidates(1))
    assert bench.order == ["a", "b"]
    assert reasons(made) == {"slow": "skipped: a variant of the same engine was far slower than the best"}
    assert tried(candidates(1e-3))[1].order == ["a", "b", "slow"]


def test_the_first_of_a_source_is_tried_however_slow_its_like_were():
    """As a result that is independent of the others'."""

    def sources():
        return (FakeCandidate("slow", 0.05, "x"), FakeCandidate("slow too", 0.05, "x")), (
            FakeCandidate("a"),
            FakeCandidate("b"),
        )

    for _ in range(2):
        tried(*sources())
    made, bench = tried(*sources())
    assert bench.order == ["a", "b", "slow"]
    assert set(reasons(made)) == {"slow too"}


def test_the_budget_ends_the_search_and_what_was_not_reached_is_named():
    candidates = tuple(FakeCandidate(str(each), 0.1) for each in range(100))
    made, bench = tried(candidates, seconds=3.0)
    assert bench.now < 5  # the candidate in flight, and the finals
    assert len(made.ranking) == 14
    assert set(reasons(made).values()) == {"the search had no time left for it"}
    assert len(made.ranking) + len(made.rejected) == 100


def test_what_is_compiled_once_and_for_all_takes_no_time_from_the_others():
    bench = FakeBench()
    kernel = FakeCandidate("kernel", 2e-3, notes=frozenset({"compiles_once"}), compiling=4.0, bench=bench)
    made = Trials(
        task((kernel, FakeCandidate("a"), FakeCandidate("b"))),
        Policy("exhaustive"),
        Limits(100),
        bench,
        clock=bench.clock,
    )
    made.run()
    assert bench.order == ["kernel", "a", "b"]
    assert reasons(made) == {}


# --- candidates that compile at every preparation --------------------------------------------------------------------


def compiling(bench, *seconds, origin="jit", takes=0.6):
    notes = frozenset({"compiles"})
    return tuple(
        FakeCandidate(f"{origin}{number}", each, origin, notes=notes, compiling=takes, bench=bench)
        for number, each in enumerate(seconds)
    )


def searched(*slow, variants=(), takes=0.6):
    """A search among what compiles and two others of a millisecond; and the candidates that ran."""
    bench = FakeBench()
    candidates = (*compiling(bench, *slow, takes=takes), FakeCandidate("a", variants=variants), FakeCandidate("b"))
    made = Trials(task(candidates), Policy("exhaustive"), Limits(100), bench, clock=bench.clock)
    made.run()
    return made, bench.order


def test_what_compiles_comes_after_everything_else():
    made, order = searched(2e-3, variants=(FakeCandidate("varied", 9e-4, "a"),))
    assert order == ["a", "b", "varied", "jit0"]
    assert made.ranking[-1].name == "jit0"


@pytest.mark.parametrize(("seconds", "first"), [(9.9e-4, "a"), (9e-4, "jit0")])
def test_what_compiles_in_every_process_wins_by_more_than_a_hair(seconds, first):
    made, _ = searched(seconds)
    assert made.ranking[0].name == first
    assert {row.name: row.seconds for row in made.ranking}["jit0"] == seconds


def test_few_that_compile_are_tried_in_one_search():
    made, order = searched(*[9e-4] * 5)
    assert order == ["a", "b", "jit0", "jit1"]
    assert reasons(made) == dict.fromkeys(("jit2", "jit3", "jit4"), "the search had no time left for it")


@pytest.mark.parametrize(("seconds", "again"), [(9.9e-4, False), (9e-4, True)])
def test_what_compiles_is_tried_again_for_problems_of_the_kind_where_two_of_its_like_have_gained(seconds, again):
    searched(seconds, seconds)
    made, order = searched(seconds)
    assert order == ["a", "b"] + ["jit0"] * again
    skipped = {"jit0": "skipped: it compiles, as slower variants of the same engine do"}
    assert reasons(made) == ({} if again else skipped)


def test_what_compiles_is_tried_for_as_long_as_nothing_else_confirms_the_result():
    searched(2e-3, 2e-3)
    bench = FakeBench()
    made = Trials(
        task((FakeCandidate("a"), *compiling(bench, 2e-3))), Policy("exhaustive"), Limits(100), bench, clock=bench.clock
    )
    made.run()
    assert bench.order == ["a", "jit0"]
    assert made.confirmed


def test_beyond_the_budget_only_a_second_origin_is_looked_for():
    candidates = FakeCandidate("a", 2.0, "one"), FakeCandidate("b", 2.0, "one"), FakeCandidate("c", 2.0, "two")
    made, bench = tried(candidates, seconds=3.0)
    assert bench.order == ["a", "c"]
    assert made.confirmed


def test_the_fastest_are_timed_again_in_turns():
    near, far = FakeCandidate("near", 1.1e-3), FakeCandidate("far", 2e-3)
    made, bench = tried((FakeCandidate("best"), near, far))
    assert names(made.ranking) == ["best", "near", "far"]
    assert bench.timed[-40:] == ["best", "near"] * 20
    assert (near.runs, far.runs) == (3 + 20, 3)


def test_variations_of_the_winner_join_while_there_is_time():
    better, unfit = FakeCandidate("better", 0.5e-3, "x"), FakeCandidate("unfit", origin="x", unfit="no such knob")
    winner = FakeCandidate("winner", 1e-3, "x", variants=(unfit, better))
    made, _ = tried((winner, FakeCandidate("other", 5e-3)))
    assert names(made.ranking) == ["better", "winner", "other"]
    assert reasons(made) == {"unfit": "no such knob"}


def test_variations_end_when_many_in_a_row_bring_no_gain():
    variants = tuple(FakeCandidate(f"v{each}", 1.1e-3, "x") for each in range(200))
    _, bench = tried((FakeCandidate("winner", 1e-3, "x", variants=variants), FakeCandidate("b")))
    assert len(bench.order) == 2 + 40


def test_a_candidate_that_two_sources_propose_runs_once():
    made, bench = tried((FakeCandidate("a"), FakeCandidate("b")), (FakeCandidate("a"),))
    assert bench.order == ["a", "b"]
    assert len(made.ranking) == 2


# --- what the policy forbids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("note", "policy", "reason"),
    [
        ("reduced_precision", Policy("exhaustive"), "it adds up in less than float32"),
        ("tf32", Policy("exhaustive", allow_tf32=False), "it multiplies in TF32, and the policy does not allow it"),
        (
            "nondeterministic",
            Policy("exhaustive", deterministic=True),
            "its bits may differ from run to run, and the policy is deterministic",
        ),
    ],
)
def test_notes_that_the_policy_forbids_never_run(note, policy, reason):
    forbidden = FakeCandidate("forbidden", 1e-6, notes=frozenset({note}))
    made, bench = tried((forbidden, FakeCandidate("a"), FakeCandidate("b")), policy=policy)
    assert reasons(made) == {"forbidden": reason}
    assert bench.order == ["a", "b"]
    assert forbidden.prepared == 0


@pytest.mark.parametrize("note", ["tf32", "nondeterministic", "compiles", "compiles_once"])
def test_notes_that_it_permits_may_win(note):
    made, _ = tried((FakeCandidate("quick", 1e-6, notes=frozenset({note})), FakeCandidate("a"), FakeCandidate("b")))
    assert made.ranking[0].name == "quick"
    assert made.ranking[0].notes == (note,)


def test_a_workspace_beyond_the_limit_is_refused():
    made, _ = tried((FakeCandidate("large", workspace=101), FakeCandidate("fits", workspace=100), FakeCandidate("b")))
    assert reasons(made) == {"large": "it needs a workspace of 101 bytes; 100 are allowed"}
    assert {row.name: row.workspace for row in made.ranking} == {"fits": 100, "b": 0}


def test_the_heuristic_search_ends_with_the_first_that_another_origin_confirms():
    candidates = [FakeCandidate("a", 9e-3, "x"), FakeCandidate("b", 1e-3, "x"), FakeCandidate("c", 5e-3, "y")]
    made, bench = tried((*candidates, FakeCandidate("d", 1e-6)), policy=Policy(search="heuristic"))
    assert bench.order == ["a", "b", "c"]
    assert names(made.ranking) == ["a", "b", "c"]


# --- which results are accepted ---------------------------------------------------------------------------------------


def test_a_wrong_result_is_rejected_however_fast():
    wrong = FakeCandidate("wrong", 1e-6, result=1.5)
    made, _ = tried((wrong, FakeCandidate("a"), FakeCandidate("b")))
    assert names(made.ranking) == ["a", "b"]
    (row,) = made.rejected
    assert (row.name, row.wrong) == ("wrong", True)
    assert row.reason == "its result is 5.0e-01 away from the one that a and b agree on"


def test_a_result_less_accurate_than_promised_is_not_ranked_and_not_called_wrong():
    made, _ = tried((FakeCandidate("rough", 1e-6, result=1.0001), FakeCandidate("a"), FakeCandidate("b")))
    assert names(made.ranking) == ["a", "b"]
    assert [(row.name, row.wrong, row.reason) for row in made.rejected] == [
        ("rough", False, "its result is 1.0e-04 away from the one that a and b agree on")
    ]


@pytest.mark.parametrize("place", range(4))
def test_whenever_it_is_compared_how_far_away_it_is_is_known(place):
    candidates = [FakeCandidate("a"), FakeCandidate("b"), FakeCandidate("c")]
    candidates.insert(place, FakeCandidate("wrong", result=1.25))
    made, _ = tried(tuple(candidates))
    assert [(row.name, row.reason[:21]) for row in made.rejected] == [("wrong", "its result is 2.5e-01")]


def test_where_results_differ_float64_tells_which_is_right_however_many_agree():
    rough = FakeCandidate("x", 1e-4, result=1.001), FakeCandidate("y", 1e-4, result=1.001)
    made, bench = tried((*rough, FakeCandidate("exact", 1e-3)), reference=1.0)
    assert names(made.ranking) == ["exact"]
    assert made.confirmed
    assert reasons(made) == dict.fromkeys("xy", "its result is 1.0e-03 away from float64")
    assert bench.asked == [1.001, 1.0]


def test_several_results_may_be_near_enough_to_float64():
    """What is within the bound of it may be further from one another."""
    made, _ = tried(
        (FakeCandidate("low", result=1 - 4e-6), FakeCandidate("high", 5e-4, result=1 + 4e-6)), reference=1.0
    )
    assert names(made.ranking) == ["high", "low"]
    assert reasons(made) == {}


def test_where_none_is_near_enough_the_nearest_is_taken_but_nothing_wrong():
    candidates = (
        FakeCandidate("x", 1e-4, result=1.002),
        FakeCandidate("y", result=1.001),
        FakeCandidate("z", result=3.0),
    )
    made, _ = tried(candidates, reference=1.0)
    assert names(made.ranking) == ["y"]
    assert reasons(made)["z"] == "its result is 2.0e+00 away from float64"
    with pytest.raises(Refusal, match="no majority of results agrees"):
        tried((FakeCandidate("x", result=2.0), FakeCandidate("y", result=3.0)), reference=1.0)


def test_what_float64_takes_is_no_time_of_the_search():
    bench = FakeBench(reference=1.0, asking=10.0)
    candidates = FakeCandidate("a"), FakeCandidate("wrong", result=1.5), FakeCandidate("b", 1e-4)
    made = Trials(task(candidates), Policy("exhaustive"), Limits(100), bench, clock=bench.clock)
    made.run()
    assert names(made.ranking) == ["b", "a"]
    assert bench.now > 20


def test_float64_is_not_asked_where_all_agree():
    _, bench = tried((FakeCandidate("a"), FakeCandidate("b")), reference=5.0)
    assert bench.asked == []


def test_tf32_is_compared_as_tf32():
    tf32 = frozenset({"tf32"})
    near, far = FakeCandidate("near", result=1.0009, notes=tf32), FakeCandidate("far", result=1.002, notes=tf32)
    made, _ = tried((FakeCandidate("a"), near, far, FakeCandidate("b")))
    assert set(names(made.ranking)) == {"a", "near", "b"}


def test_a_wrong_one_is_not_what_others_are_measured_by():
    wrong = FakeCandidate("wrong", 1e-6, result=2.0)
    slow = FakeCandidate("slow", 0.05)
    made, _ = tried((wrong, FakeCandidate("a", 0.04), FakeCandidate("b", 0.045), slow))
    assert slow.runs > 2
    assert names(made.ranking) == ["a", "b", "slow"]


def test_unwritten_elements_are_rejected():
    made, _ = tried((FakeCandidate("a"), FakeCandidate("lazy", 1e-6, result=UNWRITTEN), FakeCandidate("b")))
    assert [(row.name, row.wrong) for row in made.rejected] == [("lazy", True)]
    assert "unwritten" in made.rejected[0].reason


def test_two_of_one_origin_are_no_majority():
    twins = FakeCandidate("twin1", 1e-6, "x", result=2.0), FakeCandidate("twin2", 1e-6, "x", result=2.0)
    made, _ = tried((*twins, FakeCandidate("a"), FakeCandidate("b")))
    assert names(made.ranking) == ["a", "b"]
    assert {row.name for row in made.rejected if row.wrong} == {"twin1", "twin2"}


def test_without_a_majority_nothing_wins_and_the_error_says_who_differs():
    with pytest.raises(Refusal, match="no majority of results agrees: a; b"):
        tried((FakeCandidate("a"), FakeCandidate("b", result=2.0)))


def test_a_majority_that_is_lost_to_what_compiles_is_none():
    late = FakeCandidate("late", 1e-4, "jit", result=5.0, notes=frozenset({"compiles"}))
    with pytest.raises(Refusal, match="no majority of results agrees: a; jit"):
        tried((FakeCandidate("a"), late))


def test_a_single_origin_wins_unconfirmed_where_there_is_no_other():
    made, _ = tried((FakeCandidate("a", 2e-3, "x"), FakeCandidate("b", 1e-3, "x"), FakeCandidate("c", unfit="no")))
    assert names(made.ranking) == ["b", "a"]
    assert not made.confirmed


def test_variations_are_cross_checked_too():
    wrong = FakeCandidate("wrong", 1e-6, "x", result=3.0)
    made, _ = tried((FakeCandidate("winner", 1e-3, "x", variants=(wrong,)), FakeCandidate("b")))
    assert names(made.ranking) == ["winner", "b"]
    assert [row.name for row in made.rejected if row.wrong] == ["wrong"]


# --- when nothing is left ---------------------------------------------------------------------------------------------


def test_no_candidate_left_is_an_error_with_every_reason_told_once():
    candidates = (
        FakeCandidate("a", unfit="too old"),
        FakeCandidate("b", unfit="too old"),
        FakeCandidate("c", workspace=7),
    )
    with pytest.raises(Refusal) as caught:
        tried(candidates, workspace=5)
    assert str(caught.value) == "a and 1 more: too old; c: it needs a workspace of 7 bytes; 5 are allowed"


def test_a_source_that_cannot_be_loaded_is_left_out():
    class Missing(FakeSource):
        def candidates(self):
            raise ImportError("no module named cudnn")

    made, _ = tried(Missing("cudnn", ()), (FakeCandidate("a"), FakeCandidate("b")))
    assert names(made.ranking) == ["a", "b"]
    assert reasons(made) == {"cudnn": "cannot be loaded: no module named cudnn"}


def test_reasons_are_told_once():
    assert joined_reasons({}) == "there is no candidate"
    assert joined_reasons({"a": "x", "b": "y", "c": "x"}) == "a and 1 more: x; b: y"

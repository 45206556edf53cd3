"""A search is made once and kept, found again by every process that asks the same, and made again where it must be."""

import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest
from helpers.fake_candidates import DEVICE, FakeBench, FakeCandidate, FakeSource, task

from gradkern.call import Refusal
from gradkern.cuda.device import OutOfMemoryError
from gradkern.policy import Policy
from gradkern.search import history, store
from gradkern.search import tuner as choosing
from gradkern.search.tuner import choose, stored

POLICY = Policy("exhaustive", workspace_limit=1000)


class Opened(list):
    """Opens benches, and remembers them."""

    def __call__(self, task, device):
        self.append(FakeBench())
        return self[-1]


@pytest.fixture
def benches():
    return Opened()


@pytest.fixture
def look(benches):
    def chosen(asked, policy=POLICY, pin=None, **more):
        return choose(asked, policy, DEVICE, pin, open_bench=more.pop("open_bench", benches), **more)

    return chosen


def refuse(*_):
    raise AssertionError("searched again")


A, B = FakeCandidate("a", 2e-3), FakeCandidate("b", 1e-3, workspace=500)


def test_the_winner_is_chosen_and_the_bench_closed(look, benches):
    choice = look(task((A, B)))
    assert choice.candidate is B
    assert [row.name for row in choice.result.ranking] == ["b", "a"]
    assert [bench.closed for bench in benches] == [True]


def test_a_stored_search_is_not_made_again(look):
    first = look(task((A, B)))
    again = look(task((A, B)), open_bench=refuse)
    assert again.candidate is B
    assert again.result == first.result
    assert stored(task((A, B)), POLICY, DEVICE) == first.result


@pytest.mark.parametrize(
    "change",
    [
        {"asked": task((A, B), key="another problem")},
        {"asked": task(FakeSource("source0", (A, B), "2"))},
        {"policy": replace(POLICY, search="heuristic")},
        {"policy": replace(POLICY, allow_tf32=False)},
        {"policy": replace(POLICY, deterministic=True)},
        {"policy": replace(POLICY, workspace_limit=999)},
        {"identity": ("another GPU", "a driver")},
        {"identity": ("a GPU", "another driver")},
        {"version": "0.0"},
    ],
    ids=str,
)
def test_what_the_answer_depends_on_is_part_of_the_question(look, benches, monkeypatch, change):
    look(task((A, B)))
    if "identity" in change:
        monkeypatch.setattr(choosing, "identity", lambda index: change["identity"])
    if "version" in change:
        monkeypatch.setattr(choosing, "__version__", change["version"])
    look(change.get("asked", task((A, B))), change.get("policy", POLICY))
    assert len(benches) == 2


def test_a_result_holds_for_the_margin_it_was_found_with(benches):
    margins = [replace(DEVICE, processors=132 - margin, margin=margin) for margin in (0, 16, 24)]
    for device in margins * 2:
        choose(task((A, B)), POLICY, device, open_bench=benches)
    assert len(benches) == 3
    assert "sm_margin" not in choosing.conditions(task((A, B)), POLICY, DEVICE)  # what was found before there was one


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "another's", "no JSON", "lacking"])
def test_a_damaged_file_is_searched_again_with_one_warning(look, benches, folder, damage):
    look(task((A, B)))
    (path,) = folder.glob("*.json")
    data = path.read_bytes()
    if damage == "another's":
        look(task((A, B), key="another problem"))
        (other,) = set(folder.glob("*.json")) - {path}
        data = other.read_bytes()
    elif damage in ("no JSON", "lacking"):
        data = store.cache_files.seal(store._MAGIC, b"{" if damage == "no JSON" else b'{"ranking": [], "rejected": []}')
    else:
        data = {"empty": b"", "truncated": data[:-9], "flipped": data[:-5] + b"\0" + data[-4:]}[damage]
    path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="searched again") as caught:
        look(task((A, B)))
    assert len(caught) == 2  # once before and once within the lock
    look(task((A, B)), open_bench=refuse)


def test_a_winner_that_cannot_be_made_again_gives_way_to_the_next(look):
    look(task((A, B)))
    assert look(task((A, replace(B, unfit="the library has changed"))), open_bench=refuse).candidate is A


def test_when_none_of_the_ranking_can_be_made_again_it_is_searched_again(look, benches):
    look(task((A, B)))
    new = FakeCandidate("c"), FakeCandidate("d")
    assert look(task(new)).candidate in new
    assert len(benches) == 2


def test_a_workspace_that_cannot_be_had_means_the_next_candidate(look):
    choice = look(task((A, B)))
    assert choice.smaller().candidate is A
    with pytest.raises(Refusal):
        choice.smaller().smaller()


@pytest.mark.parametrize("search", ["background", "default"])
def test_without_a_search_too_a_workspace_that_cannot_be_had_means_another_candidate(look, search):
    large, small = FakeCandidate("large", 1e-3, workspace=50), FakeCandidate("small", 1e-3, workspace=10)
    choice = look(task((large, small)), replace(POLICY, search=search), open_bench=refuse)
    assert choice.candidate is large
    assert choice.smaller() == replace(choice, candidate=small)
    with pytest.raises(Refusal):
        choice.smaller().smaller()


def test_a_folder_that_cannot_be_written_is_no_obstacle(look, folder):
    folder.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="cannot be written: File exists"):
        assert look(task((A, B))).candidate is B


@pytest.mark.parametrize(("version", "order"), [("1", ["a", "b"]), ("2", ["slow", "a", "b"])])
def test_a_new_process_knows_from_stored_results_which_are_slow(look, benches, version, order):
    """Those of the same libraries."""
    slow = FakeCandidate("slow", 0.05)
    for key in ("one problem", "another"):
        look(task((slow, A, B), key=key))
    history.forget()
    look(task(FakeSource("source0", (slow, A, B), version), key="a third"))
    assert benches[2].order == order


def test_wrong_results_are_recorded_and_warned_about_once(look):
    wrong = FakeCandidate("wrong", 1e-6, result=3.0)
    with pytest.warns(RuntimeWarning, match="not used, as it is wrong: wrong: its result is 2.0e") as caught:
        choice = look(task((A, B, wrong)))
    assert len(caught) == 1
    assert [row.name for row in choice.result.wrong] == ["wrong"]
    assert look(task((A, B, wrong)), open_bench=refuse).result.wrong == choice.result.wrong


def test_the_file_is_readable_json_after_its_digest(look, folder):
    look(task((A, B)))
    (path,) = folder.glob("*.json")
    document = json.loads(store.cache_files.unseal(store._MAGIC, path.read_bytes()))
    assert document["conditions"]["task"] == "problem"
    assert [row["name"] for row in document["ranking"]] == ["b", "a"]


def test_the_default_policy_takes_the_first_that_fits_and_runs_nothing(look, folder):
    large, gone = FakeCandidate("large", workspace=2000), FakeCandidate("gone", unfit="no")
    choice = look(task((large, gone, A, B)), replace(POLICY, search="default"), open_bench=refuse)
    assert choice.candidate is A
    assert choice.result is None
    assert not folder.exists()


def test_without_memory_to_search_the_first_that_fits_is_taken_with_a_warning(look):
    def no_memory(*_):
        raise OutOfMemoryError("CUDA: out of memory")

    with pytest.warns(RuntimeWarning, match="is not searched: CUDA: out of memory"):
        assert look(task((A, B)), open_bench=no_memory).candidate is A


def test_in_the_background_nothing_runs_where_no_search_was_made(look, folder):
    gone = FakeCandidate("gone", unfit="no")
    choice = look(task((gone, A, B)), replace(POLICY, search="background"), open_bench=refuse)
    assert (choice.candidate, choice.provisional, choice.result) == (A, True, None)
    assert not folder.exists()


def test_in_the_background_the_result_of_an_exhaustive_search_is_taken(look):
    result = look(task((A, B))).result
    choice = look(task((A, B)), replace(POLICY, search="background"), open_bench=refuse)
    assert (choice.candidate, choice.provisional, choice.result) == (B, False, result)


# --- pins -------------------------------------------------------------------------------------------------------------


def test_a_pinned_kernel_is_taken_unsearched(look):
    assert look(task((A, B)), pin="a", open_bench=refuse).candidate is A


def test_a_variation_that_an_earlier_search_ranked_can_be_pinned(look):
    variant = FakeCandidate("b2", 0.5e-3, "b")
    asked = task((A, replace(B, variants=(variant,))))
    look(asked)
    assert look(asked, pin="b2", open_bench=refuse).candidate is variant


def test_a_variation_whose_name_says_all_can_be_pinned_before_any_search(look):
    variant, odd = FakeCandidate("b2", 0.5e-3, "b"), FakeCandidate("b3", 0.5e-3, "b", unfit="it has too few")
    held = replace(B, variants=(variant, odd))
    told, untold = FakeSource("library", (A, held), says_all="b"), FakeSource("library", (A, held))
    assert look(task(told), pin="b2", open_bench=refuse).candidate is variant
    with pytest.raises(Refusal, match="kernel 'b3' was asked for: it has too few"):
        look(task(told), pin="b3")
    with pytest.raises(Refusal, match="has no kernel 'b2'; it has a, b"):
        look(task(untold), pin="b2")


def test_an_unknown_pin_lists_the_names(look):
    with pytest.raises(Refusal, match=r"^has no kernel 'c'; it has a, b$"):
        look(task((A, B)), pin="c")


def test_a_name_that_a_library_does_not_know_lists_the_names(look, monkeypatch):
    def named(self, name):
        raise Refusal("no such engine")

    monkeypatch.setattr(FakeSource, "named", named)
    with pytest.raises(Refusal, match=r"^has no kernel 'c'; it has a, b$"):
        look(task((A, B)), pin="c")


def test_a_pin_that_the_policy_forbids_says_why(look):
    fast = FakeCandidate("fast", notes=frozenset({"tf32"}))
    with pytest.raises(Refusal, match="kernel 'fast' was asked for: it multiplies in TF32"):
        look(task((fast, A)), replace(POLICY, allow_tf32=False), pin="fast")
    with pytest.raises(Refusal, match="kernel 'b' was asked for: it needs a workspace of 500 bytes; 10 are allowed"):
        look(task((A, B)), replace(POLICY, workspace_limit=10), pin="b")


# --- processes --------------------------------------------------------------------------------------------------------


class SlowBench(FakeBench):
    def run(self, candidate):
        time.sleep(0.05)
        return super().run(candidate)


def one_of_eight(_: int) -> tuple[str, int]:
    opened = []

    def open_bench(*_):
        opened.append(SlowBench())
        return opened[-1]

    choosing.identity = lambda index: ("a GPU", "a driver")
    choice = choose(task((A, B)), POLICY, DEVICE, open_bench=open_bench)
    return choice.candidate.name, len(opened)


def test_of_eight_processes_one_searches_and_the_others_wait_for_it(folder):
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("spawn")) as pool:
        answers = list(pool.map(one_of_eight, range(8)))
    assert [name for name, _ in answers] == ["b"] * 8
    assert sum(searched for _, searched in answers) == 1
    assert len(list(folder.glob("*.json"))) == 1

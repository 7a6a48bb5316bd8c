"""The same call again and again is refused."""

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.decision.breaker import MAX_REMEMBERED, Breaker
from tests.examples import examples


def test_the_twenty_first_identical_call_in_a_window_is_refused() -> None:
    breaker = Breaker()
    assert [breaker.trips("a", float(i)) for i in range(21)] == [False] * 20 + [True]


def test_refused_calls_do_not_prolong_the_refusal() -> None:
    breaker = Breaker(threshold=2, window=10)
    assert [breaker.trips("a", t) for t in (0.0, 1.0, 2.0, 9.0)] == [False, False, True, True]
    assert not breaker.trips("a", 10.0)


def test_other_calls_are_counted_apart() -> None:
    breaker = Breaker(threshold=1)
    assert not breaker.trips("a", 0.0)
    assert not breaker.trips("b", 0.0)
    assert breaker.trips("a", 0.0)


def test_what_was_done_and_can_be_taken_back_is_no_loop() -> None:
    breaker = Breaker(threshold=2)
    for at in range(50):
        assert not breaker.trips("done", float(at))
        breaker.forgive("done")
    breaker.forgive("never seen")
    assert [breaker.trips("fails", 50.0) for _ in range(3)] == [False, False, True]


def test_what_is_no_loop_leaves_the_window_without_a_trace() -> None:
    breaker = Breaker(threshold=2, window=10)
    breaker.trips("done", 0.0)
    breaker.forgive("done")
    breaker.trips("done", 1.0)
    # The first has left the window, and takes the count of nobody with it.
    assert [breaker.trips("done", 10.5) for _ in range(2)] == [False, True]


def test_a_flood_of_different_calls_takes_at_most_ten_mebibytes() -> None:
    """G29."""
    breaker = Breaker()
    tracemalloc.start()
    try:
        for number in range(5 * MAX_REMEMBERED + 500):
            breaker.trips(f"{number:064x}", number / 1e6)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 10 << 20


def test_a_call_is_remembered_for_as_many_other_calls_as_are_promised() -> None:
    breaker = Breaker(threshold=1)
    for repeated in ("a", "b"):
        assert not breaker.trips(repeated, 0.0)
        for number in range(MAX_REMEMBERED - 1):
            breaker.trips(f"{repeated}{number}", 0.0)
        assert breaker.trips(repeated, 0.0)


def test_what_left_the_window_is_forgotten() -> None:
    """G29."""
    breaker = Breaker(window=1)
    for number in range(100):
        breaker.trips(str(number), float(number))
    assert len(breaker._newer) + len(breaker._older) <= 2


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3), st.booleans()), max_size=60),
    st.integers(1, 4),
)
def test_it_counts_as_a_plain_list_of_calls_would(
    steps: list[tuple[str, float, bool]], threshold: int
) -> None:
    breaker = Breaker(threshold=threshold, window=5)
    passed: list[tuple[float, str]] = []
    now = 0.0
    for key, pause, is_forgiven in steps:
        now += pause
        recent = sum(1 for t, k in passed if k == key and t > now - 5)
        tripped = breaker.trips(key, now)
        assert tripped == (recent >= threshold)
        if not tripped:
            passed.append((now, key))
            if is_forgiven:
                breaker.forgive(key)
                passed.pop()

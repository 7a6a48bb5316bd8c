"""What stands on standard error where every call meets the same fault."""

import logging
from dataclasses import dataclass, field

from ironcurtain_proxy.wiring.few_words import AT_ONCE, PERIOD, FewWords, OneLine
from tests.fakes import FakeClock


@dataclass
class Heard:
    clock: FakeClock = field(default_factory=FakeClock)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.filter = FewWords(self.clock.monotonic)

    def say(self, words: str, *values: object) -> None:
        record = logging.LogRecord("room", logging.WARNING, "f.py", 1, words, values, None)
        if self.filter.filter(record):
            self.lines.append(OneLine().format(record))


def test_a_thousand_lines_of_one_kind_are_a_few() -> None:
    heard = Heard()
    for number in range(1000):
        heard.say("the store failed: %s", number)
    assert len(heard.lines) == AT_ONCE


def test_another_kind_of_line_is_heard_among_them() -> None:
    heard = Heard()
    for number in range(10):
        heard.say("the store failed: %s", number)
    heard.say("something else")
    assert heard.lines[-1] == "ironcurtain-proxy: something else"


def test_what_was_left_out_is_counted_when_the_minute_is_over() -> None:
    heard = Heard()
    for number in range(10):
        heard.say("the store failed: %s", number)
    heard.clock.seconds += PERIOD
    heard.say("the store failed: %s", "again")
    last = (
        f"ironcurtain-proxy: the store failed: again ({10 - AT_ONCE} more like this were left out)"
    )
    assert heard.lines[-1] == last
    heard.say("the store failed: %s", "once more")
    assert heard.lines[-1] == "ironcurtain-proxy: the store failed: once more"

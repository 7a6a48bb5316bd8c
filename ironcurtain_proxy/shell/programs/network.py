"""Network tools: those that show this machine's settings. Pure: no I/O, no clock, no log."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.rules import (
    NOTHING,
    Checked,
    Rule,
    options,
    skip_options,
)

_FLAGS: Final = options(
    "-4 -6 -s -d -j -p -o -h -r -c -br -brief -json -pretty -stats -statistics -details -oneline"
    " -human -human-readable --human-readable -rc -color -t -a --json"
)
_OBJECTS: Final = re.compile(
    r"a|ad|addr|address|l|link|r|ro|route|ru|rule|n|neigh|neighbor|neighbour|tunnel|tuntap|maddr"
    r"|maddress|mroute|monitor|netns|netconf|stats|nexthop|token|ntable"
)
_SHOWS: Final = re.compile(
    r"show|sh|s|list|ls|lst|get|all|link|address|route|neigh|rule|identify|pids"
)


def _ip(words: Sequence[Word]) -> str | None:
    """`ip object`, then nothing or a verb that shows; a verb may be shortened."""
    texts = [word.text for word in words]
    if None in texts or "-b" in texts or "-batch" in texts or "-force" in texts:
        return "an option is not known"
    rest = skip_options(words, _FLAGS, options("-netns -n -family -f"))
    if not rest or not _OBJECTS.fullmatch(rest[0].text or ""):
        return "it is not known to only show"
    if len(rest) > 1 and not _SHOWS.fullmatch(rest[1].text or ""):
        return "it may change the network"
    return None


_DENIED_VERBS: Final = re.compile(r"s|set")


def _ip_strict(words: Sequence[Word]) -> str | None:
    # `ip link s` is `set` for some versions and `show` for others.
    if any(_DENIED_VERBS.fullmatch(word.text or "") for word in words):
        return "it may change the network"
    return _ip(words)


NETWORK_PROGRAMS: Final[Mapping[str, Rule]] = {
    "ip": Checked(check=_ip_strict, capabilities=NOTHING)
}

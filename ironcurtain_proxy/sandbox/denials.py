"""Signs in an error that the sandbox refused a host or a file.

Many servers hide why a request failed: "status code 403" is all that is left of the sandbox's
refusal, and any site can answer so. Two things tell them apart, and both are known: where the
call's URLs lead, and which hosts the sandbox lets its server reach. A host that is closed has
answered nothing, so a 403 or a failed connection is the sandbox's. All else that a server says of
such a call is its own: that an argument is wrong, or what another host answered in its place.

A site that is open can send a server on to one that is closed. Then the error counts if it names
the closed one as what was asked, which is a narrower sign: texts name hosts for many reasons.

A closed directory looks empty, so what lies in it is reported as missing, and so is what `/proc`
tells of other processes. A missing file is a common mistake; one that is hidden is not to be found,
whether it is there or not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from posixpath import normpath
from typing import Final

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.reach import closed_hosts

# All of it is matched against lower case, and repeats within bounds only: the time is linear in the
# text, whatever a server puts there. Compiled when it is first needed: no start waits for it.

HOST: Final = r"([a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?)(?![a-z0-9_-])"
"""A host's name or IPv4 address, as a group."""
_URL: Final = rf"https?://(?:[^\s/@'\"]{{1,256}}@)?{HOST}"
_ADDRESS: Final = r"://[^\s'\"<>]*"
_403: Final = r"(?<![\w.:/#-])403(?![\w/-])"
"""The status, but not a port, a fraction or a part of a word."""

_FAILURES: Final = (
    *(_403, r"(?:status|code)['\"]?[:=] ?403(?![0-9])"),
    r"\bforbidden\b['\")\].]{0,3}[ \t]{0,4}\r?$",
    r"\bconnect(?:ion)? (?:issue|problem|error|failed|failure)\b",
    r"\bconnection (?:was |is )?(?:reset|refused|closed|aborted|terminated)\b",
    r"\b(?:failed|error|unable|trying) to (?:open tcp |establish a )?connect",
    r"\b(?:could not|couldn't|cannot|can't) (?:connect|reach|establish a connection)\b",
    *(r"\b(?:connect|connection|proxy|network) ?error\b", r"\btunnel"),
    *(r"\bfetch failed\b", r"\bsocket hang up\b", r"\beconnreset\b", "error sending request"),
    *(r"\bsocket disconnected before\b", r"\bserver disconnected\b"),
    "net::err_(?:address|connection|internet|name|network|proxy|socks|tunnel)_(?!timed)",
    *("ns_error_(?:proxy|connection|net|unknown_host)", "could not read from remote repository"),
)
"""Clients' messages for a refused request, or for a failed connection."""
_ANY_FAILURE: Final = "(?am)" + "|".join(_FAILURES)

_ASKED: Final = (
    rf"robots\.txt[ (]{{1,2}}{_URL}[^\s]{{0,2000}} received status 403",
    rf"robots\.txt[ (]{{1,2}}{_URL}[^\s]{{0,2000}} due to a connection issue",
    rf"{_403}[^\n]{{0,40}} for url:? ?['\"<(]?{_URL}",
    (
        rf"\b(?:fetch|fetching|get|getting|load|loading|access|accessing|open|opening|"
        rf"download|downloading|request to|retrieve|retrieving) ['\"<(]?{_URL}"
        rf"[^\s]{{0,2000}}[^\n/]{{0,40}}{_403}"
    ),
)
"""Forms in which a text says of a host that it answered 403, or could not be connected."""


_QUOTED: Final = r"(?ai)(?:\[errno 2\]|enoent:)[^\n'\"]{0,60}['\"](/[^\n'\"]{1,4096})['\"]"
_NO_SUCH: Final = "(?ai): no such file or directory"
_PROCESS: Final = r"(?as)/proc/[0-9]+(?:/.*)?"
"""Paths that tell of a process: processes outside are not to be found, whether they live or not."""
_BREAKS: Final = r"[\s'\":]"
_LONGEST_PATH: Final = 4096
_MOST_PATHS: Final = 50
"""A path that is missing stands after the error's code in quotes, or before the words."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The hosts and files closed to one call."""

    profile: SandboxProfile | None = None
    """The profile of the server; None: not known."""
    hosts: tuple[str, ...] = ()
    """The hosts of the call's own URLs that the profile keeps closed."""

    @classmethod
    def to(cls, profile: SandboxProfile, request: AccessRequest | None) -> "Closed":
        """The closed hosts and files of a call; without facts, the profile alone."""
        return cls(profile, () if request is None else closed_hosts(profile, request))

    def may_be(self, host: str) -> bool:
        """Whether this host can be the refused one."""
        return self.profile is None or not self.profile.may_reach(host)

    def the_host(self, text: str) -> str | None:
        """The call's host that a text means; None: unknown."""
        if len(self.hosts) == 1:
            return self.hosts[0]
        named = _named(text)
        return next((host for host in self.hosts if host in named), None)

    def is_reason(self, text: str) -> bool:
        """Whether an error's text, in lower case, is one that a closed host of the call causes."""
        if not self.hosts or re.search(_ANY_FAILURE, re.sub(_ADDRESS, " ", text)) is None:
            return False
        # What another host answered, to whom the server had handed the URL, is not the sandbox's.
        named = _named(text)
        return not named or not named.isdisjoint(self.hosts)

    def hides(self, text: str) -> bool:
        """Whether an error reports a path as missing that the sandbox hides."""
        profile = self.profile
        if profile is None:
            return False
        missing = [normpath(path) for path in _missing(text)]
        return any(
            re.fullmatch(_PROCESS, path) or not profile.may_read(RealPath.from_text(path))
            for path in missing
        )

    def asked(self, text: str) -> str | None:
        """The closed host that an error's text, in lower case, names as the target of a request."""
        if self.profile is None:
            return None
        return next((host for host in _asked(text) if not self.profile.may_reach(host)), None)


NOTHING_KNOWN: Final = Closed()


def _asked(text: str) -> Iterable[str]:
    for pattern in _ASKED:
        for found in re.finditer(pattern, text, re.ASCII):
            yield found[1]


def _missing(text: str) -> Iterable[str]:
    """Absolute paths that a text says are missing."""
    for found in islice(re.finditer(_QUOTED, text), _MOST_PATHS):
        yield found[1]
    for found in islice(re.finditer(_NO_SUCH, text), _MOST_PATHS):
        line = text[max(0, found.start() - _LONGEST_PATH) : found.start()].rpartition("\n")[2]
        word = re.split(_BREAKS, line.rstrip("'\""))[-1]
        if word.startswith("/"):
            yield word


def _named(text: str) -> frozenset[str]:
    return frozenset([found[1] for found in re.finditer(_URL, text, re.ASCII)])

"""Signs in an error that the sandbox refused a host or a file.

Many servers hide why a request failed: only "status code 403" is left of the sandbox's refusal,
and any site can give this answer, too. Two facts that are known tell the cases apart: the hosts of
the call's URLs, and the hosts that the sandbox opens. A closed host has answered nothing, so a 403
or a failed connection comes from the sandbox. Every other error is the server's own: an argument is
wrong, or another host answered.

An open site can redirect a server to a closed one. Then the error counts only if it names the
closed host as the one that was asked: a text names hosts for many reasons.

A closed directory looks empty. So a server reports files in it, and other processes in `/proc`, as
missing. A file that the sandbox hides counts as refused, whether it exists or not.
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
"""A missing path stands in quotes after the error's code, or before these words."""
_PROCESS: Final = r"(?as)/proc/[0-9]+(?:/.*)?"
"""Paths of processes. A sandbox hides the processes outside of it, whether they live or not."""
_BREAKS: Final = r"[\s'\":]"
_LONGEST_PATH: Final = 4096
_MOST_PATHS: Final = 50


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
        # The server may have handed the URL to another host: what that one answers is its own.
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

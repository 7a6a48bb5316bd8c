"""What a sandbox refuses: before a call, and in an error after it.

Whether a sandbox lets its server do what a call asks for.

Checked before a person is asked: an approval of a call that the sandbox refuses would have no
effect.

Signs in an error that the sandbox refused a host or a file.

Many servers hide why a request failed: only "status code 403" is left of the sandbox's refusal,
and any site can give this answer, too. Two facts that are known tell the cases apart: the hosts of
the call's URLs, and the hosts that the sandbox opens. A closed host has answered nothing, so a 403
or a failed connection comes from the sandbox. Every other error is the server's own: an argument is
wrong, or another host answered.

An open site can redirect a server to a closed one. Then the error counts only if it names the
closed host as the one that was asked: a text names hosts for many reasons.

A closed directory looks empty. So a server reports files in it, and other processes in `/proc`, as
missing. A file that the sandbox hides counts as refused, whether it exists or not.

A mark before a server's error that the sandbox caused.

A confined server reports a refusal as its own failure ("EROFS", "Could not resolve host"), and an
agent that cannot tell the two apart tries again. The mark is information and no more: the text is
the server's, which can write anything, and nothing is decided on it. Mark only the errors of a
server that really ran confined, for some signs mean the sandbox only there:

* `ECONNREFUSED`: certain at the sandbox's own proxies, ports 3128 and 1080, and likely elsewhere. A
  confined process has a loopback of its own, on which nothing of the host listens; the proxy
  reports a far host that refuses as a 502, which is not a sign.
* A name that does not resolve, a network without a route: names are resolved outside, by the proxy.
* `EACCES` and `: Permission denied` that ends a line are also what ordinary file modes give. They
  count; ssh's `Permission denied (publickey)` and what a remote or an API denies do not.
* `EPERM` counts for sockets and namespaces, not for a path: there, an owner is the likelier reason.
* `ENOENT` counts for mkdir, where Node reports a read-only parent so. A hidden file reads as a
  missing one, and a missing file is a common mistake: it counts if its path is known to be hidden.
* A 403 counts if the proxy gave it: to a CONNECT, or in its own words. Any site answers 403.

The profile gives further signs (`denials`): a closed host has answered nothing.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from posixpath import normpath
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.annotation import CHANGES, ArgumentRole
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.request import AccessRequest, PathValue, SqlValue, TextValue, UrlValue
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, RealPath, object_of
from ironcurtain_proxy.sandbox.profile import SandboxProfile

# --- reach


_NAMED: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,61}(\.[a-z0-9_-]{1,62})*", re.ASCII)
"""The spelling of a host that a sandbox takes: no address in brackets."""
_THIS_MACHINE: Final = "localhost"
_NO_DOT: Final = (
    "a sandbox opens no host whose name has no dot; use its full name, such as HOST.internal"
)
_HOST: Final = re.compile(r"[a-z0-9_-][a-z0-9._-]*|\[[0-9a-f:.]+\]", re.ASCII)


def obstacle(profile: SandboxProfile, request: AccessRequest) -> str | None:
    """Return the first thing that would be refused, and what the operator can do.

    It is None if nothing is known.

    A host is compared with the lists as the sandbox does it. A server that has another host fetch
    the URL for it needs that URL's host in the lists too.
    """
    for fact in request.arguments:
        changes = not CHANGES.isdisjoint(fact.roles)
        reads = "read-path" in fact.roles
        for value in fact.values:
            match value:
                case PathValue(text=text, path=path):
                    why = _path(profile, path, changes=changes, reads=reads)
                    if why is not None:
                        return f"{why} {text}"
                case UrlValue(text=text):
                    closed = _closed(profile, value)
                    if closed:
                        return f"{_network(profile, closed[0])}: {text}"
                case SqlValue() | TextValue():
                    pass
    return None


def opening_of(
    profile: SandboxProfile,
    request: AccessRequest,
    hosts: Sequence[str],
    paths: Sequence[RealPath] = (),
) -> SandboxOpening | str | None:
    """Return the access that a second instance needs for a call.

    It is None if the first instance suffices.

    A text names the obstacle that no approval removes: something that the operator closed, that
    belongs to the proxy, or that may not be read.

    Args:
        profile: of the first instance.
        request: the call.
        hosts: the hosts that the call is known to need besides those of its URLs.
        paths: the paths that its shell command names to write.
    """
    changed = [path for path in paths if not profile.may_write(path)]
    kept = (_said(profile, path) for path in changed if profile.keeps_closed(path))
    if (why := next(kept, None) or _why_closed(profile, request)) is not None:
        return why
    changed += _changed(profile, request)
    also = [host.removesuffix(".") for host in hosts]
    wanted = [host for host in also if _NAMED.fullmatch(host) and not profile.may_reach(host)]
    closed = [host.removesuffix(".") for host in closed_hosts(profile, request)]
    needed = tuple(dict.fromkeys([*closed, *wanted]))
    for host in needed:
        if (why := _why_not_named(profile, host)) is not None:
            return why
    found = SandboxOpening(hosts=needed, paths=tuple(dict.fromkeys(changed)))
    return found if found.words() else None


def _said(profile: SandboxProfile, path: RealPath) -> str:
    return f"{_path(profile, path, changes=True, reads=False)} {path}"


def _why_closed(profile: SandboxProfile, request: AccessRequest) -> str | None:
    """Return why no approval opens one of a call's paths, or None if all can be opened."""
    for fact in request.arguments:
        for value in fact.values:
            if isinstance(value, PathValue):
                why = _why_kept(profile, value, fact.roles)
                if why is not None:
                    return why
    return None


def _changed(profile: SandboxProfile, request: AccessRequest) -> list[RealPath]:
    """Return the paths that a call changes and its server's sandbox keeps closed."""
    return [
        value.path
        for fact in request.arguments
        if not CHANGES.isdisjoint(fact.roles)
        for value in fact.values
        if isinstance(value, PathValue) and not profile.may_write(value.path)
    ]


def _why_not_named(profile: SandboxProfile, host: str) -> str | None:
    """Return why no approval opens a host, or None if an approval opens it."""
    if profile.forbids(host) or not _NAMED.fullmatch(host):
        return f"{_network(profile, host)}: {host}"
    if "." not in host and host != _THIS_MACHINE:
        return f"{_NO_DOT}: {host}"
    return None


def _why_kept(
    profile: SandboxProfile, value: PathValue, roles: Sequence[ArgumentRole]
) -> str | None:
    """Return why no approval opens a path for its roles, or None if one does, or it is open."""
    changes = not CHANGES.isdisjoint(roles) and profile.keeps_closed(value.path)
    why = _path(profile, value.path, changes=changes, reads="read-path" in roles)
    return None if why is None else f"{why} {value.text}"


def closed_hosts(profile: SandboxProfile, request: AccessRequest) -> tuple[str, ...]:
    """Return the hosts of a call's URLs that its server's sandbox keeps closed, each once."""
    values = [value for fact in request.arguments for value in fact.values]
    urls = [value for value in values if isinstance(value, UrlValue)]
    return tuple(dict.fromkeys([host for url in urls for host in _closed(profile, url)]))


def _closed(profile: SandboxProfile, url: UrlValue) -> list[str]:
    return [host for host in _hosts(url) if not profile.may_reach(host)]


def _hosts(value: UrlValue) -> list[str]:
    """Return the hosts that are certainly meant.

    A remote may also be a directory, or a helper's word.
    """
    if not value.ordinary:
        return []
    hosts = [domain.partition("/")[0] for domain in value.domains]
    return [host for host in hosts if _HOST.fullmatch(host)]


_NOT: Final = "the sandbox of this server does not let it"


def _network(profile: SandboxProfile, host: str) -> str:
    if not profile.has_network:
        return "the sandbox of this server has no network (sandbox.network.allowedDomains)"
    return f"{_NOT} reach {host} (sandbox.network.allowedDomains)"


def _path(profile: SandboxProfile, path: RealPath, *, changes: bool, reads: bool) -> str | None:
    if changes and not profile.may_write(path):
        return f"{_NOT} write there (sandbox.filesystem.allowWrite):"
    if reads and not profile.may_read(path):
        return (
            "the sandbox of this server does not let it read there (sandbox.filesystem.allowRead):"
        )
    return None


# --- denials


# All of it is matched against lower case, and repeats within bounds only: the time is linear in the
# text, whatever a server puts there. Compiled when it is first needed: no start waits for it.

HOST: Final = r"([a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?)(?![a-z0-9_-])"
"""A host's name or IPv4 address, as a group."""
_URL: Final = rf"https?://(?:[^\s/@'\"]{{1,256}}@)?{HOST}"
_ADDRESS: Final = r"://[^\s'\"<>]*"
_NOT_THE_PROXY: Final = r"(?![a-z0-9.]{1,20}:(?:3128|1080)(?![0-9]))"
_PARTS: Final = {
    "<host>": HOST,
    "<url>": _URL,
    "<403>": r"(?<![\w.:/#-])403(?![\w/-])",
    "<elsewhere>": _NOT_THE_PROXY,
}
_SIGNS: Final = {
    name: tuple([re.sub("|".join(_PARTS), lambda found: _PARTS[found[0]], sign) for sign in signs])
    for name, signs in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
_ANY_FAILURE: Final = "(?am)" + "|".join(_SIGNS["failures"])
_NETWORK: Final = _SIGNS["network"]


_QUOTED: Final = r"(?ai)(?:\[errno 2\]|enoent:)[^\n'\"]{0,60}['\"](/[^\n'\"]{1,4096})['\"]"
_NO_SUCH: Final = "(?ai): no such file or directory"
"""A missing path stands in quotes after the error's code, or before these words."""
_PROCESS: Final = r"(?as)/proc/[0-9]+(?:/.*)?"
"""Paths of processes. A sandbox hides the processes outside of it, whether they live or not."""
_BREAKS: Final = r"[\s'\":]"
_CLOSED: Final = r"(?i)[^\n]*(?:\berofs\b|read-only file system|\bebusy\b|resource busy)[^\n]*"
_LONGEST_PATH: Final = 4096
_MOST_PATHS: Final = 50


class Closed(Struct, frozen=True):
    """The hosts and files closed to one call."""

    profile: SandboxProfile | None = None
    """The profile of the server, or None if it is not known."""
    hosts: tuple[str, ...] = ()
    """The hosts of the call's own URLs that the profile keeps closed."""
    runs: bool = False
    """Whether the call is a command: its result is often no error although the command failed."""

    @classmethod
    def to(cls, profile: SandboxProfile, request: AccessRequest | None) -> "Closed":
        """Return the closed hosts and files of a call; without facts, the profile alone."""
        if request is None:
            return cls(profile)
        runs = any("command" in one.roles for one in request.arguments)
        return cls(profile, closed_hosts(profile, request), runs)

    def file(self, text: str) -> str | None:
        """Return the file that a text says cannot be written, and that is closed to all calls."""
        closed = () if self.profile is None else self.profile.deny_write
        for line in islice(re.finditer(_CLOSED, text[:MAX_TEXT]), _MOST_PATHS if closed else 0):
            for word in re.findall(r"[^\s'\":`]+", line[0][-_LONGEST_PATH:]):
                parts = word.removeprefix("./").split("/")
                tops = ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
                for path in closed:
                    if any(f"/{path}".endswith(f"/{one}") for one in tops if len(one) > 1):
                        return path
        return None

    def may_be(self, host: str) -> bool:
        """Return whether this host can be the refused one."""
        return self.profile is None or not self.profile.may_reach(host)

    def the_host(self, text: str) -> str | None:
        """Return the call's host that a text means, or None if it is unknown."""
        if len(self.hosts) == 1:
            return self.hosts[0]
        named = _named(text)
        return next((host for host in self.hosts if host in named), None)

    def is_reason(self, text: str) -> bool:
        """Return whether an error's text, in lower case, is one that a closed host causes."""
        if not self.hosts or re.search(_ANY_FAILURE, re.sub(_ADDRESS, " ", text)) is None:
            return False
        # The server may have handed the URL to another host: what that one answers is its own.
        named = _named(text)
        return not named or not named.isdisjoint(self.hosts)

    def hides(self, text: str) -> bool:
        """Return whether an error reports a path as missing that the sandbox hides."""
        profile = self.profile
        if profile is None:
            return False
        missing = [normpath(path) for path in _missing(text)]
        return any(
            re.fullmatch(_PROCESS, path) or not profile.may_read(RealPath.from_text(path))
            for path in missing
        )

    def asked(self, text: str) -> str | None:
        """Return the closed host that an error's text, in lower case, names as a target."""
        if self.profile is None:
            return None
        return next((host for host in _asked(text) if not self.profile.may_reach(host)), None)


NOTHING_KNOWN: Final = Closed()


def _asked(text: str) -> Iterable[str]:
    for pattern in _SIGNS["asked"]:
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


# --- error hints


MAX_BLOCKS = 20
"""The most blocks of a result that are searched."""

MAX_TEXT = 64 * 1024  # characters
"""The most characters of each text that are searched."""

_MARK = "[SANDBOX BLOCKED"
_WHY_CLOSED = (
    "is closed to all calls: programs of the user's machine act on it, or its user closed it. Do "
    "not retry: work in another file, or tell the user which change you need"
)
_LONGEST_NAME = 300

_OTHER_URL = rf"https?://(?:[^\s/@'\"]{{1,256}}@)?{_NOT_THE_PROXY}{HOST}"
"""The requested URL in the text of a refusal. The request may have been redirected from it."""


@cache
def _compiled(sign: str) -> re.Pattern[str]:
    """Return a compiled sign, on first use: to compile all takes a hundredth of the start."""
    return re.compile(sign, re.ASCII | re.MULTILINE)


def annotated(result: Mapping[str, Json], closed: Closed = NOTHING_KNOWN) -> Mapping[str, Json]:
    """Return a tool's result, marked in its first text if it is an error that the sandbox caused.

    Any other result comes back as the very same object, and so does a marked one.
    """
    content = result.get("content")
    if not (result.get("isError") is True or closed.runs) or not isinstance(content, list):
        return result
    texts = dict(_texts(content)).values()
    is_error = result.get("isError") is True
    mark = _mark_of(texts, closed) if is_error else _mark_of_closed(texts, closed)
    return result if mark is None else _with_mark(result, content, mark)


def told_of_limits(result: Mapping[str, Json], why: str) -> Mapping[str, Json]:
    """Add a note on processes that were killed during the call to a tool's result."""
    content = result.get("content")
    if not isinstance(content, list) or not dict(_texts(content)):
        return result
    return _with_mark(result, content, f"[SANDBOX LIMIT: {why}]")


def told_of_directory(answer: ToolResult, directory: str) -> ToolResult:
    """Return a failed answer, marked if it names the server's own directory.

    Mostly the agent gave a relative path, or none.
    """
    mark = "[OWN DIRECTORY: this server works in a directory of its own; give absolute paths]"
    result, error = answer.result or {}, answer.error or {}
    content, said = result.get("content"), error.get("message")
    if isinstance(content, list) and any(directory in text for _, text in _texts(content)):
        return answer.with_result(_with_mark(result, content, mark), "")
    if isinstance(said, str) and directory in said:
        return ToolResult(error={**error, "message": f"{mark} {said}"})
    return answer


def _with_mark(result: Mapping[str, Json], content: list[Json], mark: str) -> Mapping[str, Json]:
    first, text = next(_texts(content))
    block = {**object_of(content[first]), "text": f"{mark} {text}"}
    return {**result, "content": [*content[:first], block, *content[first + 1 :]]}


def annotated_error(
    error: Mapping[str, Json], closed: Closed = NOTHING_KNOWN
) -> Mapping[str, Json]:
    """Return a JSON-RPC error, marked in its `message` if the sandbox caused it.

    Else the same object.
    """
    message = error.get("message")
    mark = _mark_of((message,), closed) if isinstance(message, str) else None
    return error if mark is None else {**error, "message": f"{mark} {message}"}


def refused_host(result: Mapping[str, Json], closed: Closed = NOTHING_KNOWN) -> str:
    """Return the host that a result, error or not, says could not be reached.

    It is empty if it names none.

    A shell's result is often no error although its command failed.
    """
    content = result.get("content")
    texts = [text for _, text in _texts(content)] if isinstance(content, list) else []
    for text in texts:
        seen = _seen(text)
        if _has_sign(seen, _NETWORK):
            return denied_host(text, closed) or _implied_host(text, closed) or ""
        if result.get("isError") is True and (host := closed.asked(seen)) is not None:
            return host
        if result.get("isError") is True and closed.is_reason(seen):
            return closed.the_host(seen) or ""
    return ""


def is_blocked(text: str) -> bool:
    """Return whether an error's text shows by itself that the sandbox refused something."""
    return _has_sign(_seen(text), (*_SIGNS["system"], *_NETWORK))


def denied_host(text: str, closed: Closed = NOTHING_KNOWN) -> str | None:
    """Return the host that could not be reached, if a line that says so also names it."""
    seen = _seen(text)
    for sign in _NETWORK:
        if refusal := _compiled(sign).search(seen):
            line = seen[seen.rfind("\n", 0, refusal.start()) + 1 :].partition("\n")[0]
            for place in _SIGNS["named"]:
                if found := _compiled(place).search(line):
                    return found[1]
            if (asked := _compiled(_OTHER_URL).search(line)) and closed.may_be(asked[1]):
                return asked[1]
    return None


def _mark_of(texts: Collection[str], closed: Closed) -> str | None:
    """Return the mark of an error.

    It is None if the sandbox did not cause it, or it is marked already.
    """
    if any(text.startswith(_MARK) for text in texts):
        return None
    if (mark := _mark_of_closed(texts, closed)) is not None:
        return mark
    if any(is_blocked(text) or closed.hides(text[:MAX_TEXT]) for text in texts):
        hosts = [denied_host(text, closed) or _implied_host(text, closed) for text in texts]
        return _mark(next(filter(None, hosts), None))
    for seen in map(_seen, texts):
        if (host := closed.asked(seen)) is not None:
            return _mark(host)
        if closed.is_reason(seen):
            return _mark(closed.the_host(seen))
    return None


def _mark_of_closed(texts: Iterable[str], closed: Closed) -> str | None:
    """Return the mark of a file that no call changes, or None if the texts name none."""
    path = next(filter(None, map(closed.file, texts)), None)
    return None if path is None else f"{_MARK}: {path[:_LONGEST_NAME]} {_WHY_CLOSED}]"


def _implied_host(text: str, closed: Closed) -> str | None:
    """Return the call's own closed host, where a text shows that the network was refused."""
    seen = _seen(text)
    return closed.the_host(seen) if _has_sign(seen, _NETWORK) else None


def _has_sign(seen: str, signs: Iterable[str]) -> bool:
    return any(_compiled(sign).search(seen) for sign in signs)


def _seen(text: str) -> str:
    return text[:MAX_TEXT].lower()


def _texts(content: list[Json]) -> Iterator[tuple[int, str]]:
    for position, block in enumerate(content[:MAX_BLOCKS]):
        if isinstance(block, dict) and block.get("type") == "text":
            text = block.get("text")
            if isinstance(text, str):
                yield position, text


def _mark(host: str | None) -> str:
    return f"{_MARK}]" if host is None else f"{_MARK}: host {host}]"

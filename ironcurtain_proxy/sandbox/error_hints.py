"""A mark before a server's error that the sandbox caused.

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
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.sandbox.denials import HOST, NOTHING_KNOWN, Closed

MAX_BLOCKS = 20
"""The most blocks of a result that are searched."""

MAX_TEXT = 64 * 1024  # characters
"""The most characters of each text that are searched."""

_MARK = "[SANDBOX BLOCKED"

# All of it is matched against lower case, and repeats within bounds only: the time is linear in the
# text, whatever a server puts there.

_SYSTEM = (
    *(r"erofs(?=[:'\"]|\r?$)", "read-only file system", r"\[errno 30\]", r"oserror\(30, "),
    *("exdev", "cross-device link", r"\[errno 18\]", r"oserror\(18, "),
    *(r"eacces\b", r"\[errno 13\]", r"permissionerror\(13, "),
    (
        r": permission denied(?<!remote: permission denied)(?<!error: permission denied)"
        r"(?<!fatal: permission denied)(?: \(os error 13\))?['\"]?\r?$"
    ),
    *("listen eperm", "connect eperm", "bind eperm", "socket eperm", r"permissionerror\(1, "),
    r"\[errno 1\] operation not permitted(?!: ['\"b])",
    r"(?:unshare|namespace|socket)[^\n]{0,120}operation not permitted",
    "enoent: no such file or directory, mkdir ",
)

_NETWORK = (
    # the sandbox's proxy, in its own words
    *("host is not on the allow list", "host is on the deny list", "blocked-by-allowlist"),
    "connection blocked by network allowlist",
    r"connection to [^\s]{1,260} blocked: resolved to",
    # what clients make of its refusal
    *("tunnel connection failed: 403", "connect tunnel failed, response 403"),
    *("http code 403 from proxy after connect", r"proxy response \(403\)"),
    r"proxyerror\(['\"]403 ",
    "tunneling socket could not be established, statuscode=403",
    *("407 proxy authentication required", "not allowed by ruleset", "socks5 proxy rejected"),
    r"complete socks5 connection to [^\s]{1,260} \(2\)",
    # no names, no route, nobody there
    *("eai_again", "getaddrinfo enotfound", "temporary failure in name resolution"),
    *("could not resolve host", "name or service not known", "nodename nor servname provided"),
    *("enetunreach", "network is unreachable", r"\[errno 101\]"),
    *("econnrefused", "connection refused", r"\[errno 111\]", "all connection attempts failed"),
    r"failed to connect to [^\s]{1,260} port [0-9]{1,5}[^\n:]{0,40}: could(?:n't| not) connect",
)

_NOT_THE_PROXY = r"(?![a-z0-9.]{1,20}:(?:3128|1080)(?![0-9]))"

_NAMED = (
    rf"(?:could not resolve host(?:name)?:? |unable to look up |socks5 connection to ){HOST}",
    rf"getaddrinfo (?:eai_again|enotfound) {HOST}",
    rf"connect {HOST}:[0-9]{{1,5}}: host is ",
    rf"connect (?:enetunreach|econnrefused) {_NOT_THE_PROXY}{HOST}:[0-9]{{1,5}}(?![0-9:])",
    rf"connectionpool\(host='{HOST}'",
    rf"failed to connect to {_NOT_THE_PROXY}{HOST} port (?!3128 |1080 )",
    rf"dial tcp: lookup {HOST}",
    rf"connection to {HOST} blocked: ",
)
"""The host in the text of a refusal."""

_URL = rf"https?://(?:[^\s/@'\"]{{1,256}}@)?{_NOT_THE_PROXY}{HOST}"
"""The requested URL in the text of a refusal. The request may have been redirected from it."""


@cache
def _compiled(sign: str) -> re.Pattern[str]:
    """A compiled sign, on first use: to compile all takes a hundredth of the start."""
    return re.compile(sign, re.ASCII | re.MULTILINE)


def annotated(result: Mapping[str, Json], closed: Closed = NOTHING_KNOWN) -> Mapping[str, Json]:
    """A tool's result, marked in its first text if it is an error that the sandbox caused.

    Any other result comes back as the very same object, and so does a marked one.
    """
    content = result.get("content")
    if result.get("isError") is not True or not isinstance(content, list):
        return result
    texts = dict(_texts(content))
    mark = _mark_of(texts.values(), closed)
    if mark is None:
        return result
    return _with_mark(result, content, mark)


def told_of_limits(result: Mapping[str, Json], why: str) -> Mapping[str, Json]:
    """A tool's result, error or not, with a note on processes that were killed during the call."""
    content = result.get("content")
    if not isinstance(content, list) or not dict(_texts(content)):
        return result
    return _with_mark(result, content, f"[SANDBOX LIMIT: {why}]")


def _with_mark(result: Mapping[str, Json], content: list[Json], mark: str) -> Mapping[str, Json]:
    first, text = next(_texts(content))
    block = {**_object(content[first]), "text": f"{mark} {text}"}
    return {**result, "content": [*content[:first], block, *content[first + 1 :]]}


def annotated_error(
    error: Mapping[str, Json], closed: Closed = NOTHING_KNOWN
) -> Mapping[str, Json]:
    """A JSON-RPC error, marked in its `message` if the sandbox caused it; else the same object."""
    message = error.get("message")
    mark = _mark_of((message,), closed) if isinstance(message, str) else None
    return error if mark is None else {**error, "message": f"{mark} {message}"}


def refused_host(result: Mapping[str, Json], closed: Closed = NOTHING_KNOWN) -> str:
    """The host that a result, error or not, says could not be reached; empty: it names none.

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
    """Whether an error's text shows by itself that the sandbox refused something."""
    return _has_sign(_seen(text), (*_SYSTEM, *_NETWORK))


def denied_host(text: str, closed: Closed = NOTHING_KNOWN) -> str | None:
    """The host that could not be reached, if a line that says so also names it."""
    seen = _seen(text)
    for sign in _NETWORK:
        if refusal := _compiled(sign).search(seen):
            line = seen[seen.rfind("\n", 0, refusal.start()) + 1 :].partition("\n")[0]
            for place in _NAMED:
                if found := _compiled(place).search(line):
                    return found[1]
            if (asked := _compiled(_URL).search(line)) and closed.may_be(asked[1]):
                return asked[1]
    return None


def _mark_of(texts: Collection[str], closed: Closed) -> str | None:
    """The mark of an error; None: the sandbox did not cause it, or it is marked already."""
    if any(text.startswith(_MARK) for text in texts):
        return None
    if any(is_blocked(text) or closed.hides(text[:MAX_TEXT]) for text in texts):
        hosts = [denied_host(text, closed) or _implied_host(text, closed) for text in texts]
        return _mark(next(filter(None, hosts), None))
    for seen in map(_seen, texts):
        if (host := closed.asked(seen)) is not None:
            return _mark(host)
        if closed.is_reason(seen):
            return _mark(closed.the_host(seen))
    return None


def _implied_host(text: str, closed: Closed) -> str | None:
    """The call's own closed host, where a text shows that the network was refused."""
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


def _object(block: Json) -> dict[str, Json]:
    return block if isinstance(block, dict) else {}


def _mark(host: str | None) -> str:
    return f"{_MARK}]" if host is None else f"{_MARK}: host {host}]"

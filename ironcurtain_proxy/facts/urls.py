"""The canonical spelling of URLs and git remotes, and their hosts.

URLs follow the WHATWG standard. Names of remotes stay unchanged.
"""

import re
from typing import Final

import can_ada

_SCP_REMOTE: Final = re.compile(r"(?:[\w.+-]+@)?([^:]+):", re.ASCII)
_ORDINARY: Final = ("https://", "http://", "ssh://", "git://")
_EXPLICIT_SCP: Final = re.compile(r"[\w.+-]+@[^:]+:", re.ASCII)

# URLs that every parser reads alike: "//", one "@" at most, no escapes in the host. A word without
# a scheme is no URL.
_PLAIN: Final = re.compile(
    r"[A-Za-z0-9._~/-]*|"
    r"[A-Za-z][A-Za-z0-9+.-]*://"
    r"(?:[A-Za-z0-9._~!$&'()*+,;=:%-]*@)?"
    r"(?:([\w.-]*)|\[[0-9A-Fa-f:.]+\])"
    r"(?::[0-9]*)?"
    r"(?:[/?#][^\x00-\x1f\x7f]*)?"
)


def canonical_url(text: str) -> tuple[str, str]:
    """The canonical spelling of a URL and its host.

    A path of `/` and one trailing slash are dropped. Any other text is returned twice, unchanged.
    """
    try:
        url = _parse(text)
    except ValueError:
        return text, text
    href = url.href
    if "/" in (href[-1:], href[-2:-1]) or "/?" in href or "/#" in href:
        if url.pathname == "/":
            url.pathname = ""
            href = url.href
        href = href.removesuffix("/")
    return href, url.hostname


def canonical_git_url(text: str) -> str:
    """The canonical spelling of a git remote: `user@host:path` and names stay as they are."""
    if "://" not in text and _SCP_REMOTE.match(text):
        return text
    return canonical_url(text)[0]


def git_domain(text: str) -> str:
    """`host/path` of a git remote in canonical spelling, or the host if it has no path.

    `git@github.com:acme/x.git` is `github.com/acme/x`. What is neither URL nor `host:path` is given
    back as it is.
    """
    if "://" not in text:
        scp = _SCP_REMOTE.match(text)
        if scp is not None:
            return _join(scp[1], text[scp.end() :])
    try:
        url = _parse(text)
    except ValueError:
        return text
    return _join(url.hostname, url.pathname)


def is_ordinary(spelled: str) -> bool:
    """Whether a canonical URL is of a transport that has just one meaning everywhere."""
    return spelled.startswith(_ORDINARY)


def is_ordinary_remote(spelled: str) -> bool:
    """Whether a git remote is ordinary: `user@host:path` is, `helper::address` is not."""
    if "://" in spelled or "::" in spelled:
        return is_ordinary(spelled)
    return _SCP_REMOTE.match(spelled) is not None


def is_explicit_remote(text: str) -> bool:
    """Whether it is written as a URL or as `user@host:path`, so that it is no remote's name."""
    return "://" in text or _EXPLICIT_SCP.match(text) is not None


def is_unambiguous(text: str) -> bool:
    r"""Whether every parser of URLs finds the same host.

    A URL is sent unchanged, and the server's parser may not follow WHATWG:
    `https://good.example\@evil.example/` has two hosts, depending on who reads it. So has a host in
    other letters, where the older and the newer rules for them differ (`faß.example`).
    """
    match = _PLAIN.fullmatch(text)
    if match is None:
        return False
    host = match[1]
    if not host or host.isascii():
        return True
    try:
        return host.encode("idna").decode() == _parse(text).hostname
    except ValueError:
        return False


def _parse(text: str) -> can_ada.URL:
    """Read a URL.

    Raises:
        ValueError: it is none, or holds a lone surrogate.
    """
    text.encode()  # the parser takes a lone surrogate for a value of the wrong type
    return can_ada.parse(text)


def _join(host: str, path: str) -> str:
    path = path.removeprefix("/").removesuffix("/").removesuffix(".git")
    return f"{host}/{path}" if path else host

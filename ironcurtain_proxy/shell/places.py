"""Paths and words of shell commands: within which directory, and whether they name secrets.

Paths are compared as text. The sandbox confines access through links; a wrong result here only
costs a question.

Words of commands that name files with secrets, by the table of `credentials`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from ironcurtain_proxy.credentials import TREE, compiled, examples, patterns
from ironcurtain_proxy.model.request import CommandPlace, Word
from ironcurtain_proxy.model.values import STEERING, STEERING_FILES, lazy, words

# --- secrets


_OURS: Final = frozenset({".ironcurtain", "environ", "keychains"})
"""Names besides those of the table: the proxy's own, `/proc/PID/environ`, keychains of macOS."""
_DATA: Final = lazy(
    r".*\.(?:json|ya?ml|toml|ini|txt|csv|xml|properties|cfg|conf|db|enc|bak|backup|\d+)"
)
"""Endings of files. After `secrets.` any other word may be the name of a variable."""
_IN_PROGRAMS: Final = lazy(r".*(?:process|meta)\.env")
"""The environment in a program's text: `process.env`."""
_HOME: Final = lazy(r"^(?:\$home|\$\{home\})(?=/|$)")
_TILDE: Final = "~"
_GLOBS: Final = ("*", "?", "[")
_GLOB_PART: Final = lazy(r"[*?]+|\[[^\]]*\]")
_SEPARATORS: Final = lazy(r"[\\=:@,;'\"\s]+")
"""What stands between paths in a word: `--file=.env`, `user@host:.ssh/id_rsa`."""


_ENGLISH: Final = frozenset({"shadow", "gshadow", "sudoers", "environ", "keychains", "credentials"})
"""Names that are words of English as well. In a text of several words they name a file only where
the text says so: `/etc/shadow`, `open('credentials')`."""
_AS_FILE: Final = lazy(
    rf"(?<=[/\\\\=:@'\"])(?:{'|'.join(_ENGLISH)})|(?:{'|'.join(_ENGLISH)})(?=[/\\\\'\"])"
)


def names_a_secret(words: Iterable[Word]) -> bool:
    """Tell whether a word names a file that commonly holds keys or passwords, or may match one."""
    return any(_names_one(one) for word in words for one in (word, *_meant(word)))


def _meant(word: Word) -> Iterator[Word]:
    """Yield the words for which braces and defaults stand: `{a,.env}`, `${x:-.env}`."""
    return (Word(text=None, pattern=one) for one in word.expansions)


def names_a_secret_file(text: str) -> bool:
    """Return whether a text that a server may open as a file, or as a glob, names a secret."""
    if any(sign in text for sign in _GLOBS):
        pattern = _GLOB_PART.sub("*", text)
        return _names_one(Word(text=None, pattern=pattern)) or _names_one(Word(text=text))
    return _names_one(Word(text=text))


def shows_git_configuration(words: Sequence[Word]) -> bool:
    """Tell whether a command shows the configuration of a repository, with the URLs of its remotes.

    Args:
        words: the whole command.
    """
    texts = [word.pattern if word.text is None else word.text for word in words]
    if any(map(_CONFIGURATION.search, texts)):
        return True
    program = texts[0].rpartition("/")[2] if texts else ""
    if program in _EVERY_FILE and any(re.search(r"(?:^|/)\.git/?$", text) for text in texts):
        return True
    if program != "git":
        return False
    rest = texts[1:]
    at = next((n for n, text in enumerate(rest) if text in {"remote", "config"}), len(rest))
    match rest[at:]:
        case ["remote", *more]:
            return any(text in {"get-url", "show", "--verbose"} or "v" in text[1:2] or "*" in text
                       for text in more)  # fmt: skip
        case ["config", *more]:
            return any(map(_SHOWS.search, more))
        case _:
            return False


def is_in_git_data(directory: str | None) -> bool:
    """Return whether a directory lies in git's own, where `config` is the configuration."""
    return directory is not None and ".git" in directory.lower().split("/")


_EVERY_FILE: Final = frozenset({"rg", "grep", "egrep", "fgrep", "ag", "ack", "cp", "tar", "zip"})
"""Programs that show or copy every file of a directory."""
_CONFIGURATION: Final = lazy(
    r"(?:^|[/=:@'\"(])\.git/(?:(?:worktrees|modules)/.*)?(?:config(?:\.worktree)?\b|[^/]*\*[^/]*$)",
    re.IGNORECASE,
)
_SHOWS: Final = lazy(
    r"^(?:-l|--list|--get-.*|list|.*\*.*)$|url|http|credential|remote", re.IGNORECASE
)


def may_match_a_secret(name: str) -> bool:
    """Return True if a pattern for names of files may match one that holds secrets.

    Strictly: without a known ending, or with that of a key, it may.

    Args:
        name: the pattern, with `*` for what is not known.
    """
    before, _, ending = name.lower().rpartition(".")
    if not before or "*" in ending or not ending or name.startswith("."):
        return True
    return _is_secret(f"/x.{ending}") or _matches_a_name(name.lower())


def _names_one(word: Word) -> bool:
    text = (word.pattern if word.text is None else word.text).lower()
    # The whole as well: a name of a directory may have a blank.
    paths = [_HOME.sub(_TILDE, path) for path in (text, *_SEPARATORS.split(text))]
    in_words = len(text.split()) > 1 and not _AS_FILE.search(text)
    is_one = _may_be_secret if word.text is None else _is_secret
    for path in paths:
        parts = [part for part in path.split("/") if part]
        if in_words and parts and parts[-1] in _ENGLISH:
            parts.pop()
        # Where a pattern or a `..` leads is not known: each part may be the last.
        is_open = word.text is None or ".." in parts
        if not _OURS.isdisjoint(parts) or _is_secret(f"/{'/'.join(parts)}"):
            return True
        if is_open and any(is_one(f"/{part}") for part in parts):
            return True
    return False


def _may_be_secret(path: str) -> bool:
    """Return True if one component with `*` may stand for a secret."""
    part = path[1:]
    if "*" in part and part.strip("*"):
        # `*.json` means files of the workspace; `.*`, `id_*` and `.ss*` do not.
        hidden = part.startswith(_SUSPICIOUS) and _matches_a_name(part)
        return hidden or _is_secret(path.replace("*", "x"))
    return _is_secret(path)


def _matches_a_name(pattern: str) -> bool:
    matching = re.compile(".*".join(map(re.escape, re.split(r"\*+", pattern))))
    return any(map(matching.fullmatch, _plain_names()))


@cache
def _plain_names() -> tuple[str, ...]:
    """Return the names of the table that are one component without `*`.

    Without `cookies.txt` and the like: `*.txt` means the texts of a project.
    """
    every = [one.removesuffix(TREE) for one in patterns()]
    found = [one for one in every if not one.endswith(".txt")]
    return (*[one for one in found if "*" not in one and "/" not in one], *_OURS)


_SUSPICIOUS: Final = (
    ".", "id_", "shad", "*ssh", "*env", "*aws", "*rsa", "*25519", "credentials", "secrets"
)  # fmt: skip


@cache
def _loose_patterns() -> tuple[frozenset[str], frozenset[str]]:
    """Return patterns of names that only files have, and that programs' words may match."""
    every = patterns(_TILDE)
    loose = frozenset(
        [one for one in every if one.endswith(".*") and not one.startswith((".", "id_"))]
    )
    return every - loose, loose


def _is_secret(path: str) -> bool:
    only_files, loose = _loose_patterns()
    found = compiled(only_files).match(path) and not _IN_PROGRAMS.fullmatch(path)
    found = found or (compiled(loose).match(path) and _DATA.fullmatch(path) is not None)
    return found and not compiled(examples()).match(path)


# --- places


_SYSTEM: Final = (
    *("/usr", "/opt", "/bin", "/lib", "/lib64", "/nix", "/snap", "/Applications", "/System"),
    *("/tmp", "/var/tmp", "/private/tmp", "/var/folders", "/private/var/folders"),  # noqa: S108  compared, never opened
)
_OF_MACHINE: Final = words(
    "/etc/os-release /etc/lsb-release /etc/debian_version /proc/cpuinfo /proc/meminfo /proc/version"
    " /proc/loadavg /proc/uptime /proc/filesystems /proc/sys/kernel/osrelease"
)
"""Files that say what machine this is, and nothing of anybody."""
_STREAMS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_HOOKS: Final = frozenset({".git", ".husky", *STEERING, *STEERING_FILES})
"""Names of files that make programs run, and of directories with such files, at any place."""


def path_of(word: Word, place: CommandPlace) -> str | None:
    """Return the absolute path that a word names; None where that is not known for sure."""
    text = word.text
    if not text or "\0" in text:
        return None
    if text == "~" or text.startswith("~/"):
        text = None if place.home is None else place.home + text[1:]
    if text is None or text.startswith("~"):
        return None
    if text.startswith("/"):
        return None if ".." in text.split("/") else normal(text)
    # `..` after a name could follow a link. At the start of a path its target is known.
    if place.directory is None or not _climbs_first(text):
        return None
    return normal(f"{place.directory}/{text}")


def normal(path: str) -> str:
    """Return an absolute path without `.`, `..` and empty names, as text."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)


def _climbs_first(text: str) -> bool:
    parts = text.split("/")
    while parts and parts[0] in {"..", "."}:
        parts.pop(0)
    return ".." not in parts


def is_within(path: str, directory: str) -> bool:
    """Return whether a normal path is the given directory or lies below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_inside(path: str, place: CommandPlace) -> bool:
    """Return whether a path lies in the workspace."""
    if place.workspace is None or not is_within(path, place.workspace):
        return False
    return not any(is_within(path, stray) for stray in place.strays)


def _is_shown(path: str, place: CommandPlace) -> bool:
    """Return whether a path lies in the workspace, or in the data of the repository it is one of.

    git shows in each worktree what the repository of all of them holds.
    """
    data = place.repository
    return is_inside(path, place) or (data is not None and is_within(path, data))


def is_of_project(path: str, place: CommandPlace) -> bool:
    """Return whether a path lies in the workspace, and in no directory that steers programs.

    The workspace itself may lie in one: a client keeps its worktrees in `.claude`.
    """
    return is_inside(path, place) and not is_protected_name(path[len(place.workspace or "") :])


def may_write(path: str, place: CommandPlace) -> bool:
    """Return whether the sandbox lets a command write there."""
    return (
        path in _STREAMS
        or is_inside(path, place)
        or _depth(path, place.writable) > _depth(path, place.closed)
    )


def _depth(path: str, directories: tuple[str, ...]) -> int:
    """Return the length of the innermost directory that holds a path, or 0 if none does."""
    return max([len(one) for one in directories if is_within(path, one)], default=0)


OUTSIDE: Final = frozenset(
    {"it names a file outside the workspace", "it names files that are not known"}
)
"""The reasons of `why_not_read` that say only where a file lies."""
LED_OUT: Final = "a link leads out of the workspace or to a secret"


def why_not_read(word: Word, place: CommandPlace) -> str | None:
    """Return why reading the file of a word is not harmless, or None if it is harmless."""
    if names_a_secret([word]):
        return "it names what commonly holds secrets"
    reason = why_not_list(word, place)
    if reason is None and word.is_glob and may_match_a_secret(word.pattern.rpartition("/")[2]):
        return "it may name what commonly holds secrets"
    return reason


def why_not_list(word: Word, place: CommandPlace) -> str | None:
    """Return why showing name and size of the file of a word is not harmless, or None if it is.

    What lies outside the workspace stays a question: names of keys say what else there is.
    """
    if word.is_glob:
        return _why_not_glob(word, place)
    if names_a_secret([word]) and not is_inside(path_of(word, place) or "/", place):
        return "it names what commonly holds secrets"
    return None if word.text == "-" else _why_not_named(word, place)


def _why_not_named(word: Word, place: CommandPlace) -> str | None:
    path = path_of(word, place)
    if path is None:
        return "it names a file that is not known"
    if path in _STREAMS or path in _OF_MACHINE or _is_shown(path, place):
        return None
    # A workspace below `/tmp` has links, too.
    if any(is_within(path, stray) for stray in place.strays):
        return LED_OUT
    # So may a home, which is nobody else's, but for what is the server's own in it.
    homes = () if place.home in {None, "/"} else (place.home or "",)
    at_home = _depth(path, (*place.closed, *homes))
    if _depth(path, place.writable) > at_home:
        return None
    if not at_home and any(is_within(path, top) for top in _SYSTEM):
        return None
    return "it names a file outside the workspace"


def glob_directory(word: Word, place: CommandPlace) -> str | None:
    """Return the directory of the files that a glob matches.

    It is None if there may be several, or none known.
    """
    directory, slash, _ = word.pattern.rpartition("/")
    # `.*` alone may match `..`.
    if not word.is_glob or "*" in directory or not (slash or _HERE.match(word.pattern)):
        return None
    return path_of(Word(directory or slash or "."), place)


_HERE: Final = re.compile(r"\.?\w", re.ASCII)


def _why_not_glob(word: Word, place: CommandPlace) -> str | None:
    directory = glob_directory(word, place)
    if directory is None or not _is_shown(directory, place):
        return "it names files that are not known"
    if any(is_within(stray, directory) for stray in place.strays):
        return LED_OUT
    return None


def is_protected_name(path: str) -> bool:
    """Return whether a path has a name that is protected at some places.

    A pattern that begins with a dot may stand for one: `.g*/hooks`, `.{git,x}`.
    """
    parts = path.lower().split("/")
    return any(part in _HOOKS or (part[:1] == "." and _GLOB & {*part}) for part in parts)


_GLOB: Final = frozenset("*?[{")

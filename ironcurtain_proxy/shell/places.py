"""Paths in shell commands, compared with the directories around the command.

Paths are compared as text. The sandbox confines access through links; a wrong result here only
costs a question.
"""

from typing import Final

from ironcurtain_proxy.model.request import CommandPlace, Word
from ironcurtain_proxy.model.values import STEERING, STEERING_FILES
from ironcurtain_proxy.shell.secrets import may_match_a_secret, names_a_secret

_SYSTEM: Final = (
    *("/usr", "/opt", "/bin", "/lib", "/lib64", "/nix", "/snap", "/Applications", "/System"),
    *("/tmp", "/var/tmp", "/private/tmp", "/var/folders", "/private/var/folders"),  # noqa: S108  compared, never opened
)
_STREAMS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_HOOKS: Final = frozenset({".git", ".husky", *STEERING, *STEERING_FILES})
"""Names of files that make programs run, and of directories with such files, at any place."""


def path_of(word: Word, place: CommandPlace) -> str | None:
    """The absolute path that a word names; None where that is not known for sure."""
    text = word.text
    if not text or "\0" in text:
        return None
    if text == "~" or text.startswith("~/"):
        text = None if place.home is None else place.home + text[1:]
    if text is None or text.startswith("~"):
        return None
    if text.startswith("/"):
        return None if ".." in text.split("/") else _normal(text)
    # `..` after a name could follow a link. At the start of a path its target is known.
    if place.directory is None or not _climbs_first(text):
        return None
    return _normal(f"{place.directory}/{text}")


def _normal(path: str) -> str:
    """An absolute path without `.`, `..` and empty names, as text."""
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
    """Whether a normal path is the given directory or lies below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_inside(path: str, place: CommandPlace) -> bool:
    """Whether a path lies in the workspace."""
    if place.workspace is None or not is_within(path, place.workspace):
        return False
    return not any(is_within(path, stray) for stray in place.strays)


def is_of_project(path: str, place: CommandPlace) -> bool:
    """Whether a path lies in the workspace, and in none of the directories that steer programs.

    The workspace itself may lie in one: a client keeps its worktrees in `.claude`.
    """
    return is_inside(path, place) and not is_protected_name(path[len(place.workspace or "") :])


def may_write(path: str, place: CommandPlace) -> bool:
    """Whether the sandbox lets a command write there."""
    return (
        path in _STREAMS
        or is_inside(path, place)
        or _depth(path, place.writable) > _depth(path, place.closed)
    )


def _depth(path: str, directories: tuple[str, ...]) -> int:
    """The length of the innermost directory that holds a path; 0: none does."""
    return max([len(one) for one in directories if is_within(path, one)], default=0)


OUTSIDE: Final = frozenset(
    {"it names a file outside the workspace", "a link leads out of the workspace",
     "a link among its files leads out of the workspace", "it names files that are not known"}
)  # fmt: skip
"""The reasons of `why_not_read` that say only where a file lies."""


def why_not_read(word: Word, place: CommandPlace) -> str | None:
    """The reason why reading the file of a word is not harmless, or None if it is harmless."""
    if names_a_secret([word]):
        return "it names what commonly holds secrets"
    reason = why_not_list(word, place)
    if reason is None and word.is_glob and may_match_a_secret(word.pattern.rpartition("/")[2]):
        return "it may name what commonly holds secrets"
    return reason


def why_not_list(word: Word, place: CommandPlace) -> str | None:
    """The reason why showing name and size of the file of a word is not harmless, or None if it is.

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
    if path in _STREAMS or is_inside(path, place):
        return None
    # A workspace below `/tmp` has links, too.
    if any(is_within(path, stray) for stray in place.strays):
        return "a link leads out of the workspace"
    if any(is_within(path, top) for top in _SYSTEM):
        return None
    return "it names a file outside the workspace"


def glob_directory(word: Word, place: CommandPlace) -> str | None:
    """The directory of the files that a glob matches; None: there may be several, or none known."""
    directory, slash, _ = word.pattern.rpartition("/")
    if not word.is_glob or not slash or "*" in directory:
        return None
    return path_of(Word(directory or "/"), place)


def _why_not_glob(word: Word, place: CommandPlace) -> str | None:
    directory = glob_directory(word, place)
    if directory is None or not is_inside(directory, place):
        return "it names files that are not known"
    if any(is_within(stray, directory) for stray in place.strays):
        return "a link among its files leads out of the workspace"
    return None


def is_protected_name(path: str) -> bool:
    """Whether a path has a name that is protected at some places.

    A pattern that begins with a dot may stand for one: `.g*/hooks`, `.{git,x}`.
    """
    parts = path.lower().split("/")
    return any(part in _HOOKS or (part[:1] == "." and _GLOB & {*part}) for part in parts)


_GLOB: Final = frozenset("*?[{")

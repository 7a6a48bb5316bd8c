"""Whether a change of a git configuration can make git run, or send, anything else.

Most keys of git can: commands, hooks, filters, helpers, other configurations to include, other
places to push to. This module knows the few settings that are harmless, such as those that a clone
or a new branch writes. A setting that it does not understand is not harmless.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

_Setting: TypeAlias = tuple[str, str | None, str, str]
"""Section, subsection, key and value; for a line that is not understood, the key is the line."""

_SECTION: Final = re.compile(r'\[([A-Za-z0-9-]+)(?: "([^"\\\n]*)")?\]', re.ASCII)
_LINE: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*) ?= ?([^\"\\#;\0-\x1f]*)", re.ASCII)
_FLAG: Final = re.compile(r"true|false", re.ASCII)
_NUMBER: Final = re.compile(r"[01]", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@+ -]*")
_REFERENCES: Final = re.compile(r"\+?refs/[A-Za-z0-9._/*-]+:refs/[A-Za-z0-9._/*-]+", re.ASCII)
_URL: Final = re.compile(r"(?!-)(?!.*::).+")
_WORKTREE: Final = re.compile(r"(?:\.\./)+[A-Za-z0-9._/-]+", re.ASCII)

_PLACE: Final = ("core", "worktree")
_NAMED: Final = re.compile(
    r"^(?:\[[^\]\n]*\])?[ \t]*(hookspath|path)[ \t]*=[ \t]*\"?([^\"\n;#]+)",
    re.ASCII | re.IGNORECASE | re.MULTILINE,
)

_HARMLESS: Final[Mapping[tuple[str, str], re.Pattern[str]]] = {
    ("core", "repositoryformatversion"): _NUMBER,
    ("core", "filemode"): _FLAG,
    ("core", "bare"): _FLAG,
    ("core", "logallrefupdates"): _FLAG,
    ("core", "ignorecase"): _FLAG,
    ("core", "precomposeunicode"): _FLAG,
    ("core", "symlinks"): _FLAG,
    ("core", "worktree"): _WORKTREE,
    ("extensions", "refstorage"): _WORD,
    ("user", "name"): re.compile(r".*"),
    ("user", "email"): re.compile(r".*"),
}
_HARMLESS_IF_NEW: Final[Mapping[tuple[str, str], re.Pattern[str]]] = {
    ("remote", "url"): _URL,
    ("remote", "fetch"): _REFERENCES,
    ("remote", "tagopt"): _WORD,
    ("branch", "remote"): re.compile(rf"\.|{_WORD.pattern}"),
    ("branch", "merge"): _WORD,
    ("submodule", "url"): _URL,
    ("submodule", "active"): _FLAG,
}
"""Settings that are harmless for a new remote, branch or submodule."""


def is_harmless(before: bytes | None, now: bytes) -> bool:
    """Whether every new setting of a configuration is harmless.

    Args:
        before: the earlier content; None: there was no file.
        now: the present content.
    """
    if now == before:
        return True
    text = _text(now)
    if text is None or "\\\n" in text:
        return False
    known = set(_settings(_text(before or b"") or ""))
    sections = {(section, name) for section, name, _, _ in known}
    return all(
        setting in known or _is_harmless(setting, is_new=setting[:2] not in sections)
        for setting in _settings(text)
    )


def named_files(text: str) -> Iterator[tuple[bool, str]]:
    """The directories of hooks (True) and the configurations (False) that a configuration names."""
    for found in _NAMED.finditer(text):
        yield found[1].lower() == "hookspath", found[2].strip()


def keeps_worktree(repository: str, before: bytes | None, now: bytes) -> bool:
    """Return whether a configuration names no new worktree but that of a submodule.

    Any other could be the home directory, where a checkout writes.

    Args:
        repository: the directory of git, absolute.
        before: the earlier content; None: there was no file.
        now: the present content.
    """
    found = worktrees(now)
    if found <= worktrees(before or b""):
        return True
    owner, modules, _ = repository.partition("/.git/modules/")
    return bool(modules) and all(
        posixpath.normpath(f"{repository}/{one}").startswith(f"{owner}/") for one in found
    )


def worktrees(content: bytes) -> frozenset[str]:
    """The worktrees that a configuration names, relative to its directory."""
    found = _settings(_text(content) or "")
    return frozenset([value for section, _, key, value in found if (section, key) == _PLACE])


def _is_harmless(setting: _Setting, *, is_new: bool) -> bool:
    section, name, key, value = setting
    if name is None:
        pattern = _HARMLESS.get((section, key))
    else:
        pattern = _HARMLESS_IF_NEW.get((section, key)) if is_new else None
    return pattern is not None and pattern.fullmatch(value) is not None


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _settings(text: str) -> Iterator[_Setting]:
    section: str = ""
    name: str | None = None
    for raw in text.split("\n"):
        line = raw.strip(" \t\r")
        if not line or line[0] in "#;":
            continue
        if (header := _SECTION.fullmatch(line)) is not None:
            section, name = header[1].lower(), header[2]
        elif (found := _LINE.fullmatch(line)) is not None:
            yield section, name, found[1].lower(), found[2].strip()
        else:
            # Also a header with something behind it: what follows belongs to nothing we know.
            section, name = f"{section}\0", None
            yield section, name, line, ""

"""Sub-commands of git that only read.

git runs programs that its configuration names: pagers, diff drivers, a file system monitor. That
configuration is a protected file wherever it lies; so these sub-commands only read in a directory
with a `.git` of its own, where nothing else is taken for a configuration.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.shell.options import ParsedOptions
from ironcurtain_proxy.shell.places import path_of
from ironcurtain_proxy.shell.reads import ReadingProgram, reader, why_not_reader
from ironcurtain_proxy.shell.secrets import names_a_secret_file

_DIFF: Final = (
    " p u U: patch no-patch s stat? shortstat numstat name-only name-status diff-filter: M C w b"
    " ignore-all-space ignore-space-change ignore-blank-lines word-diff? color? no-color"
    " cached staged exit-code quiet check no-renames find-renames? find-copies? minimal patience"
    " histogram summary raw z R relative? abbrev? unified: text a function-context W S: G:"
    " pickaxe-all no-prefix compact-summary dirstat? merge-base cc c m full-index binary"
)
_LOG: Final = _DIFF + (
    " oneline n: # max-count: skip: format: pretty? graph all decorate? no-decorate author: since:"
    " until: after: before: grep: i E F follow reverse merges no-merges first-parent date:"
    " abbrev-commit no-abbrev-commit cherry-pick left-right cherry-mark ancestry-path L: topo-order"
    " date-order branches? tags? remotes? source full-history q invert-grep all-match committer:"
    " left-only right-only children parents boundary simplify-by-decoration no-walk reflog g t root"
)
_LIST: Final = "l list contains: no-contains: merged: no-merged: points-at: sort: format: i column?"


def _format(reading: ParsedOptions) -> str | None:
    """Check that a format runs no program, as one with a signature does."""
    shown = reading.values_of("--format", "--pretty")
    if any(word.text is None or re.search(r"%G|signature|trailers", word.text) for word in shown):
        return "its format may run a program"
    return None


def _objects(reading: ParsedOptions) -> str | None:
    """Check that revisions and files are not ones that commonly hold secrets."""
    if any(word.text is None for word in reading.operands):
        return "it has an operand that is not known"
    # `git diff` of two files outside a repository shows files as `diff` does.
    if any(re.match(r"[/~]|\.\.(?:/|$)", word.text or "") for word in reading.operands):
        return "it names a file outside the repository"
    # git itself reads an operand as a pattern: `git show HEAD -- '.e*'`, `':(glob).e*'`.
    if any(names_a_secret_file(_MAGIC.sub("", word.text or "")) for word in reading.operands):
        return "it names what commonly holds secrets"
    return _format(reading)


_MAGIC: Final = re.compile(r"^:(?:\([^)]*\)|[/!^]+:?)")
"""The signs in front of a path of git."""


def _listing(reading: ParsedOptions) -> str | None:
    """Check that the sub-command lists: an operand without `--list` creates something."""
    if reading.operands and not reading.has("-l", "--list"):
        return "with an operand it makes something"
    return _objects(reading)


def _reflog(reading: ParsedOptions) -> str | None:
    words = [word.text for word in reading.operands]
    if words and words[0] in {"expire", "delete", "drop", "exists", "write", "migrate"}:
        return "it changes the log of references"
    return _objects(reading)


_NAMES: Final = re.compile(
    r"user\.(?:name|email)|branch\.[\w./-]+|init\.defaultbranch|core\.\w+|pull\.\w+|push\.\w+"
    r"|remote\.[\w.-]+\.(?:url|fetch)|merge\.\w+|commit\.\w+",
    re.IGNORECASE,
)


def _config(reading: ParsedOptions) -> str | None:
    """Check that one name is read, and that it holds no secret."""
    words = [word.text or "" for word in reading.operands]
    if words[:1] == ["get"]:
        words = words[1:]
    elif not reading.has("--get", "--get-all"):
        return "it may set a value"
    named = len(words) == 1 and _NAMES.fullmatch(words[0])
    return None if named else "what it shows may hold a secret"


_SHOWS: Final = reader(_LOG, "names", check=_objects)
_PLAIN: Final = reader("", "names", check=_objects)

GIT: Final[Mapping[str, ReadingProgram]] = {
    "status": reader("s b v z short branch porcelain? long show-stash ignored? untracked-files? u"
                     " ahead-behind no-ahead-behind renames no-renames", "names",
                     check=_objects),
    "log": _SHOWS, "show": _SHOWS, "diff": reader(_DIFF, "names", check=_objects),
    "whatchanged": _SHOWS, "diff-tree": reader(_DIFF + " r no-commit-id root", "names",
                                               check=_objects),
    "diff-index": reader(_DIFF, "names", check=_objects), "range-diff": _SHOWS,
    "stash list": _SHOWS, "stash show": _SHOWS,
    "reflog": reader(_LOG, "names", check=_reflog),
    "shortlog": reader("s n e since: until: no-merges all", "names", check=_objects),
    "rev-list": reader(_LOG + " count objects", "names", check=_objects),
    "branch": reader("a r v show-current all remotes verbose no-color abbrev? " + _LIST, "names",
                     check=_listing),
    "tag": reader("n # " + _LIST, "names", check=_listing),
    "remote": reader("v verbose", "none"),
    "remote get-url": reader("all push", "names", check=_objects),
    "rev-parse": reader("q abbrev-ref? short? show-toplevel git-dir is-inside-work-tree verify"
                        " symbolic-full-name show-prefix show-cdup absolute-git-dir git-common-dir"
                        " is-bare-repository all branches tags remotes symbolic quiet", "names",
                        check=_objects),
    "ls-files": reader("m o d s u c t z v others exclude-standard modified cached deleted stage"
                       " unmerged error-unmatch ignored i full-name directory", "names",
                       check=_objects),
    "ls-tree": reader("r t d l z name-only name-status full-tree full-name long", "names",
                      check=_objects),
    "cat-file": reader("p t s e batch-check?", "names", check=_objects),
    "merge-base": reader("a all is-ancestor fork-point octopus independent", "names",
                         check=_objects),
    "describe": reader("tags always dirty? abbrev: long all exact-match match: exclude:"
                       " first-parent contains", "names", check=_objects),
    "blame": reader("L: w M C s e l p t f n date: porcelain line-porcelain show-email root",
                    "names", check=_objects),
    "for-each-ref": reader("format: sort: count: merged: contains: points-at: no-merged:", "names",
                           check=_objects),
    "show-ref": reader("s q d heads tags branches verify hash? abbrev? dereference", "names",
                       check=_objects),
    "grep": reader("n i l c w E F P H h o q v e: A: B: C: # cached name-only count heading break"
                   " line-number files-with-matches ignore-case word-regexp max-depth: no-color",
                   "names", check=_objects),
    "check-ignore": reader("v q n verbose quiet non-matching no-index", "names", check=_objects),
    "check-ref-format": reader("branch normalize allow-onelevel", "names"),
    "symbolic-ref": reader("q short quiet", "names", most=1),
    "config": reader("get get-all global local", "names", check=_config),
    "worktree list": reader("v porcelain z verbose", "none"),
    "count-objects": reader("v H verbose human-readable", "none"),
    "fsck": reader("full connectivity-only unreachable dangling no-dangling no-progress root tags"
                   " no-reflogs strict cache name-objects", "names", check=_objects),
    "verify-pack": reader("v s verbose stat-only", "names", check=_objects),
    "name-rev": reader("tags name-only always", "names", check=_objects),
    "cherry": reader("v abbrev?", "names", check=_objects),
    "version": reader("", "none"),
    "submodule status": _PLAIN,
}  # fmt: skip
"""The readers by sub-command."""

_GLOBAL: Final = frozenset({"--no-pager", "-P", "--no-optional-locks"})


def why_not_git(words: Sequence[Word], place: Place, variables: frozenset[str]) -> str | None:
    """The reason why a git command does more than read; None: it only reads."""
    at = 0
    while at < len(words) and (words[at].text in _GLOBAL or words[at].text == "-C"):
        if words[at].text == "-C":
            at += 1
            # Another directory may have another repository, or what only looks like one.
            here = at < len(words) and path_of(words[at], place) == place.directory
            if not here or place.directory is None:
                return "it works in another directory"
        at += 1
    if not place.has_repository:
        return "it is not known which repository it works in"
    rest = words[at:]
    names = [word.text or "" for word in rest[:2]]
    for length in (2, 1):
        found = GIT.get(" ".join(names[:length])) if len(names) >= length else None
        if found is not None:
            return why_not_reader(found, rest[length:], place, variables)
    return "the sub-command is not known to only read"

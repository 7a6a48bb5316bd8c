"""Programs that only read, git among them.

The further checks of programs that only read, beside their options in `programs.toml`.

Sub-commands of git that only read.

git runs programs that its configuration names: pagers, diff drivers, a file system monitor. That
configuration is a protected file wherever it lies; so these sub-commands only read in a directory
with a `.git` of its own, where nothing else is taken for a configuration.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ironcurtain_proxy.model.request import CommandPlace, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.grammar import (
    LOCAL_NAME,
    Check,
    ParsedOptions,
    here,
    reading_program,
    shows_variables,
    why_not_reader,
)
from ironcurtain_proxy.shell.places import (
    is_inside,
    may_match_a_secret,
    names_a_secret,
    names_a_secret_file,
    path_of,
    why_not_read,
)
from ironcurtain_proxy.shell.programs import word_set


def _jq(reading: ParsedOptions) -> str | None:
    """Check the filter of `jq`: it may read the environment, or load a module."""
    words = reading.operands[:1]
    text = words[0].text if words else ""
    if text is None:
        return "its filter is not known"
    if re.search(r"\b(?:env|ENV|import|include|modulemeta|input_filename)\b", text):
        return "its filter may show the environment or load a module"
    return None


def _expression(mark: str) -> str:
    """Return a regular expression between two marks.

    Some implementations of `sed` and `awk` take a mark in brackets, or a backslash there, for the
    end, others do not: neither may stand there.
    """
    return rf"(?:[^{mark}\\\n\[]|\\[^\n]|\[\^?\]?+[^\]\n\\{mark}]*\])*+"


_LINE: Final = f"/{_expression('/')}/"
"""An expression that matches lines, and runs nothing."""
_ADDRESS: Final = rf"(?:\d+|\$|{_LINE})"
_SUBSTITUTE: Final = "|".join(
    rf"{mark}{_expression(mark)}{mark}(?:[^{mark}\\\n]|\\[^\n])*{mark}[gpI0-9]*"
    for mark in (re.escape(one) for one in "/|,#:@")
)
_SED: Final = re.compile(
    rf"\s*+(?:{_ADDRESS}(?:,{_ADDRESS})?)?\s*+!?\s*+(?:[pdq=]|s(?:{_SUBSTITUTE}))\s*+"
)


def _sed(reading: ParsedOptions) -> str | None:
    """Check that a script of `sed` has only p, d, q, = and s, whose flags neither write nor run."""
    for script in reading.values_of("-e", "--expression") or reading.operands[:1]:
        steps = [script.text or ""]
        if script.text is not None and re.fullmatch(r"[\d$,;pd ]+", script.text):
            steps = [step for step in script.text.split(";") if step.strip()]
        if script.text is None or not all(map(_SED.fullmatch, steps)) or not steps:
            return "its script may do more than print"
    return None


_AWK: Final = re.compile(
    rf"\s*+(?:NR ?[<>=!]=? ?\d+|NF|{_LINE}(?:, ?{_LINE})?)?"
    r"(?: ?(?:&&|\|\|) ?NR ?[<>=!]=? ?\d+)?\s*+"
    r"""(?:\{ ?print(?: (?:\$(?:\d+|NF)|NR|NF|"[\w :/.-]*")"""
    r"""(?:, ?| ?(?=[$"NR])|(?= ?\})))* ?\})?\s*"""
)


def _awk(reading: ParsedOptions) -> str | None:
    """Check that a program of `awk` has one condition on the line, and prints fields."""
    script = reading.operands[0] if reading.operands else None
    text = None if script is None else script.text
    # `1>2` and `print > "f"` look alike: no comparison may stand behind `print`.
    if text is None or not text.strip() or not _AWK.fullmatch(text):
        return "its program may do more than print fields"
    return None


def _printf(reading: ParsedOptions) -> str | None:
    """Check that a format has only `%s`: some shells evaluate a number as arithmetic."""
    text = reading.operands[0].text if reading.operands else None
    if text is None or re.search(r"%(?![%s]|-?\d+s)", text):
        return "its format may evaluate its arguments"
    return None


def _date(reading: ParsedOptions) -> str | None:
    """Check that `date` gets only `+FORMAT`: any other operand sets the clock."""
    formats = all((word.text or "").startswith("+") for word in reading.operands)
    return None if formats else "an operand sets the clock"


def _numbers(reading: ParsedOptions) -> str | None:
    plain = all(re.fullmatch(r"\d*\.?\d+[smhd]?", w.text or "", re.ASCII) for w in reading.operands)
    return None if plain else "an operand is not a number"


def _ps(reading: ParsedOptions) -> str | None:
    # Among options `e` may mean the environment, as it does in `ps -xe`.
    plain = all(word.text in {"aux", "ax", "au", "x", "auxww"} for word in reading.operands)
    alone = not reading.operands or not reading.options
    return None if plain and alone else "it may show the environment of processes"


def _names(reading: ParsedOptions) -> str | None:
    plain = all(LOCAL_NAME.fullmatch(w.text or "") for w in reading.operands)
    return None if plain else "a variable is set that may change what programs do"


def _grep(reading: ParsedOptions) -> str | None:
    """Check that a recursive `grep` names kinds of files: without, it also reads secrets."""
    if not reading.has("-r", "-R", "--recursive", "--dereference-recursive"):
        return None
    # A file that no kind matches is read, too, unless the first of these options is an `--include`.
    kinds = [one for one in reading.options if one[0] in {"--include", "--exclude"}]
    first = kinds[0][0] if kinds else ""
    if first == "--include" and _are_plain(reading.values_of("--include")):
        return None
    return None if _are_files(_behind_pattern(reading)) else "it reads every file of a tree"


def _rg(reading: ParsedOptions) -> str | None:
    """Check that `rg` names files or kinds of files: without, it also reads secrets.

    It reads hidden and ignored files only if a glob names them.
    """
    globs = reading.values_of("-g", "--glob")
    if not all(re.fullmatch(_KIND, word.text or "") for word in globs):
        return "a glob may name hidden files"
    if reading.has("--files"):
        return None
    named = [word for word in globs if not word.prefix.startswith("!")]
    types = {word.text for word in reading.values_of("-t", "--type")}
    # Where a glob names kinds, the types do not matter.
    is_plain = _are_plain(named) if named else bool(types) and types <= word_set("types")
    if is_plain or _are_files(_behind_pattern(reading)):
        return None
    return "it reads every file of a tree"


_KIND: Final = r"!?[\w*/-]*\.(?:\w+|\{\w+(?:,\w+)*\})|![\w*/.-]+"
"""A glob of `rg` for names with a certain ending, or for what is left out."""


def _are_plain(kinds: Iterable[Word]) -> bool:
    """Return whether there are kinds of files, and none may match a secret."""
    found = [word.text or "" for word in kinds]
    return bool(found) and all(
        re.fullmatch(_KIND, kind) and not any(map(may_match_a_secret, _alternatives(kind)))
        for kind in found
    )


def _alternatives(kind: str) -> list[str]:
    name = kind.rpartition("/")[2]
    before, brace, inner = name.partition("{")
    return [before + one for one in inner.rstrip("}").split(",")] if brace else [name]


def _behind_pattern(reading: ParsedOptions) -> Sequence[Word]:
    given = reading.has("-e", "--regexp", "-f", "--file")
    return reading.operands if given else reading.operands[1:]


def _are_files(operands: Sequence[Word]) -> bool:
    """Return whether the operands are files, by their endings."""
    names = [word.pattern if word.text is None else word.text for word in operands]
    endings = [name.rpartition(".") for name in names]
    return bool(endings) and all(
        before.rpartition("/")[2] and ending.lower() in word_set("endings")
        for before, _, ending in endings
    )


def _two_files(reading: ParsedOptions) -> str | None:
    """Check that the operands are files: of two directories every file is shown, also secrets."""
    return None if _are_files(reading.operands) else "it may compare trees"


def _no_response_file(reading: ParsedOptions) -> str | None:
    """Check that no word names a file with further options, as `@file` does."""
    given = [*reading.operands, *(value for _, value in reading.options if value is not None)]
    return "it may read options from a file" if any(w.prefix[:1] == "@" for w in given) else None


CHECKS: Final[Mapping[str, Check]] = {
    "jq": _jq, "sed": _sed, "awk": _awk, "printf": _printf, "date": _date, "numbers": _numbers,
    "ps": _ps, "local-names": _names, "grep": _grep, "rg": _rg, "two-files": _two_files,
    "no-response-file": _no_response_file,
}  # fmt: skip
"""The further checks of the table, by name."""

VERSIONS: Final = word_set("show-versions")
"""Programs that only show their version for `--version` alone, without a look at the project.
Programs that a version manager replaces by those of the project (go, cargo, npm, …) are missing."""


def why_not_find(
    rest: Sequence[Word], place: CommandPlace, variables: frozenset[str]
) -> str | None:
    """Return why a `find` does more than list, or None if it only lists."""
    del variables  # nothing that is not known may stand there
    if any(word.splits or word.text is None for word in rest):
        return "an argument that is not known could be an action"
    flags, with_value = word_set("flags"), word_set("values")
    files: list[Word] = []
    at = 0
    while at < len(rest):
        text = rest[at].text or ""
        if text.startswith("-") and text not in flags | with_value:
            return f"{text} is not known to only list"
        if text not in flags | with_value:
            files.append(rest[at])
        elif text == "-newer":
            files += rest[at + 1 : at + 2]
        at += 2 if text in with_value else 1
    # In the workspace a name is no more than a listing shows.
    is_here = all(is_inside(path_of(one, place) or "/", place) for one in files or [Word(".")])
    if not is_here and names_a_secret(rest):
        return "it names what commonly holds secrets"
    reasons = (why_not_read(word, place) for word in files or here(place))
    return next((one for one in reasons if one is not None), None)


_UNARY: Final = words("-e -f -d -s -r -w -x -z -n -L -h -p -S -b -c -u -g -k -O -G")
_BINARY: Final = frozenset({"=", "==", "!="})
_NUMERIC: Final = words("-eq -ne -lt -le -gt -ge")
_JOINS: Final = frozenset({"!", "&&", "||"})


def why_not_test(
    name: str, rest: Sequence[Word], place: CommandPlace, variables: frozenset[str]
) -> str | None:
    """Return why `test`, `[` or `[[` does more than read, or None if it only reads.

    Arithmetic is more: shells evaluate an operand of `-eq`, `-v` or `-t` as an expression, and a
    substitution in a subscript is run then: `[[ 'a[$(id)]' -eq 0 ]]`.
    """
    del place  # whether a file exists says little: any path may be tested
    end = {"[": "]", "[[": "]]"}.get(name)
    if end is not None and (not rest or rest[-1].text != end):
        return "a test is not understood"
    inner = rest if end is None else rest[:-1]
    if name != "[[" and any(word.splits for word in inner):
        return "an operand is not known"
    clauses: list[list[Word]] = [[]]
    for word in inner:
        if word.text in _JOINS:
            clauses.append([])
        else:
            clauses[-1].append(word)
    plain = all(_plain(clause) for clause in clauses if clause)
    return shows_variables(inner, variables) if plain else "a test may evaluate an operand"


def _plain(clause: Sequence[Word]) -> bool:
    texts = [word.text for word in clause]
    match texts:
        case [_]:
            return True
        case [operator, _]:
            return operator in _UNARY
        case [left, operator, right] if operator in _NUMERIC:
            numbers = (re.fullmatch(r"-?\d+", text or "", re.ASCII) for text in (left, right))
            return all(numbers)
        case [_, operator, _]:
            return operator in _BINARY
        case _:
            return False


# --- git readers


def _format(reading: ParsedOptions) -> str | None:
    """Check that a format runs no program, as one with a signature does."""
    shown = reading.values_of("--format", "--pretty")
    if any(word.text is None or re.search(r"%G|signature|trailers", word.text) for word in shown):
        return "its format may run a program"
    return None


def _objects(reading: ParsedOptions, *, lists: bool = False) -> str | None:
    """Check that revisions and files are not ones that commonly hold secrets."""
    if any(word.text is None for word in reading.operands):
        return "it has an operand that is not known"
    # `git diff` of two files outside a repository shows files as `diff` does.
    if any(re.match(r"[/~]|\.\.(?:/|$)", word.text or "") for word in reading.operands):
        return "it names a file outside the repository"
    # git itself reads an operand as a pattern: `git show HEAD -- '.e*'`, `':(glob).e*'`.
    named = any(names_a_secret_file(_MAGIC.sub("", word.text or "")) for word in reading.operands)
    shows = reading.has(*word_set("content")) or not reading.has(*word_set("names-only"))
    if named and shows and not lists:
        return "it names what commonly holds secrets"
    return _format(reading)


def _stash(reading: ParsedOptions) -> str | None:
    """Check that a stash is shown without the untracked files in it: there `-u` adds them."""
    return "it may show untracked files" if reading.has("-u") else _objects(reading)


def _listed(reading: ParsedOptions) -> str | None:
    """Check the same of a sub-command that shows names of files alone, unless it is told to."""
    return _objects(reading, lists=not reading.has(*word_set("content"), "-v", "--verbose"))


_MAGIC: Final = re.compile(r"^:(?:\([^)]*\)|[/!^]+:?)")
"""The signs in front of a path of git."""


def _listing(names: Sequence[str], reading: ParsedOptions) -> str | None:
    """Check that branches or tags are listed: an operand without `--list` creates one."""
    if reading.operands and not reading.has(*names):
        return "with an operand it makes something"
    return _objects(reading)


def _reflog(reading: ParsedOptions) -> str | None:
    named = [word.text for word in reading.operands]
    if not {"expire", "delete", "drop", "write", "migrate"}.isdisjoint(named):
        return "it changes the log of references"
    return _objects(reading)


_NAMES: Final = re.compile(
    r"user\.(?:name|email)|branch\.[\w./-]+|init\.defaultbranch|core\.\w+|pull\.\w+|push\.\w+"
    r"|remote\.[\w.-]+\.(?:url|fetch)|merge\.\w+|commit\.\w+",
    re.IGNORECASE,
)


def _config(reading: ParsedOptions) -> str | None:
    """Check that one name is read, and that it holds no secret."""
    given = [word.text or "" for word in reading.operands]
    if given[:1] == ["get"]:
        given = given[1:]
    elif not reading.has("--get", "--get-all"):
        return "it may set a value"
    named = len(given) == 1 and _NAMES.fullmatch(given[0])
    return None if named else "what it shows may hold a secret"


_CHECKS: Final[Mapping[str, Check]] = {
    "objects": _objects, "listed-objects": _listed, "tags": partial(_listing, ("-l", "--list")),
    # To older versions of `git branch` `-l` is another option, which creates one as well.
    "branches": partial(_listing, ("--list",)),
    "reflog": _reflog, "config": _config, "stash": _stash,
}  # fmt: skip

_GLOBAL: Final = frozenset({"--no-pager", "-P", "--no-optional-locks"})


def why_not_git(
    words: Sequence[Word], place: CommandPlace, variables: frozenset[str]
) -> str | None:
    """Return why a git command does more than read, or None if it only reads."""
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
        name = " ".join(["git", *names[:length]])
        found = reading_program(name) if len(names) >= length else None
        if found is not None:
            return why_not_reader(found, rest[length:], place, variables, _CHECKS)
    return "the sub-command is not known to only read"

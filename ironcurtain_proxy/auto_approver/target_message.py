"""A message taken apart: requests in the words of a closed vocabulary, and nothing else.

Theory of operation. A message is cut into clauses at its commas, full stops and `and`s:

    great, commit this and push it to origin/topic. then check the pipeline
    ─────  ───────────     ───────────────────────  ───────────────────────
    praise commit          push, names origin/topic another matter

A clause is a request where it begins with a verb of the table, and each other word of it names a
target or is one of the few that say nothing of a target (`it`, `my changes`, `please`). Praise, a
report ("the tests are green") and another matter behind a request may stand beside it. Sentences
are not parsed: there is no order of words but that a name stands behind `to` and the like. A
message with any other word approves nothing, so that words nobody thought of ("refrain", "in
theory", "Bob says") go to a person.

This file does not know the call that is to be approved.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.target_call import GitOperation, NotUnderstood, SpelledVerb
from ironcurtain_proxy.auto_approver.vocabulary import TABLE, pattern, these, words_of

Verb: TypeAlias = Literal[GitOperation, SpelledVerb, "pr", "ready", "install"]
"""`ready`: of a pull request, for review."""


class StatedRequest(Struct, frozen=True, kw_only=True):
    """One operation that the message asks for."""

    verb: Verb
    names: tuple[str, ...] = ()
    """Remotes and branches, packages, paths or an address, as they were typed."""
    branch: str | None = None
    """The name before the word, in "push the login branch": of the branch, or its last part."""
    about: tuple[str, ...] = ()
    """Words that describe what is committed or pushed: `login` in "push the login branch"."""
    quoted: str | None = None
    """The text that is to be written."""
    kind: Literal["file", "directory"] | None = None
    manager: str | None = None
    """The package manager or service that the request names, such as `npm`."""
    draft: bool = False
    """Whether a draft is requested."""


MAX_MESSAGE: Final = 1000
"""Characters. Nobody types more to ask for one thing; it is pasted text."""

# --- the vocabulary -------------------------------------------------------------------------------


GATE: Final = these("gate")
"""Words that negate, take back, limit, put off, ask or tell of the past."""

_QUOTE_MARK: Final = "\x00"
_SAYS: Final = "\x01"
"""A quoted text, and what introduces it: no words that a message can have."""
_SAME: Final = tuple(
    [
        (pattern(rf"(?<![\w'/.@-])(?:{phrase})(?![\w'/@-])"), word)
        for word, phrase in TABLE["same"]["list"]
    ]
)
_POLITE: Final = these("polite")
_PREPARES: Final = these("prepares")
_FOLLOWS: Final = _PREPARES | these("follows")
_ASKS: Final = these("asks")
_TELLS: Final = these("tells")
"""Behind these of another matter such a word limits nothing: "push, then tell me what failed"."""
_PRAISE, _REPORT, _DID, _TWO_THINGS = [
    pattern(TABLE["phrases"][name]) for name in ("praise", "report", "did", "two-things")
]
_MOST_BEFORE: Final = 5
_MOST_BEHIND: Final = 9
_FREE: Final = re.compile(r"#?\w[\w'/.-]*")
_OPERATION: Final = re.compile(
    r"\b(?:add|check ?out|clone|commit|copy|creat|delet|download|edit|eras|execut|fetch|get|install"
    r"|mov|open|overwrit|post|pull|push|read|remov|renam|reset|rm|run|sav|send|show|stag|switch"
    r"|updat|upload|visit|writ|wrot)",
    re.IGNORECASE,
)
"""The verbs of operations, in any form. A text with one may be what the message is about."""
_OBJECT: Final = re.compile(rf"(?:(?:in)?to$|{_OPERATION.pattern})", re.IGNORECASE)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*", re.ASCII)
_PACKAGE: Final = re.compile(r"@?[A-Za-z0-9][\w./-]*(?:(?:@|==)[\w.^~-]+)?", re.ASCII)
_ADDRESS: Final = re.compile(r"https?://[^\s\x00]+", re.IGNORECASE)
_PATH: Final = re.compile(r"(?!.*://)(?:(?:~|\.)?/.*|(?:.+/)?[^/]*\.[A-Za-z0-9_]+)")
"""Words that stand as paths by themselves, by the beginning of a path or the ending of a file.
`feature/old` may be a branch, and `TODO/FIXME` no name at all."""
_DELETED: Final = re.compile(r"(?!.*://)(?:(?:~|\.)/.+|.*/[^/]*\.[A-Za-z][A-Za-z0-9]*)")
"""`console.log`, `/users/42` and `feature/x` are no paths to delete, unless the message says that
they are files: they are a call, a route, a branch."""
_FILE: Final = re.compile(r"(?:[\w.-]+/)*[\w.-]*[^/.]\.[a-z]{1,8}", re.ASCII)
_REF: Final = re.compile(r"(?=.*[/_\d-]|(?:main|master|dev|develop)$)[A-Za-z0-9][\w./-]*", re.ASCII)
"""`old` in "delete the old branch" is none."""
_COMMIT: Final = re.compile(r"HEAD|(?=.*\d)[0-9a-f]{7,40}", re.ASCII)
_VERSION: Final = re.compile(r"[\w-]*\d+(?:\.\d+)+[\w.-]*", re.ASCII)
_THING: Final = re.compile(r"#?\d+|[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""The number of an issue or pull request, or the repository that it is in."""
_CHANNEL: Final = re.compile(r"#[\w-]+", re.ASCII)
_MAILBOX: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)
_CALLED: Final = re.compile(r"(?!.*://)(?:(?:~|\.)?/.*|[A-Za-z0-9_.].*)")


class _Row(Struct, frozen=True):
    """A verb, the first words of a clause that ask for it, and what else may stand in it."""

    verb: Verb
    starts: frozenset[str]
    known: frozenset[str]
    """The words that say nothing of the target: none limits it, or points to one of several."""
    target: re.Pattern[str] | None = None


_TARGETS: Final[Mapping[str, re.Pattern[str] | None]] = {
    "": None, "name": _NAME, "file": _FILE, "address": _ADDRESS, "package": _PACKAGE,
    "path": _PATH, "thing": _THING, "channel": _CHANNEL, "mailbox": _MAILBOX, "deleted": _DELETED,
    "ref": _REF, "commit": _COMMIT, "version": _VERSION,
}  # fmt: skip
_THING_WORDS: Final = words_of("{things} branch feature remote pr") | _POLITE
_ROWS: Final = tuple(
    [
        _Row(one["verb"], words_of(one["starts"]), _POLITE | words_of(one["known"]),
             _TARGETS[one["target"]])
        for one in TABLE["requests"]
    ]
)  # fmt: skip
"""The first row counts that fits all words of a clause."""
_MANAGERS: Final = these("managers")
_INSTALLS: Final = these("installs")
_LOCKED: Final = these("locked")
_PLACES: Final = these("places")
_EXPECTS: Final = _PLACES | these("expects")
_NO_PACKAGES: Final = _MANAGERS | _THING_WORDS | these("no-packages")
_INTRODUCES: Final = these("introduces")
_ARTICLES: Final = these("articles")
_DESCRIBED: Final = these("described")
_BEHIND_PR: Final = _POLITE | these("behind-pr") | {""}
_POINTS: Final = these("points")
_ANY_BRANCH: Final = _POLITE | these("any-branch")
_USUAL: Final = these("usual")
_TWO_PATHS: Final = these("two-paths")
_ON_FILES: Final = these("on-files")
_QUOTING: Final = these("quoting")
_NAMING: Final = these("naming")
_BEHIND: Final = _POLITE | {"entirely"}
"""The words behind a path: "delete ~/Work files" may mean a name with a blank in it."""
_KINDS: Final[Mapping[str, Literal["file", "directory"]]] = {
    "file": "file", "files": "file", "folder": "directory", "directory": "directory"
}  # fmt: skip

# --- reading --------------------------------------------------------------------------------------

_QUOTED: Final = re.compile(r"""(?<!\S)(?:'([^'"`]+)'|"([^'"`]+)")(?=[\s.,;!]|$)""")
_STRAY_QUOTE: Final = re.compile(
    "[\"`\u2018\u201c\u201d\u00ab\u00bb]|~~~|^>|(?<![A-Za-z])['\u2019]|['\u2019](?![A-Za-z])"
)
_LIST: Final = re.compile(r"(?:(?:[-*]|\d[.)]) [^\n]+(?:\n+(?!$)|$)){2,}")
"""What stands behind a line without a mark may be pasted."""
_MARK: Final = re.compile(r"^(?:[-*]|\d[.)]) |\n(?=\n)", re.MULTILINE)
_QUESTION: Final = re.compile(r"\?(?=$|[\s.,;!?)])|(?<!\S)(?![a-z]+://)\S*\?", re.IGNORECASE)
_PURPOSE: Final = r"so (?:that|i|we|you|ci|the|it|he|she|they)\b"
_CLAUSE_END: Final = re.compile(
    r"(?<=\S)[.!;,](?=\s|$)| - |(?<!\S)and(?!\S)| then (?=\S)" + rf"|(?<=\S) (?={_PURPOSE})",
    re.IGNORECASE,
)
_AMBIGUOUS: Final = pattern(
    TABLE["phrases"]["ambiguous"], rf"|\b{_REPORT.pattern}[.;,]?(?: and)? then\b"
)
"""In "tests pass, then push" the report may be what has to come first, and so may a review."""


def requests_of(message: str) -> tuple[StatedRequest, ...] | NotUnderstood:
    """Split a message into its requests.

    Args:
        message: the user's, as it came.
    """
    is_long = len(message) > MAX_MESSAGE
    message = "" if is_long else message.strip().replace("\u2019", "'")
    if _LIST.fullmatch(message):
        message = "; ".join(_MARK.sub("", message).split("\n"))
    if is_long or not message.isprintable():
        return NotUnderstood("the message is long, or has several lines or unseen characters")
    return _of_line(message)


def _of_line(message: str) -> tuple[StatedRequest, ...] | NotUnderstood:
    quoted = [single or double for single, double in _QUOTED.findall(message)]
    text = _QUOTED.sub(_QUOTE_MARK, message)
    if any(map(_OPERATION.search, quoted)) or _STRAY_QUOTE.search(text):
        return NotUnderstood("the message quotes a request, or what is no evidence")
    text = text.replace(f": {_QUOTE_MARK}", f" {_SAYS} {_QUOTE_MARK}")
    for phrase, word in _SAME:
        text = phrase.sub(word, text)
    asks = _QUESTION.search(message)
    if asks or _AMBIGUOUS.search(text):
        why = "asks a question" if asks else "may mean something else than a request"
        return NotUnderstood(f"the message {why}")
    requests = _requests(text)
    if isinstance(requests, NotUnderstood) or not quoted:
        return requests
    if sum(one.quoted is not None for one in requests) != len(quoted):
        return NotUnderstood("the message does not say whose text the quoted one is")
    texts = iter(quoted)
    return tuple([replace(one, quoted=one.quoted and next(texts)) for one in requests])


def _requests(text: str) -> tuple[StatedRequest, ...] | NotUnderstood:
    requests: list[StatedRequest] = []
    files: list[str] = []
    is_over = False
    last: Sequence[str] = ()  # the words of the last request: a list of targets may go on
    for clause in map(str.split, _CLAUSE_END.split(text)):
        lead = next((at for at, one in enumerate(clause) if one.lower() not in _POLITE), None)
        if lead is None or _PRAISE.fullmatch(" ".join(clause[lead:])):
            continue
        body = clause[lead:]
        is_plain = not (is_over or _TWO_THINGS.search(" ".join(body)))
        read = _request(body, is_first=not requests) if is_plain else None
        if read is not None:
            requests.append(read)
            last = body
        elif is_plain and (longer := _continued(requests, last, body)):
            requests[-1] = longer
            last = [*last, *body]
        elif _is_before(body):
            last, files = (), [*files, *filter(_FILE.fullmatch, body)]
        elif requests and _is_behind(" ".join(clause), body):
            # What stands behind it could be its object: "commit, explain how to pull and push".
            is_over = True
        elif GATE.isdisjoint(map(str.lower, clause)):
            return NotUnderstood("not every sentence of the message is a plain request")
        else:
            return NotUnderstood(
                "the message negates, takes back, limits, puts off or tells of something"
            )
    # "stage a.py, then commit": no other file is committed.
    return tuple(
        [
            replace(one, names=(*one.names, *files)) if one.verb == "commit" else one
            for one in requests
        ]
    )


def _continued(
    requests: Sequence[StatedRequest], last: Sequence[str], body: Sequence[str]
) -> StatedRequest | None:
    """Return the last request with the words of a clause more, as in "read a.txt and b.txt"."""
    if not last or body[0].lower() in _FOLLOWS:
        return None
    longer = _request([*last, *body], is_first=True)
    return longer if longer is not None and longer.verb == requests[-1].verb else None


def _is_before(body: Sequence[str]) -> bool:
    """Return whether a clause is a report, or a preparation in a few words."""
    text = " ".join(body)
    if _REPORT.fullmatch(text):
        return True
    did = _DID.match(text)
    others = text[did.end() :].split() if did is not None else body[1:]
    is_one = did is not None or (body[0].lower() in _PREPARES and len(body) <= _MOST_BEFORE)
    if body[0].lower() == "stage":  # the commit would not be limited to what is no file
        is_one = all(_FILE.fullmatch(one) or one.lower() in _THING_WORDS for one in others)
    return is_one and _is_free(others) and not any(map(_OBJECT.match, others))


def _is_behind(clause: str, body: Sequence[str]) -> bool:
    """Return whether a clause behind a request is about another matter, or says what it is for."""
    is_one = body[0].lower() in _FOLLOWS or re.match(_PURPOSE, clause, re.IGNORECASE)
    asks = _ASKS if body[0].lower() in _TELLS else frozenset[str]()
    others = [one for one in body[1:] if one.lower() not in asks]
    return bool(is_one) and len(body) <= _MOST_BEHIND and _is_free(others)


def _is_free(words: Sequence[str]) -> bool:
    return all(_FREE.fullmatch(one) and one.lower() not in GATE for one in words)


def _request(words: Sequence[str], *, is_first: bool) -> StatedRequest | None:
    """Return the request that a clause is, or None if it has a word that is not known."""
    for prefix in ("run", "git"):
        words = words[1:] if words[0].lower() == prefix and words[1:] else words
    lower = [*map(str.lower, words), ""]
    if lower[0] in _MANAGERS and lower[1] in _INSTALLS and lower[:2] != ["cargo", "install"]:
        return _request(["install", *words[2:], "with", words[0]], is_first=is_first)
    if not is_first and re.fullmatch(r"(?:(?:a )?draft )?pr(?: please| too)? ", " ".join(lower)):
        # "push and PR", "push + a draft PR": alone, a noun asks for nothing.
        return StatedRequest(verb="pr", draft="draft" in lower)
    # "push it to the PR" asks for no other one, and "open the PR" alone may ask to see it.
    may_be_old = {"push", "get", "open"} if is_first else {"push", "get"}
    is_old = lower[0] in may_be_old and {"a", "an", "draft", "new"}.isdisjoint(lower)
    for row in _ROWS:
        if lower[0] in row.starts and not (row.verb in {"pr", "issue"} and is_old):
            read = _read(row, words, lower)
            if read is not None:
                return read
    return None


def _read(row: _Row, words: Sequence[str], lower: Sequence[str]) -> StatedRequest | None:
    """Return the request in the words of a clause, if each fits the row."""
    names: list[str] = []
    about: list[str] = []
    for at in range(1, len(words)):
        if _is_target(row, words[at], lower, at):
            names.append(words[at])
        elif row.verb in _DESCRIBED and _is_about(lower, at, about):
            about.append(lower[at])
        elif not _is_known(row, lower, at, has_names=bool(names)):
            return None
    is_install, is_all = lower[0] == "install", {"dependency", "package"}.isdisjoint(lower)
    manager = next((one.removesuffix("3") for one in lower if one in {*_MANAGERS, "slack"}), None)
    goes_to = [one for before, one in pairwise(words) if before.lower() in {"to", "into"}]
    are_two = names[-1:] == goes_to if goes_to else lower[0] in {"mv", "cp"} and len(names) > 1
    has = {
        "pr": _is_object("pr", lower)
        and lower[lower.index("pr") + 1] in _BEHIND_PR
        and (not names or {"to", "into", "against"} & {*lower}),
        "ready": {"pr", "ready"}.issubset(lower),
        "mkdir": lower[0] == "mkdir" or any(_is_object(one, lower) for one in _KINDS),
        "issue": _is_object("issue", lower),
        "branch": _is_object("branch", lower),
        "tag": lower[0] == "tag" or _is_object("tag", lower),
        "unbranch": _is_object("branch", lower),
        "mail": not {"email", "mail"}.isdisjoint(lower),
        "get": len(names) == 1,
        # Whether the manager is named is seen in the whole list: "install a and b with npm".
        "install": (is_install and (manager or not _LOCKED.isdisjoint(lower)) and is_all)
        or (names and (is_install or manager)),
        **dict.fromkeys(_TWO_PATHS, are_two),
    }
    if lower[-2] in _EXPECTS or not has.get(row.verb, names or row.verb not in _ON_FILES):
        return None
    if row.verb in _NAMING and not names:
        return None
    return StatedRequest(
        verb=row.verb,
        names=tuple(names),
        about=tuple(about),
        quoted=_QUOTE_MARK if _QUOTE_MARK in words else None,
        kind=next((_KINDS[one] for one in lower if one in _KINDS), None),
        manager=manager,
        draft="draft" in lower,
        branch=next((a for a, b in pairwise(words) if a in names and b.lower() == "branch"), None),
    )


def _is_about(lower: Sequence[str], at: int, about: Sequence[str]) -> bool:
    """Return whether a word may describe what is committed: "the parser work"."""
    is_placed = lower[at - 1] in _ARTICLES or lower[at - 1] in about[-1:]
    return is_placed and lower[at].isalnum() and lower[at] not in GATE | _THING_WORDS


def _is_object(noun: str, lower: Sequence[str]) -> bool:
    """Return whether a clause is about a thing: "make the changes of the PR" is not."""
    return noun in lower and _ARTICLES.issuperset(lower[1 : lower.index(noun)])


def _is_known(row: _Row, lower: Sequence[str], at: int, *, has_names: bool) -> bool:
    """Return whether a word that is no name says nothing of the target."""
    word, before = lower[at], lower[at - 1]
    if word == _QUOTE_MARK:
        return row.verb in _QUOTING and before in _INTRODUCES
    if word in _MANAGERS:
        return row.verb == "install" and before in _PLACES
    if has_names and row.verb in _ON_FILES:
        return word in _BEHIND or (row.verb in _TWO_PATHS and word in {"to", "into"})
    return word in row.known


def _is_package(lower: Sequence[str], at: int) -> bool:
    is_placed = not _PLACES.isdisjoint(lower[:at])
    return not (is_placed or lower[at] in _NO_PACKAGES or lower[at + 1] in _LOCKED)


def _is_target(row: _Row, word: str, lower: Sequence[str], at: int) -> bool:
    """Return whether a word names a target where it stands."""
    before, after, pattern = lower[at - 1], lower[at + 1], row.target
    if lower[at] in GATE:
        return False
    if pattern is _NAME:
        is_placed = before in _POINTS or after == "branch"
        is_moved = row.verb == "push" and after == "to" and lower[at] not in row.known
        if not (lower[at] in _USUAL or is_moved or (is_placed and lower[at] not in _ANY_BRANCH)):
            return False
    elif lower[at] in row.known or (row.verb == "install" and not _is_package(lower, at)):
        return False
    elif row.verb in _ON_FILES and not _KINDS.keys().isdisjoint(lower[:at]):
        pattern = _CALLED if _BEHIND.issuperset(lower[at + 1 : -1]) else pattern
    return pattern is not None and pattern.fullmatch(word) is not None

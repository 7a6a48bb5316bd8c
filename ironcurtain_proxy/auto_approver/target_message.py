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

from ironcurtain_proxy.auto_approver.target_call import NotUnderstood

Verb: TypeAlias = Literal[
    "commit", "push", "pull", "fetch", "pr", "ready", "install", "read", "write", "delete",
    "get", "mkdir", "list", "move", "copy", "merge", "issue", "comment", "post", "mail",
]  # fmt: skip
"""`get`: of an address. `ready`: of a pull request, for review."""


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


def _these(words: str) -> frozenset[str]:
    return frozenset(words.split())


GATE: Final = _these(
    "abort about actually advance after afterwards ago agree agrees ahead almost already "
    "although anti any anything approval approve approved approves assuming avoid back before "
    "beforehand belay but cancel cannot cant careful case changed confirm confirmation could "
    "did didn't disregard do does doesn't don't done dont dry dry-run earlier else eventually "
    "except fake false finally first forbidden forget had has have hold how however "
    "hypothetically if ignore imagine initially instead isn't joke joking just keep kidding "
    "last later leave long maybe mind mistake must never nevermind next no nobody non none nope "
    "nor not nothing nowhere off once only oops or otherwise pending perhaps permission "
    "please-don't pm pretend previous previously prior provided psych rather refrain revert "
    "scratch should shouldn't skip something soon sorry stop stopped strike suppose supposedly "
    "than that that's theory though today tomorrow tonight un undo unless until upfront wait "
    "was wasn't were what what's when whenever where whether which while who why will without "
    "won't would wrong yesterday yet"
)
"""Words that negate, take back, limit, put off, ask or tell of the past. None may be a name or
stand in another matter: an agent that calls a branch `nothing` would turn "push nothing to origin"
into a request."""

_QUOTE_MARK: Final = "\x00"
_SAYS: Final = "\x01"
_AS: Final = "\x02"
"""A quoted text, and what introduces it: no words that a message can have."""
_FITTING: Final = "good|short|clear|proper|sensible|nice|meaningful|descriptive"
_NEW: Final = "(?:please )?(?:(?:an?|einen|un) )?(?:new |git )?"
_SAME: Final = tuple(
    [
        (re.compile(rf"(?<![\w'/.@-])(?:{phrase})(?![\w'/@-])", re.IGNORECASE), word)
        for word, phrase in (
            ("pr", r"pull[ -]request"),
            ("thanks", r"thank you"),
            ("please", r"go ahead (?:and|with)|feel free to|(?:i'd like|i want|i need) you to"),
            ("please", r"(?:can|could|would) you|you (?:can|may)|bitte|stp|svp"),
            ("please", r"por favor|s'il te pla[iî]t|let(?:'s| us)"),
            ("my changes", r"(?:mes|les) (?:changements|modifs)|(?:mis|los) cambios"),
            ("my changes", r"(?:meine|die|alle) änderungen"),
            ("commit and push", r"get (?:this|it|that|everything) committed (?:and|&) pushed"),
            ("commit it", r"get (?:this|it|that|everything) committed"),
            ("push it", r"get (?:this|it|that|everything) pushed"),
            ("look", r"(?:have|take) a (?:quick )?look"),
            ("everything", r"(?:what|everything|all) (?:we|you) have(?: so far)?"),
            ("everything", r"all of (?:it|this|that)|alles"),
            ("commit", r"comm?itt?en?|committ?|comit"),
            ("commit", rf"(?:make|create|do|mach|haz|fais) {_NEW}commit"),
            ("push", r"pushen?|pousse[rz]?|psuh|puhs|do a (?:git )?push"),
            ("commit and push", r"commit(?: ?[+&/ ] ?| et | y )push"),
            ("commit everything", "everything commit"),
            ("in", r"(?<=\d )of"),
            ("push it to", r"push(?: das)? (?:auf|nach|sur)"),
            ("push my changes to", r"push my changes (?:auf|nach|sur)"),
            ("create a pr", r"pr (?:it|this)"),
            ("now", r"jetzt|for (?:me|now|review)"),
            ("please", rf"(?:with|using) an? (?:(?:{_FITTING}) )*message(?! ?[\x00-\x02])"),
            (_SAYS, r"(?:(?:(?:with|using) (?:the |a )?)?message:?|saying|-m)(?= \x00)"),
            (_AS, r"as(?= \x00)"),
            ("tell me", "let me know"),
            ("implement it", r"use (?:it|this|that)(?=$|[.,;!]| (?:for|in|to)\b)"),
            ("ask", r"(?:check|verify|clear) (?:it |this )?with|run (?:it|this|that) (?:by|past)"),
            ("and", r"und|(?<=\S )n(?= \S)|&|\+"),
        )
    ]
)
"""Phrases that mean the same as a shorter one, other spellings, and slips."""

_POLITE: Final = _these(
    "please pls plz kindly thanks ok okay yes yeah yep yup ja sure alright now then also too so "
    "well hey hi lets"
)
_PRAISE: Final = re.compile(
    r"(?:(?:great|nice|perfect|cool|lgtm|awesome|excellent|good|fine|go ahead|sounds good|ship it"
    r"|(?:(?:yes|yep|ok|just) )?do (?:it|that|so)|go for it"
    r"|(?:great|good|nice) (?:work|job)|(?:(?:it|this|that|all) )?looks? (?:good|great|fine)"
    r"(?: to me)?)(?: |$))+",
    re.IGNORECASE,
)
_REPORT: Final = re.compile(
    r"(?:(?:all )?(?:the )?(?:tests?|ci|build|lint|pipeline|checks?|it|this|that|everything"
    r"|the [a-z]+|[A-Z]+-\d+|#\d+) ?(?:(?:is|are|'s)(?: all)? (?:green|good|great|fine|ok|passing"
    r"|ready|done|finished|fixed|working)|works|pass(?:ed|es)?)"
    r"(?: (?:now|again|here|locally|on my machine))*)",
    re.IGNORECASE,
)
_DID: Final = re.compile(
    r"(?:i|we)(?:(?:'ve| have)? (?:fixed|merged|tested|reviewed|checked|verified|finished|rebased"
    r"|resolved|updated)| had an?)\b",
    re.IGNORECASE,
)
"""What the user tells of the work. It asks for nothing, and limits nothing that is asked for."""
_PREPARES: Final = _these(
    "add complete finish fix resolve address update rename refactor format rebase merge stage"
)
_FOLLOWS: Final = _PREPARES | _these(
    "check verify watch monitor continue proceed tell summarize summarise explain describe reply "
    "respond answer run rerun test look see link mention reference note ping follow implement"
)
_ASKS: Final = _these("how what what's where which who why")
_TELLS: Final = _these("tell summarize summarise explain describe check see look follow")
"""Behind these of another matter such a word limits nothing: "push, then tell me what failed"."""
"""Verbs of another matter. Before a request only few may stand, with few words: the object of
"explain how to commit and push" is what seems to be a request."""
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


_THINGS: Final = (
    "it this that these those them all everything the my our your current latest newest new local "
    "change changes commit commits work code edits update updates fix fixes up here again"
)
_THING_WORDS: Final = _these(f"{_THINGS} branch feature remote pr") | _POLITE
_TWO_THINGS: Final = re.compile(
    r"\b(?:it|this|these|those|them|everything) (?:the|my|our|your|an?)\b"
    r"|\bthat (?:the|my|our|your|an?|it|this|these|those|changes|commits|edits|fixes|updates)\b",
    re.IGNORECASE,
)
"""No name of one thing: in "push that my commits work" the verb has no object that is pushed."""
_FROM_TO: Final = "the my file folder directory from"
_FILES: Final = "me the my contents content of at file files folder directory entirely"


def _row(verb: Verb, starts: str, known: str, target: re.Pattern[str] | None) -> _Row:
    return _Row(verb, _these(starts), _POLITE | _these(known), target)


_ROWS: Final = (
    _row("commit", "commit", f"{_THINGS} on branch for {_SAYS} {_AS}", _FILE),
    _row("pr", "open get create push make raise submit file put do",
     f"{_THINGS} a an pr draft for with to into against as in branch", _NAME),
    _row("push", "push", f"{_THINGS} to branch feature remote pr", _NAME),
    _row("pull", "pull", f"{_THINGS} from down version branch remote", _NAME),
    _row("get", "get fetch open read download visit look check curl",
     f"{_FILES} page site url from out", _ADDRESS),
    _row("fetch", "fetch", f"{_THINGS} from down branch remote", _NAME),
    _row("ready", "mark", "it the this my pr as ready", None),
    _row("install", "install add", "the package packages dependency dependencies deps"
     " all with using via from to project", _PACKAGE),
    _row("mkdir", "create make mkdir", "me the my folder directory a an new at", _PATH),
    _row("list", "list ls", f"{_FILES} in all", _PATH),
    _row("move", "move rename mv", _FROM_TO, _PATH),
    _row("copy", "copy cp", _FROM_TO, _PATH),
    _row("merge", "merge", "pr the in on", _THING),
    _row("issue", "create open file raise",
     f"a an new issue in on for {_SAYS} titled with title", _THING),
    _row("comment", "comment add post", f"a comment on issue pr the in {_SAYS}", _THING),
    _row("post", "post send", f"the message slack channel in to on {_SAYS}", _CHANNEL),
    _row("mail", "send email mail write", f"an email mail message to {_SAYS}", _MAILBOX),
    _row("read", "read open show display view print cat look", _FILES, _PATH),
    _row("write", "write create save", f"{_FILES} to in into", _PATH),
    _row("delete", "delete remove erase rm", "the my at file files folder directory", _DELETED),
)  # fmt: skip
"""The first row counts that fits all words of a clause."""

_MANAGERS: Final = frozenset({"npm", "pnpm", "yarn", "pip", "pip3", "uv", "poetry", "cargo"})
_INSTALLS: Final = frozenset({"install", "i", "add", "ci", "sync"})
_LOCKED: Final = frozenset({"dependencies", "deps", "packages"})
_PLACES: Final = frozenset({"with", "using", "via", "from", "to"})
_EXPECTS: Final = _PLACES | _these("into against for on in at of as")
"""Words that no complete request ends with: "push to"."""
_NO_PACKAGES: Final = (
    _MANAGERS
    | _THING_WORDS
    | _these("dev global globally locally lockfile missing needed necessary package required same")
)
"""Words that say which packages, from where or how, though a registry may have one of the name."""
_INTRODUCES: Final = frozenset({_SAYS, _AS, "write", "save", "titled", "title", "comment", "post"})
_ARTICLES: Final = _these("a an me the my our your new draft up")
_DESCRIBED: Final = frozenset({"commit", "push"})
_BEHIND_PR: Final = _POLITE | _these("up for with to into against as in from here again") | {""}
_POINTS: Final = frozenset({"to", "from", "into", "against", "branch", "origin", "upstream"})
"""The words before the name of a remote or branch."""
_ANY_BRANCH: Final = _POLITE | _these(
    "the my our your this that current new latest local feature remote pr branch up to from for "
    "here again it with as in"
)
"""The words that may stand in the place of such a name and are none."""
_USUAL: Final = frozenset({"main", "master", "origin", "upstream"})
"""Names that need no such word before them."""
_TWO_PATHS: Final = frozenset({"move", "copy"})
_ON_FILES: Final = _TWO_PATHS | {"read", "delete", "write", "mkdir", "list"}
_QUOTING: Final = frozenset({"commit", "write", "issue", "comment", "post", "mail"})
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
_QUESTION: Final = re.compile(r"\?(?=$|[\s.,;!?)])|(?<!\S)(?![a-z]+://)\S*\?", re.IGNORECASE)
_PURPOSE: Final = r"so (?:that|i|we|you|ci|the|it|he|she|they)\b"
_CLAUSE_END: Final = re.compile(
    r"(?<=\S)[.!;,](?=\s|$)| - |(?<!\S)and(?!\S)| then (?=\S)" + rf"|(?<=\S) (?={_PURPOSE})",
    re.IGNORECASE,
)


_AMBIGUOUS: Final = re.compile(
    r"\b(?:the|my|our|your|this|an?) (?!and\b)[^.;]*\band (?:push|pull|fetch) "
    r"(?:changes|code|commits?|edits?|feature|fix(?:es)?|updates?|work)\b"
    r"|\b(?:finish|complete) [^.;]*\b(?:audits?|qa|reviews?|testing)\b"
    rf"|\b{_REPORT.pattern}[.;,]?(?: and)? then\b",
    re.IGNORECASE,
)
"""In "fix the mail and push updates" both may be what is fixed, and nothing be pushed. In "tests
pass, then push" the report may be what has to come first, and so may a review."""


def requests_of(message: str) -> tuple[StatedRequest, ...] | NotUnderstood:
    """Split a message into its requests.

    Args:
        message: the user's, as it came.
    """
    message = message.strip().replace("\u2019", "'")
    quoted = [single or double for single, double in _QUOTED.findall(message)]
    text = _QUOTED.sub(_QUOTE_MARK, message)
    if len(message) > MAX_MESSAGE or not message.isprintable():
        return NotUnderstood("the message is long, or has several lines or unseen characters")
    if len(quoted) > 1 or any(map(_OPERATION.search, quoted)) or _STRAY_QUOTE.search(text):
        return NotUnderstood("the message quotes a request, several texts, or what is no evidence")
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
    if any(one.verb in _QUOTING and one.quoted is None for one in requests):
        return NotUnderstood("the message does not say whose text the quoted one is")
    return tuple([replace(one, quoted=one.quoted and quoted[0]) for one in requests])


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
        "mail": not {"email", "mail"}.isdisjoint(lower),
        "get": len(names) == 1,
        # Whether the manager is named is seen in the whole list: "install a and b with npm".
        "install": (is_install and (manager or not _LOCKED.isdisjoint(lower)) and is_all)
        or (names and (is_install or manager)),
        **dict.fromkeys(_TWO_PATHS, are_two),
    }
    if lower[-2] in _EXPECTS or not has.get(row.verb, names or row.verb not in _ON_FILES):
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

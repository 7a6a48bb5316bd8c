"""A message taken apart: plain requests of a few forms, and nothing else.

This file knows a handful of sentences; it does not know the call that is to be approved. A message
is understood whole, word for word, or it approves nothing. Words that nobody thought of ("refrain",
"in theory", "Bob says") are in no form, and so approve nothing.
"""

import re
from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.auto_approver.target_call import NotUnderstood

Verb: TypeAlias = Literal[
    "commit",
    "push",
    "pull",
    "fetch",
    "pr",
    "ready",
    "install",
    "read",
    "write",
    "edit",
    "delete",
    "get",
    "other",
]
"""`get`: of an address. `other`: a plain request of which no call is approved."""


class StatedRequest(Struct, frozen=True, kw_only=True):
    """One imperative."""

    verb: Verb
    remote: str | None = None
    branch: str | None = None
    quoted: str | None = None
    """The text that is to be written."""
    kind: Literal["file", "directory"] | None = None
    manager: str | None = None
    """The package manager that an installation names, such as `npm`."""
    targets: tuple[str, ...] = ()
    """Paths, addresses or packages as they were typed."""
    draft: bool = False
    """Whether a draft is requested."""


MAX_MESSAGE: Final = 1000
"""Characters. Nobody types more to ask for one thing; it is pasted text."""

GATE: Final = frozenset(
    {"abort", "about", "actually", "after", "afterwards", "ago", "almost", "already",
     "although", "any", "avoid", "before", "but", "cancel", "cannot", "cant", "careful",
     "could", "did", "didn't", "disregard", "do", "does", "doesn't", "don't", "done", "dont",
     "earlier", "else", "eventually", "except", "false", "finally", "first", "forbidden",
     "forget", "had", "has", "have", "hold", "how", "however", "hypothetically", "if", "ignore",
     "imagine", "instead", "isn't", "joking", "just", "kidding", "psych", "last", "later", "maybe",
     "mind", "mistake", "must", "never", "nevermind", "next", "no", "nobody", "none", "nope",
     "nor", "not", "nothing", "nowhere", "off", "once", "only", "oops", "or", "perhaps",
     "please-don't", "pretend", "previously", "provided", "rather", "refrain", "revert",
     "scratch", "should", "shouldn't", "skip", "soon", "sorry", "stop", "stopped", "suppose",
     "than", "that", "that's", "though", "today", "tomorrow", "tonight", "undo", "unless",
     "until", "wait", "was", "wasn't", "were", "what", "what's", "when", "whenever", "where",
     "whether", "which", "while", "who", "why", "will", "without", "won't", "would", "wrong",
     "yesterday", "yet"}
)  # fmt: skip
"""Words that negate, take back, limit, put off, ask or tell of the past. None may stand anywhere.

The forms hold none of them; a name could: an agent that calls a branch `nothing` would turn "push
nothing to origin" into a request."""

_OPERATION: Final = re.compile(
    r"\b(add|check ?out|clone|commit|copy|creat|delet|download|edit|eras|execut|fetch|get|install|"
    r"merg|mov|open|overwrit|post|pull|push|read|remov|renam|reset|rm|run|sav|send|show|stag|"
    r"switch|updat|upload|visit|writ|wrot)",
    re.IGNORECASE,
)
"""The verbs of operations, in any form. Quoted text with one may be what the message is about."""

_QUOTED: Final = re.compile(r"""(?<!\S)(?:'([^'"`]+)'|"([^'"`]+)")(?=[\s.,;!]|$)""")
_STRAY_QUOTE: Final = re.compile(
    "[\"`\u2018\u201c\u201d\u00ab\u00bb]|~~~|^>|(?<![A-Za-z])['\u2019]|['\u2019](?![A-Za-z])"
)
_QUOTE_MARK: Final = "\x00"
_QUESTION: Final = re.compile(r"\?(?=$|[\s.,;!?)])|(?<!\S)(?![a-z]+://)\S*\?", re.IGNORECASE)


def requests_of(message: str) -> tuple[StatedRequest, ...] | NotUnderstood:
    """Split a message into its requests.

    Args:
        message: the user's, as it came.
    """
    message = message.strip()
    quoted = [single or double for single, double in _QUOTED.findall(message)]
    text = _QUOTED.sub(_QUOTE_MARK, message)
    for is_so, reason in _STRANGE:
        if is_so(message):
            return NotUnderstood(reason)
    if len(quoted) > 1 or any(_OPERATION.search(one) for one in quoted):
        return NotUnderstood("the message quotes a request, or several texts")
    if _STRAY_QUOTE.search(text):
        return NotUnderstood("the message has a quotation that is no evidence")
    requests: list[StatedRequest] = []
    for sentence in _SENTENCE_END.split(text):
        read = _sentence(sentence, quoted[0] if quoted else None)
        if isinstance(read, NotUnderstood):
            return read
        requests += read
    return tuple(requests)


def _words(message: str) -> list[str]:
    """Return words that stand by themselves, in lower case. Parts of paths and addresses do not."""
    pieces = re.split(r"[\s,;!()]+", message.lower().replace("\u2019", "'"))
    return [piece.strip(".:'\"`-\u2026") for piece in pieces]


_STRANGE: Final[tuple[tuple[Callable[[str], bool], str], ...]] = (
    (lambda message: len(message) > MAX_MESSAGE, "the message is too long to be one request"),
    (
        lambda message: not message.isprintable(),
        "the message has several lines, or characters that cannot be seen",
    ),
    (lambda message: bool(_QUESTION.search(message)), "the message asks a question"),
    (
        lambda message: not GATE.isdisjoint(_words(message)),
        "the message negates, takes back, limits, puts off or tells of something",
    ),
)

_SENTENCE_END: Final = re.compile(r"(?:(?<=\S)[.!;](?=\s|$)\s*)")
_LEAD: Final = re.compile(
    r"(?:(?:please|kindly|pls|plz|ok|okay|yes|now|then|also|and|thanks|go ahead and"
    r"|i want you to|i need you to|yeah|let's|lets|can (?:you|we))(?:,? |$))*",
    re.IGNORECASE,
)
"""No praise without a comma: `great commit` asks for nothing."""
_TRAIL: Final = re.compile(
    r"(?:,? (?:please|pls|plz|thanks|thank you|now|then|too|for me|entirely))+$", re.IGNORECASE
)
_COURTESY: Final = re.compile(
    r"(?:thanks|thank you|please|ok|okay|yes|yeah|sure|great|nice|perfect|cool|lgtm"
    r"|(?:yes )?go ahead|(?:it |this )?looks (?:good|great)|sounds good)?",
    re.IGNORECASE,
)
_VERBS: Final = (
    r"(?:git |comm?it|push|pull|fetch|read|open|show|display|view|print|cat|write|save|create|edit"
    r"|modify|delete|remove|erase|rm|download|visit|get|make|summari[sz]e|explain|describe|tell"
    r"|raise|submit|file|mark|install|add|run|npm|pnpm|yarn|pip3?|uv|poetry|cargo"
    r"|check|verify|watch|complete|finish|get|pr)\b"
)
_PULL_REQUEST: Final = r"(?:(?P<draft>(?:a )?draft ))?(?:pr|pull request)"
_NEXT: Final = re.compile(
    rf"(?:,? (?:and|\+|&)(?: then)?|,(?: then)?| then) "
    rf"(?=(?:please |also |now )?(?:{_VERBS}|{_PULL_REQUEST}\b))",
    re.IGNORECASE,
)


def _sentence(sentence: str, quoted: str | None) -> list[StatedRequest] | NotUnderstood:
    sentence = sentence.strip()
    if _COURTESY.fullmatch(sentence):
        return []
    requests: list[StatedRequest] = []
    starts = [0, *(one.end() for one in _NEXT.finditer(sentence))]
    ends = [*(one.start() for one in _NEXT.finditer(sentence)), len(sentence)]
    for clause in (sentence[start:end] for start, end in zip(starts, ends, strict=True)):
        body = _TRAIL.sub("", clause[_lead(clause) :].strip())
        if _COURTESY.fullmatch(clause):
            continue
        read = _clause(body, quoted)
        noun = re.fullmatch(_PULL_REQUEST, body, re.IGNORECASE) if requests else None
        if noun is not None:
            # "push and PR", "push + a draft PR": alone, a noun asks for nothing.
            read = StatedRequest(verb="pr", draft=noun["draft"] is not None)
        if read is None:
            return NotUnderstood("not every sentence of the message is a plain request")
        requests.append(read)
    return requests


def _lead(clause: str) -> int:
    match = _LEAD.match(clause)
    return match.end() if match else 0


# --- the forms -----------------------------------------------------------------------------------

_ALL_THE: Final = r"(?:(?:all )?(?:the|my|our|your|these) )?(?:latest |new |local |current )?"
_THINGS: Final = (
    r"(?:it|this|it all|all|all this|all of (?:it|this)"
    rf"|{_ALL_THE}(?:changes?|commits?|work|code|edits|updates|fix(?:es)?))"
)
_WHICH: Final = r"(?!(?:old|previous|other|original|initial|second|third|one)\b)[a-z0-9]+"
_R: Final = r"(?P<remote>[A-Za-z0-9][A-Za-z0-9_.-]*)"
_B: Final = r"(?P<branch>[A-Za-z0-9][A-Za-z0-9_./-]*)"
_RB: Final = rf"{_R}(?:/{_B})?"
_SAYING: Final = r"(?: (?:-m|(?:with|using) (?:the |a )?message:?|saying) (?P<quoted>\x00))?"
_PATH: Final = r"(?:~/|\./|/)?[^\s,\x00]+"
_TARGETS: Final = rf"(?P<targets>{_PATH}(?:(?:,? and |, ){_PATH})*)"
_FILE: Final = r"(?:the |my )?(?:(?P<file>files?) |(?P<directory>folder|directory) )?(?:at )?"
_PACKAGE: Final = r"@?[A-Za-z0-9][A-Za-z0-9_./-]*(?:@[A-Za-z0-9_.^~-]+)?"
_PACKAGES: Final = (
    r"(?:the )?(?:packages? |dependenc(?:y|ies) )?"
    rf"(?!(?:the|all|dependencies|deps|packages|it|this|them)\b)"
    rf"(?P<packages>{_PACKAGE}(?:(?:,? and |, ){_PACKAGE})*)"
)
_MANAGER: Final = r"(?P<manager>npm|pnpm|yarn|pip3?|uv|poetry|cargo)"
_ADDRESS: Final = r"(?P<targets>https?://[^\s\x00]+)"

_SENTENCES: Final[tuple[tuple[Verb, str], ...]] = (
            ("commit", rf"(?:git )?commi(?:t(?: everything| {_THINGS})?{_SAYING}|t?)"),
            ("commit", rf"(?:git )?comit(?: everything| {_THINGS})?"),
            ("commit", r"(?:make|create) a commit"),
            ("push", rf"git push(?: {_R}(?: {_B})?)?"),
            ("push", (r"push (?:up )?(?:(?:the|my|this) )?(?:current )?branch"
                     rf"(?: (?:up )?to {_R})?")),
            ("push", (rf"push(?: up)?(?: {_THINGS})?(?: up)? to (?:the )?"
                     r"(?:remote|(?:current )?branch|pr|pull request)")),
            ("push", (rf"push(?: up)?(?: {_THINGS}| the(?: {_WHICH}){{1,2}} fix(?:es)?)?"
                     rf"(?: up)?(?: to {_RB})?")),
            ("push", rf"push (?:(?:the|my) )?branch {_B}(?: (?:up )?to {_R})?"),
            ("push", rf"push (?:(?:the|my) )?{_B} branch(?: (?:up )?to {_R})?"),
            ("push", rf"push {_B} (?:up )?to {_R}"),
            ("pull", rf"git pull(?: {_R}(?: {_B})?)?"),
            ("pull", rf"pull(?: {_THINGS}| the latest| latest)?(?: from {_RB})?"),
            ("fetch", rf"git fetch(?: {_R}(?: {_B})?)?"),
            ("fetch", rf"fetch(?: {_THINGS}| the latest| latest)?(?: from {_RB})?"),
            ("get", (rf"(?:fetch|download|open|visit|get|read) (?:the )?"
                    rf"(?:(?:page|contents?|site|url|file) )?(?:at |from |of )?{_ADDRESS}")),
            ("read", (rf"(?:read|open|show(?: me)?|display|view|print|cat) "
                     rf"(?:the contents? of )?{_FILE}{_TARGETS}")),
            ("write", (rf"(?:write|save|create) (?:(?P<quoted>\x00)|(?:the |a |my )"
                      rf"(?:summary|report|results?|output|notes)) (?:to|at|in|into) "
                      rf"{_FILE}{_TARGETS}")),
            ("write", rf"(?:write|create) {_FILE}{_TARGETS}"),
            ("edit", rf"(?:edit|modify) {_FILE}{_TARGETS}"),
            ("delete", rf"(?:delete|remove|erase|rm) {_FILE}{_TARGETS}"),
            # "open the PR" asks to see one, an "open PR" is one; a noun asks for nothing.
            ("pr", (r"(?:(?:open(?: up)?|push|get) an?(?: new)?|(?:create|make|raise|submit|file)"
                   r"(?: (?:a|an|the|my|new))*|open(?= draft ))"
                   r"(?P<draft> draft)? (?:pr|pull request)(?: up)?"
                   r"(?: (?:for|with) (?:this|it|(?:the|these) changes))?"
                   rf"(?: (?:to|against|into) {_B})?")),
            ("pr", r"pr (?:it|this)"),
            ("ready", (r"mark (?:it|(?:the|this|my) (?:pr|pull request)) "
                      r"(?:as )?ready(?: for review)?")),
            ("install", rf"(?:run )?{_MANAGER} (?:install|i|add|ci|sync)(?: {_PACKAGES})?"),
            ("install", rf"(?:install|add) {_PACKAGES}(?: (?:with|using|via|from) {_MANAGER})?"),
            ("install", r"install (?:the |all )?(?:dependencies|deps|packages)"),
            ("other", r"(?:summari[sz]e|explain|describe) (?:it|them)(?: to me)?"),
            ("other", r"tell me (?:the|its)(?: [a-z]+){1,3}"),
            ("other", (r"(?:check|verify|watch|complete|finish) (?:the|those|these)"
                      r"(?: [a-z]+){1,3}")),
)  # fmt: skip
"""The forms of a request, in order: the first that fits the whole clause counts."""

_FORMS: Final = tuple(
    [(verb, re.compile(form, re.IGNORECASE | re.ASCII)) for verb, form in _SENTENCES]
)

_PLAIN_TARGET: Final = re.compile(r"(?:~|\.)?/.*|(?:.+/)?[^/]*\.[A-Za-z0-9_]+")
"""Words that stand as paths by themselves, by the beginning of a path or the ending of a file.
`feature/old` may be a branch, and `TODO/FIXME` no name at all."""
_DELETED_TARGET: Final = re.compile(r"(?:~|\.)/.+|.*/[^/]*\.[A-Za-z][A-Za-z0-9]*")
_NAMED_TARGET: Final = re.compile(r"(?:~|\.)?/.*|[A-Za-z0-9_.].*")
"""Words behind "file" or "folder"."""


def _clause(text: str, quoted: str | None) -> StatedRequest | None:
    for verb, form in _FORMS:
        match = form.fullmatch(text)
        if match is None:
            continue
        read = _request(verb, match, quoted)
        if read is not None:
            return read
    return None


def _request(verb: Verb, match: re.Match[str], quoted: str | None) -> StatedRequest | None:
    parts = {name: value for name, value in match.groupdict().items() if value is not None}
    if (quoted is not None) and verb in {"commit", "write"} and "quoted" not in parts:
        # The quoted text stands in another request: the message does not say which it belongs to.
        return None
    if "targets" in parts and verb == "get":
        targets: tuple[str, ...] = (parts["targets"],)
    else:
        pieces = re.split(r",? and |, ", parts.get("targets", ""))
        targets = tuple([piece for piece in pieces if piece])
        if not all(_is_target(one, verb, parts.keys()) for one in targets):
            return None
    if verb == "install":
        targets = tuple([one for one in re.split(r",? and |, ", parts.get("packages", "")) if one])
    if verb == "other" and _OPERATION.search(match[0]):
        return None
    return StatedRequest(
        verb=verb,
        remote=parts.get("remote"),
        branch=parts.get("branch"),
        quoted=quoted if "quoted" in parts else None,
        manager=parts["manager"].lower().removesuffix("3") if "manager" in parts else None,
        kind="file" if "file" in parts else "directory" if "directory" in parts else None,
        targets=targets,
        draft="draft" in parts,
    )


def _is_target(text: str, verb: Verb, parts: Collection[str]) -> bool:
    """Return whether a word stands as a path where it is used.

    A name such as `console.log`, `/users/42` or `feature/x` is no path to delete unless the message
    says that it is a file or a folder: it is a call, a route, a branch.
    """
    if "://" in text:
        return False
    if not {"file", "directory"}.isdisjoint(parts):
        return _NAMED_TARGET.fullmatch(text) is not None
    if verb == "delete":
        return _DELETED_TARGET.fullmatch(text) is not None
    return _PLAIN_TARGET.fullmatch(text) is not None

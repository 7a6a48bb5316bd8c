"""The target check: whether a message names what a call does and what it does it to.

Pure: no I/O, no clock, no log. It can only object. It has the last word after a model has approved,
because a model is persuaded by what looks alike: `never mind` after a request, a file beside the
one that was asked for, a move the other way round. It approves nothing by itself: that a message
names everything does not mean that it asks for it.

The message has to be understood whole, word for word. Then one of its requests must have the call's
operation, and must name everything the call names and nothing else. All the rest is objected to.
"""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ironcurtain_proxy.auto_approver.target_call import Action, Demand, Surroundings, action_of
from ironcurtain_proxy.auto_approver.target_message import (
    MAX_MESSAGE,
    NotUnderstood,
    Request,
    Token,
    requests_of,
)
from ironcurtain_proxy.auto_approver.target_naming import Named, names, relative_file
from ironcurtain_proxy.auto_approver.target_words import (
    BESIDE,
    CONTAINERS,
    DETERMINERS,
    DISTINCT,
    FAMILIAR_FOLDERS,
    FILE_TYPES,
    FLAG_WORDS,
    GOALS,
    LEADING,
    NEVER_NAMES,
    NOUNS,
    PREPOSITIONS,
    SYNONYMS,
    TRAILING,
    VERBS,
    Operation,
)
from ironcurtain_proxy.model.escalation import Escalation

_FLAGS: Final = frozenset[str]().union(*FLAG_WORDS.values())
_EXTRA: Final = frozenset(
    {"thank", "thanks", "you", "i", "want", "need", "go", "ahead", "git", "it", "them", "check",
     "request", "force"}
)  # fmt: skip
_ALL_NOUNS: Final = frozenset[str]().union(*NOUNS.values())
VOCABULARY: Final = (
    frozenset(VERBS)
    | LEADING
    | TRAILING
    | DETERMINERS
    | PREPOSITIONS
    | _ALL_NOUNS
    | frozenset(FILE_TYPES)
    | frozenset(SYNONYMS)
    | frozenset({"hard", "everything", "all", "recursively"})
    | FAMILIAR_FOLDERS
    | _EXTRA
)
"""The words that are words. Everything else is a name, and must be one that the call has."""

_FILE_OPERATIONS: Final[frozenset[Operation]] = frozenset(
    {"read", "list", "search", "delete", "move", "copy", "write", "make"}
)
_MANY: Final[frozenset[Operation]] = frozenset({"read", "list", "delete", "stage"})
"""One request may name several; each call is for one of them."""


def veto(message: str, escalation: Escalation, around: Surroundings) -> str | None:
    """Object to an approval, in one phrase; None: there is nothing to object to.

    Args:
        message: the user's most recent one, as it came.
        escalation: the call with its facts.
        around: where `~` and unnamed repositories are.
    """
    action = action_of(escalation, around)
    if isinstance(action, NotUnderstood):
        return action.reason
    if _is_command_line(message, action):
        return None
    requests = requests_of(message, VOCABULARY)
    if isinstance(requests, NotUnderstood):
        return requests.reason
    return _objection_to_all(requests, action, around)


def _objection_to_all(
    requests: tuple[Request, ...], action: Action, around: Surroundings
) -> str | None:
    """Object unless one request is met and all the others are plain."""
    first: str | None = None
    is_asked = False
    for request in requests:
        if _means(request, action):
            objection = _objection(request, action, around)
            is_asked |= objection is None
            first = first or objection
            # The same operation on something else may be a correction of what was asked.
            strange = _strange(request) if objection is not None else None
        else:
            strange = _strange(request)
            if not is_asked and not VERBS[request.verb] & BESIDE:
                strange = strange or "what follows may be the text that is spoken of"
        if strange is not None:
            return strange
    return None if is_asked else first or "the message does not ask for this operation"


def _means(request: Request, action: Action) -> bool:
    if request.verb == "open" and action.operation == "make" and not action.kinds:
        # One opens an issue, but not a directory.
        return False
    return action.operation in VERBS[request.verb]


def _strange(request: Request) -> str | None:
    """Object to a request that is beside the point, unless it is plain as well."""
    if "," in {token.text for token in request.tokens[-1:]}:
        return "the message breaks off"
    if VERBS[request.verb] and not request.tokens:
        return f"the message does not say what to {request.verb}"
    allowed = _common() | _ALL_NOUNS | frozenset(FILE_TYPES) | _FLAGS | {"it", "them", "and"}
    for before, token in pairwise((Token("mark", ","), *request.tokens)):
        if token.text in VERBS and before.text in PREPOSITIONS:
            return "the message speaks of a request instead of making it"
        if token.kind == "word" and token.text not in allowed:
            return f"the message has a word in it that is not understood here: {token.text}"
        if token.kind == "name" and not _is_shaped(token.text):
            return "the message has words in it that are not understood"
    return None


def _common() -> frozenset[str]:
    return DETERMINERS | PREPOSITIONS | TRAILING | {"and"}


def _is_shaped(text: str) -> bool:
    """Whether a name has the shape of one, and is not just a word."""
    return bool(re.search(r"[0-9_./@#:]", text)) or text in _WELL_KNOWN


_WELL_KNOWN: Final = frozenset({"origin", "upstream", "main", "master", "README", "LICENSE"})


def _objection(request: Request, action: Action, around: Surroundings) -> str | None:
    words = [token.text for token in request.tokens if token.kind == "word"]
    if request.verb == "force-push":
        words.append("force-push")
    objection = _about_words(words, action)
    if objection is not None:
        return objection
    return _about_names(request, words, action, around)


def _about_words(words: list[str], action: Action) -> str | None:
    """Object to words that this operation has no use for, and to those that are missing."""
    flags = {word for flag in action.flags for word in FLAG_WORDS[flag]}
    allowed = _common() | NOUNS[action.operation] | flags
    if action.operation in _FILE_OPERATIONS:
        allowed |= frozenset(FILE_TYPES)
    for word in words:
        if word not in allowed:
            return f"the message has a word in it that is not understood here: {word}"
    if not _is_same_kind({SYNONYMS.get(word, word) for word in words}, action):
        return "the message asks for it of another kind of thing"
    unsaid = [flag for flag in sorted(action.flags) if not FLAG_WORDS[flag] & set(words)]
    return f"the message does not say {unsaid[0]}" if unsaid else None


def _is_same_kind(said: set[str], action: Action) -> bool:
    """Whether the message speaks of the kind of thing that the tool is for."""
    if not action.kinds <= said:
        return False
    operation = action.operation
    if operation in {"make", "delete", "merge", "close"} and (said & DISTINCT) - action.kinds:
        return False
    if operation in {"make", "write"} and action.on_containers is not None:
        return not said & (_SINGLE if action.on_containers else CONTAINERS)
    return True


_SINGLE: Final = frozenset({"file", "files"})


def _about_names(
    request: Request, words: list[str], action: Action, around: Surroundings
) -> str | None:
    """Object unless the request names all that the call names, and nothing else."""
    named = names(request)
    used: set[int] = set()
    for demand in action.demands:
        free = [at for at in range(len(named)) if at not in used or _is_shared(demand)]
        found = _finding(demand, [named[at] for at in free], words, action, around)
        found = {free[at] for at in found}
        if not found:
            return f"the message does not name {demand.argument}"
        used |= found
    rest = [one for at, one in enumerate(named) if at not in used]
    if rest and not _are_more_of_the_same(rest, [named[at] for at in used], action):
        return "the message names something else"
    if action.operation in {"move", "copy"}:
        if not _is_in_order(named):
            return "the message has source and destination in another order"
        if not _keeps_names(action, named, around):
            return "the message does not name destination"
    return None


def _is_shared(demand: Demand) -> bool:
    """Whether one word may name it and something else, as `origin/main` and a directory do."""
    return demand.kind in {"path", "remote", "branch"}


def _keeps_names(action: Action, named: list[Named], around: Surroundings) -> bool:
    """Whether what is moved out of a directory that was named keeps its name.

    "move A to B" for A/x must end in B/x: B itself is where A was to go.
    """
    exact = [path for one in named if (path := one.path(around)) is not None]
    goals = [demand.path for demand in action.demands if not demand.below]
    return all(
        source.path in exact
        or any(goal.parts[-1:] == source.path.parts[-1:] for goal in goals if goal)
        for source in action.demands
        if source.below and source.path is not None
    )


def _finding(
    demand: Demand, named: list[Named], words: list[str], action: Action, around: Surroundings
) -> set[int]:
    """Which of the named things meet a demand, by their places in the list; empty: none."""
    if demand.kind == "path":
        return _finding_path(demand, named, words, action, around)
    literals = [at for at, one in enumerate(named) if one.token.kind == "literal"]
    if (
        demand.kind == "text"
        and len(literals) == 1
        and named[literals[0]].token.text == demand.text
    ):
        # The only quoted text there is may stand anywhere: `open an issue on a/b: 'It crashes'`.
        return {literals[0]}
    return next(
        ({at} for at, one in enumerate(named) if one.meets(demand, action.operation)), set()
    )


def _finding_path(
    demand: Demand, named: list[Named], words: list[str], action: Action, around: Surroundings
) -> set[int]:
    files = [at for at, one in enumerate(named) if one.is_relative_file(demand)]
    folders = [
        at
        for at, one in enumerate(named)
        if one.is_place and one.token.kind in {"path", "literal"} and one.after in demand.places
    ]
    # "the README from ~/Documents": then the folder alone does not name it.
    for at in files:
        for folder in folders:
            directory = named[folder].path(around)
            if directory is not None and relative_file(named[at], directory, demand):
                return {at, folder}
        if not folders and named[at].is_here(demand, around):
            return {at}
    if files and folders:
        return set()
    for at, one in enumerate(named):
        if one.names_path(demand, words, around):
            return {at}
    return _finding_goal(demand, named, action, around)


def _finding_goal(
    demand: Demand, named: list[Named], action: Action, around: Surroundings
) -> set[int]:
    """A file that is moved to a directory keeps its name."""
    if action.operation not in {"move", "copy"} or demand.below or demand.path is None:
        return set()
    sources = {d.path.parts[-1] for d in action.demands if d.below and d.path and d.path.parts}
    if demand.path.parts[-1:] and demand.path.parts[-1] in sources:
        parent = replace(demand, path=type(demand.path)(demand.path.parts[:-1]))
        for at, one in enumerate(named):
            if one.names_path(parent, [], around):
                return {at}
    return set()


def _are_more_of_the_same(rest: list[Named], used: list[Named], action: Action) -> bool:
    kinds = {(one.token.kind, one.after) for one in [*rest, *used]}
    return action.operation in _MANY and len(kinds) == 1 and used[0].token.kind == "path"


def _is_in_order(named: list[Named]) -> bool:
    """Source before destination: "to B from A" may be read either way at a glance."""
    goals = [at for at, one in enumerate(named) if one.after in GOALS | {"in"} and at > 0]
    sources = [at for at, one in enumerate(named) if at not in goals]
    return len(goals) == 1 and bool(sources) and max(sources) < goals[0]


_COMMAND_LINE: Final = re.compile(
    r"\s*(?:(?:please|kindly|ok|okay|yes|now)[, ]+)*"
    r"(?:run|execute) (?:(?:the )?command )?(?P<command>\S.*?)\s*",
    re.IGNORECASE,
)


def _is_command_line(message: str, action: Action) -> bool:
    """Whether the whole message is "run COMMAND", with exactly this command."""
    if action.operation != "run" or len(action.demands) != 1 or action.flags:
        return False
    if len(message) > MAX_MESSAGE:
        return False
    demand = action.demands[0]
    match = _COMMAND_LINE.fullmatch(message)
    if demand.kind != "text" or match is None or match["command"] != demand.text:
        return False
    words = re.findall(r"[a-z']+", demand.text.lower())
    plain = re.fullmatch(r"[A-Za-z0-9_./=:@ -]+", demand.text) is not None
    ends = demand.text[-1] in ".:" or re.search(r"[.:] ", demand.text)
    return plain and not ends and not NEVER_NAMES & set(words) and not _TALK & set(words)


_TALK: Final = frozenset(
    {"and", "then", "please", "the", "my", "it", "as", "about", "i", "you", "we"}
)
"""Words of sentences, not of commands: the rest of a sentence is not a command."""

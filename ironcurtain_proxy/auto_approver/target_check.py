"""The target check: whether a message names what a call does and what it does it to.

Theory of operation: the check can only object. It runs after a model has approved, because a model
is persuaded by similarity: a `never mind` after a request, a file beside the one asked for.

    message ── requests_of ──▶ requests (verb, target) ┐
                                                       ├─ one request for each action? ── or object
    call ── action_of, actions_of_command ──▶ actions ─┘

Both sides are parsed by small grammars; a text or call that is not understood completely is an
objection. Each action needs exactly one request with its verb, whose target is the action's own. A
second request with the same verb may correct the first, so it is an objection, too.

The calls that can pass are: commit, push, pull, fetch and a pull request in the workspace's own
repository; installing packages that the message names; what works on files, fetches, writes to
people or acts at the forge, if the user named each target and quoted each text; and a shell command
whose parts are each one of these or only read. A person is asked about all others.
"""

import re
from collections.abc import Sequence
from typing import Final, assert_never

from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.target_call import (
    ON_FILES,
    Action,
    CallSurroundings,
    GitCall,
    InstallCall,
    NotUnderstood,
    PullRequestCall,
    SpelledCall,
    action_of,
    asked_path,
    targets_of,
)
from ironcurtain_proxy.auto_approver.target_command import (
    FILE_NAME,
    actions_of_command,
    why_not_read,
)
from ironcurtain_proxy.auto_approver.target_message import StatedRequest, Verb, requests_of
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.places import is_protected_name, names_a_secret, names_a_secret_file
from ironcurtain_proxy.shell.programs import paths


def veto(message: str, escalation: Escalation, around: CallSurroundings) -> str | None:
    """Object to an approval, in one phrase, or None if there is nothing to object to.

    Args:
        message: the user's most recent one, as it came.
        escalation: the call with its facts.
        around: where `~`, relative paths and the repository are.
    """
    actions = published_by(escalation, around)
    if isinstance(actions, NotUnderstood):
        return None if _is_typed(message, escalation) else actions.reason
    requests = requests_of(message)
    if isinstance(requests, NotUnderstood):
        return requests.reason
    verbs = [_verb(action) for action in actions]
    if len(set(verbs)) < len(verbs):
        return "the call does the same operation twice"
    objections = [
        _without_request([one for one in requests if one.verb == verb])
        or _objection(
            next(one for one in requests if one.verb == verb),
            action,
            around,
            held=escalation.held,
        )
        for verb, action in zip(verbs, actions, strict=True)
    ]
    # "push the login branch and create a PR" asks for none of another branch.
    objections += [
        _about_git(one, action.pushed, around, held=escalation.held)
        for action in actions
        for one in requests
        if isinstance(action, PullRequestCall) and action.pushed and one.verb == "push"
    ]
    return next((one for one in objections if one is not None), None)


def _is_typed(message: str, escalation: Escalation) -> bool:
    """Return whether a message is to run the command of a call, and has it letter by letter.

    One that publishes is none of these: what it publishes has to be read.
    """
    said, command = _RUN.fullmatch(message.strip()), escalation.command
    if said is None or command is None or escalation.arguments.get("command") != said["text"]:
        return False
    return (
        (bool(said["mark"]) or said["text"].split()[0] in _PROGRAMS)
        and _PUBLISHES.search(said["text"]) is None
        and not any(names_a_secret(one.words) for one in command.every_command())
        and why_not_read(command, escalation.place, escalation.arguments) is None
    )


_RUN: Final = re.compile(
    r"(?:(?:please|pls|ok|now|yes|then),? )*(?:[Rr]un|[Ee]xecute):? (?P<mark>`?)"
    r"(?P<text>[!-_a-~](?:[ -_a-~]*[!-_a-~])?)(?P=mark)(?:,? please| pls)?",
)
_PROGRAMS: Final = frozenset(
    [path[0] for section in ("reads", "families", "leaves") for path in paths(section)]
)
_PUBLISHES: Final = re.compile(r"commit|push|\bpr\b")


def _without_request(wanted: Sequence[StatedRequest]) -> str | None:
    if not wanted:
        return "the message does not ask for this operation"
    # A second request may correct the first.
    return "the message asks for this operation twice" if len(wanted) > 1 else None


def is_plain(message: str, escalation: Escalation, around: CallSurroundings) -> bool:
    """Return whether a message is understood whole, and asks for nothing that a call does."""
    actions, requests = published_by(escalation, around), requests_of(message)
    if isinstance(actions, NotUnderstood) or isinstance(requests, NotUnderstood):
        return False
    return {one.verb for one in requests}.isdisjoint(map(_verb, actions))


def operations_of(escalation: Escalation, around: CallSurroundings) -> tuple[str, ...]:
    """Return names of what a call does: a message approves each once."""
    actions = published_by(escalation, around)
    named = f"{escalation.server}/{escalation.tool} {targets_of(escalation)!r}"
    if isinstance(actions, NotUnderstood):
        return (named,)
    # A push is one push, whichever tool pushes.
    return tuple(
        [
            _verb(one)
            if isinstance(one, GitCall | PullRequestCall)
            else named
            if escalation.command is None
            else f"{escalation.server}/{escalation.tool} {_verb(one)}"
            for one in actions
        ]
    )


def published_by(
    escalation: Escalation, around: CallSurroundings
) -> tuple[Action, ...] | NotUnderstood:
    """Return the actions of a call, with the commits that it publishes besides.

    A commit that nobody asked for is an action of the push that publishes it: a message that asks
    for one commit and for the push asks for both.
    """
    actions = own_actions(escalation, around)
    if isinstance(actions, NotUnderstood):
        return actions
    verbs = {_verb(one) for one in actions}
    if verbs.isdisjoint({"commit", "push", "pr"}):
        return actions
    known = around.unpublished
    made = () if known is None or verbs.isdisjoint({"push", "pr"}) else known.commits
    if known is None or made is None:
        return NotUnderstood("it is not known what the call would publish")
    staged = known.new if "commit" in verbs else ()
    new = [*staged, *[path for one in made for path in one.new]]
    if any(names_a_secret_file(one) or is_protected_name(one) for one in new):
        return NotUnderstood("the call publishes a new file that commonly holds secrets")
    commits = [GitCall(operation="commit", text=one.text, staged=one.paths) for one in made]
    return (*commits, *[_with_index(one, known.staged) for one in actions])


def _with_index(action: Action, staged: tuple[str, ...]) -> Action:
    if isinstance(action, GitCall) and action.operation == "commit":
        return replace(action, staged=(*staged, *action.staged))
    return action


def commits_and_pushes(
    escalation: Escalation, around: CallSurroundings
) -> tuple[tuple[tuple[str, ...] | None, ...], bool]:
    """Return the paths of each commit that a call makes, None for any, and whether it pushes."""
    own, staged = own_actions(escalation, around), around.unpublished and around.unpublished.staged
    git = [one for one in (own if isinstance(own, tuple) else ()) if isinstance(one, GitCall)]
    commits = [one.staged for one in git if one.operation == "commit"]
    paths = [None if str(around.workspace) in one else (*one, *(staged or ())) for one in commits]
    return tuple(paths), any(one.operation == "push" for one in git)


def own_actions(
    escalation: Escalation, around: CallSurroundings
) -> tuple[Action, ...] | NotUnderstood:
    """Return what a call itself does."""
    if escalation.command is not None:
        return actions_of_command(escalation.command, escalation.place, escalation.arguments)
    action = action_of(escalation, around)
    return action if isinstance(action, NotUnderstood) else (action,)


def _verb(action: Action) -> Verb:
    match action:
        case PullRequestCall():
            return "ready" if action.is_ready_mark else "pr"
        case InstallCall():
            return "install"
        case GitCall():
            return action.operation
        case SpelledCall():
            return action.verb
        case _:
            assert_never(action)


def _objection(
    request: StatedRequest, action: Action, around: CallSurroundings, *, held: bool
) -> str | None:
    match action:
        case SpelledCall() if action.verb in ON_FILES:
            return _about_file(request, action, around)
        case SpelledCall():
            return _about_named(request, action, around)
        case GitCall():
            return _about_git(request, action, around, held=held)
        case PullRequestCall():
            return _about_pull_request(request, action)
        case InstallCall():
            return _about_install(request, action)
        case _:
            assert_never(action)


def _about_named(
    request: StatedRequest, action: SpelledCall, around: CallSurroundings
) -> str | None:
    if request.quoted != action.text:
        return "the message does not quote the text"
    if request.manager is not None and request.manager not in action.server.lower():
        return "the message names another service"
    # An owner and a repository are one word of the message, and so is a branch.
    names = [
        part
        for one in request.names
        for part in (one.split("/") if _REPO(one) and one not in action.values else [one])
    ]
    if len(names) != len(action.values):
        return "the message does not name each value of the call, and no others"
    source = None
    for name, value in zip(names, action.values, strict=True):
        is_number = name.startswith("#") and name[1:].isdecimal()
        is_path = isinstance(value, RealPath)
        if value != (_path_of(name, around, source) if is_path else name[is_number:]):
            return "the message does not name each value of the call, and no others"
        source = value if isinstance(value, RealPath) else None
    return None


def _path_of(name: str, around: CallSurroundings, source: RealPath | None) -> RealPath | None:
    """Return the path that a name means: "move ~/a.txt to ~/b" means a place in a directory."""
    # "rename /srv/a.md to b.md": from where a relative path starts is not said.
    path = asked_path(name, around) if name.startswith(("/", "~/")) else None
    is_inside = FILE_NAME.search(str(source)) and not FILE_NAME.search(name)
    last = source.parts[-1:] if source is not None and is_inside else ()
    return None if path is None else RealPath((*path.parts, *last))


_REPO: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII).fullmatch
_WORDS: Final = re.compile(r"[^\W_]+")


def _about_git(
    request: StatedRequest, action: GitCall, around: CallSurroundings, *, held: bool
) -> str | None:
    if not _is_described(request, action, f"{around.workspace}/"):
        return "the message describes what the call is not known to be about"
    if action.operation == "commit":
        return _about_commit(request, action, around, held=held)
    return _about_remote(request, action)


def _is_described(request: StatedRequest, action: GitCall, root: str) -> bool:
    """Return whether words such as `login` in "push the login branch" are of what the call is for.

    That is the branch, or each path that is staged: no word of the agent's own counts.
    """
    about = {one.lower().removesuffix("s") for one in request.about}
    told = [_stems(action.current or "")]
    if action.operation == "commit" and action.staged:
        paths = [f"{one}/".removeprefix(root) for one in action.staged]
        told.append(frozenset.intersection(*map(_stems, paths)))
    return all(any(one in words for words in told) for one in about)


def _stems(text: str) -> frozenset[str]:
    return frozenset([one.lower().removesuffix("s") for one in _WORDS.findall(text)])


def _about_commit(
    request: StatedRequest, action: GitCall, around: CallSurroundings, *, held: bool
) -> str | None:
    if not action.text:
        return "the call has no message to commit with"
    named = {str(asked_path(one, around)) for one in request.names}
    if named and not (action.staged and named.issuperset(action.staged)):
        return "the message names files, and the call commits others"
    # A commit that the timeline can take back may have words of the agent's own, though no others
    # than those that the user quoted, if there are any.
    is_said = request.quoted == action.text or (held and request.quoted is None)
    return None if is_said else "the message does not quote the commit message"


def _about_pull_request(request: StatedRequest, action: PullRequestCall) -> str | None:
    if request.draft and not action.draft:
        return "the message asks for a draft"
    bases = set(request.names)
    is_base = bases == {action.base} if bases else action.base in {None, "main", "master"}
    if not action.is_ready_mark and not is_base:
        return "the message does not name the branch of the pull request"
    # Plain words of the agent's own may stand there, as in the commits that are proposed, though no
    # others than those that the user quoted, if there are any.
    # A quoted title is one: the body says what is in the commits.
    others = action.texts[action.texts[:1] == (request.quoted,) :]
    is_own = (request.quoted is None or len(others) < len(action.texts)) and not action.carries
    if not is_own and any(text != request.quoted for text in action.texts):
        return "the message does not quote the text of the pull request"
    return None


def _about_install(request: StatedRequest, action: InstallCall) -> str | None:
    if set(action.packages) != set(request.names):
        return "the message does not name these packages"
    if request.manager is None and action.packages:
        return "the message does not name the package manager"
    is_same = request.manager in {None, action.manager}
    return None if is_same else "the message names another package manager"


def _about_file(
    request: StatedRequest, action: SpelledCall, around: CallSurroundings
) -> str | None:
    if request.kind not in {None, action.kind}:
        return "the message asks for the operation on another kind of thing"
    named = {asked_path(text, around) for text in request.names}
    if None in named or not set(action.values) <= named:
        return "the message does not name path"
    if action.verb == "write" and (len(named) != 1 or request.quoted != action.text):
        return "the message does not quote what is written, or names something else"
    return None


def _about_remote(request: StatedRequest, action: GitCall) -> str | None:
    """Object unless remote and branch are those of the message, or git's own for the branch."""
    own = action.upstream[0] if action.upstream is not None else None
    remote, branch = action.remote or own, action.branch or action.current
    # "the login branch" may be `feature/login`.
    is_part = request.branch == (branch or "").rpartition("/")[2] not in _BRANCHES
    named = {branch if one == "HEAD" else one for one in request.names}
    named -= {request.branch} if is_part else set()
    if not named <= {remote, branch, f"{remote}/{branch}"} or remote in _BRANCHES:
        return "the message does not name remote and branch"
    if action.remote not in {None, own} and not _is_named(action.remote, request):
        return "the message does not name remote"
    if action.operation != "push":
        is_own = action.branch in {None, action.current} or _is_named(action.branch, request)
        return None if is_own else "the message does not name branch"
    # Unknown where configuration maps a branch to one of another name.
    mapped = action.upstream[1] if action.upstream is not None and not action.branch else None
    is_own = action.current is not None and {action.branch, mapped} <= {None, action.current}
    return None if is_own else "the branch is not known to be the current one"


_BRANCHES: Final = frozenset({"main", "master"})
"""In "push to main" they are no remotes."""


def _is_named(name: str | None, request: StatedRequest) -> bool:
    return any(name in {one, *one.split("/", 1)} for one in request.names)

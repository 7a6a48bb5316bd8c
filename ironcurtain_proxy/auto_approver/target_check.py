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
repository; installing packages that the message names; reading, writing, editing, deleting or
fetching exactly what the message names in full; and a shell command whose parts are each one of
these or only read. A person is asked about all others.
"""

import re
from collections.abc import Sequence
from typing import Final, assert_never

from ironcurtain_proxy.auto_approver.target_call import (
    Action,
    CallSurroundings,
    FileCall,
    GitCall,
    InstallCall,
    NotUnderstood,
    PullRequestCall,
    UrlCall,
    action_of,
    targets_of,
)
from ironcurtain_proxy.auto_approver.target_command import actions_of_command
from ironcurtain_proxy.auto_approver.target_message import StatedRequest, Verb, requests_of
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.path import RealPath


def veto(message: str, escalation: Escalation, around: CallSurroundings) -> str | None:
    """Object to an approval, in one phrase; None: there is nothing to object to.

    Args:
        message: the user's most recent one, as it came.
        escalation: the call with its facts.
        around: where `~`, relative paths and the repository are.
    """
    actions = _actions(escalation, around)
    if isinstance(actions, NotUnderstood):
        return actions.reason
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
    return next((one for one in objections if one is not None), None)


def _without_request(wanted: Sequence[StatedRequest]) -> str | None:
    if not wanted:
        return "the message does not ask for this operation"
    # The second may correct the first.
    return "the message asks for this operation twice" if len(wanted) > 1 else None


def is_plain(message: str, escalation: Escalation, around: CallSurroundings) -> bool:
    """Whether a message is understood whole, and asks for nothing that a call does."""
    actions, requests = _actions(escalation, around), requests_of(message)
    if isinstance(actions, NotUnderstood) or isinstance(requests, NotUnderstood):
        return False
    return {one.verb for one in requests}.isdisjoint(map(_verb, actions))


def operations_of(escalation: Escalation, around: CallSurroundings) -> tuple[str, ...]:
    """Names of what a call does: a message approves each once."""
    actions = _actions(escalation, around)
    if escalation.command is None or isinstance(actions, NotUnderstood):
        return (f"{escalation.server}/{escalation.tool} {targets_of(escalation)!r}",)
    return tuple([f"{escalation.server}/{escalation.tool} {_verb(one)}" for one in actions])


def _actions(
    escalation: Escalation, around: CallSurroundings
) -> tuple[Action, ...] | NotUnderstood:
    if escalation.command is not None:
        return actions_of_command(escalation.command, escalation.place, escalation.arguments)
    action = action_of(escalation, around)
    return action if isinstance(action, NotUnderstood) else (action,)


def _verb(action: Action) -> Verb:
    match action:
        case UrlCall():
            return "get"
        case PullRequestCall():
            return "ready" if action.is_ready_mark else "pr"
        case InstallCall():
            return "install"
        case FileCall() | GitCall():
            return action.operation
        case _:
            assert_never(action)


def _objection(
    request: StatedRequest, action: Action, around: CallSurroundings, *, held: bool
) -> str | None:
    objection: str | None = None
    match action:
        case UrlCall() if request.targets != (action.url,):
            objection = "the message does not name url"
        case FileCall():
            objection = _about_file(request, action, around)
        case GitCall(operation="commit"):
            objection = _about_commit(request, action, held=held)
        case GitCall():
            objection = _about_remote(request, action)
        case PullRequestCall():
            objection = _about_pull_request(request, action)
        case InstallCall():
            objection = _about_install(request, action)
        case UrlCall():
            pass
        case _:
            assert_never(action)
    return objection


def _about_commit(request: StatedRequest, action: GitCall, *, held: bool) -> str | None:
    if not action.text:
        return "the call has no message to commit with"
    # A commit that the timeline can take back may have words of the agent's own, though no others
    # than those that the user quoted, if there are any.
    is_said = request.quoted == action.text or (held and request.quoted is None)
    return None if is_said else "the message does not quote the commit message"


def _about_pull_request(request: StatedRequest, action: PullRequestCall) -> str | None:
    if request.draft and not action.draft:
        return "the message asks for a draft"
    if any(text != request.quoted for text in action.texts):
        return "the message does not quote the text of the pull request"
    return None


def _about_install(request: StatedRequest, action: InstallCall) -> str | None:
    if set(action.packages) != set(request.targets):
        return "the message does not name these packages"
    if request.manager is None and action.packages:
        return "the message does not name the package manager"
    return (
        None
        if request.manager in {None, action.manager}
        else "the message names another package manager"
    )


def _about_file(request: StatedRequest, action: FileCall, around: CallSurroundings) -> str | None:
    if request.kind not in {None, action.kind}:
        return "the message asks for the operation on another kind of thing"
    named = {path_of(text, around) for text in request.targets}
    if None in named or not set(action.paths) <= named:
        return "the message does not name path"
    if action.operation in {"write", "edit"} and len(named) != 1:
        return "the message names something else"
    if action.operation in {"write", "edit"} and request.quoted != action.content:
        return "the message does not quote what is written"
    return None


_UNCLEAR: Final = re.compile(r"(^|/)\.\.?(/|$)|//|[*?\[\]{}$\\|<>&;()]")


def path_of(text: str, around: CallSurroundings) -> RealPath | None:
    """The path that a text names; None: none, or one that cannot be told without looking."""
    root: RealPath | None
    if text.startswith("/"):
        root, tail = RealPath(()), text
    elif text.startswith("~/"):
        root, tail = around.home, text[1:]
    else:
        root, tail = around.workspace, text.removeprefix("./")
    if root is None or tail.startswith("~") or _UNCLEAR.search(tail):
        return None
    parts = RealPath.from_text(tail).parts
    return RealPath((*root.parts, *parts)) if parts else None


def _about_remote(request: StatedRequest, action: GitCall) -> str | None:
    """Object unless remote and branch are those of the message, or git's own for the branch."""
    # Of a call whose upstream is not known, only the very same words say the same.
    own = action.upstream[0] if action.upstream is not None else None
    if (request.remote or own) != (action.remote or own):
        return "the message does not name remote"
    current = action.current
    if action.operation == "push":
        # Unknown where configuration maps a branch to one of another name.
        mapped = action.upstream[1] if action.upstream is not None and not action.branch else None
        is_own = current is not None and {action.branch, mapped, request.branch} <= {None, current}
        return None if is_own else "the branch is not known to be the current one"
    meant, done = request.branch or current, action.branch or current
    return None if meant == done else "the message does not name branch"

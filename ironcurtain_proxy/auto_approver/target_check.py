"""The target check: whether a message names what a call does and what it does it to.

Pure: no I/O, no clock, no log. It can only object. It has the last word after a model has approved,
because a model is persuaded by what looks alike: `never mind` after a request, a file beside the
one that was asked for. It approves nothing by itself.

Few calls pass: commit, push, pull and fetch in the workspace's own repository, and reading,
writing, editing, deleting or fetching exactly what stands in the message whole. All others go to a
person.
"""

import re
from typing import Final, assert_never

from ironcurtain_proxy.auto_approver.target_call import (
    Action,
    FileCall,
    GitCall,
    NotUnderstood,
    Surroundings,
    UrlCall,
    action_of,
)
from ironcurtain_proxy.auto_approver.target_message import Request, requests_of
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.path import RealPath


def veto(message: str, escalation: Escalation, around: Surroundings) -> str | None:
    """Object to an approval, in one phrase; None: there is nothing to object to.

    Args:
        message: the user's most recent one, as it came.
        escalation: the call with its facts.
        around: where `~`, relative paths and the repository are.
    """
    action = action_of(escalation, around)
    if isinstance(action, NotUnderstood):
        return action.reason
    requests = requests_of(message)
    if isinstance(requests, NotUnderstood):
        return requests.reason
    wanted = [one for one in requests if one.verb == _verb(action)]
    if not wanted:
        return "the message does not ask for this operation"
    if len(wanted) > 1:
        # The second may correct the first.
        return "the message asks for this operation twice"
    return _objection(wanted[0], action, around)


def _verb(action: Action) -> str:
    return "get" if isinstance(action, UrlCall) else action.operation


def _objection(request: Request, action: Action, around: Surroundings) -> str | None:
    match action:
        case UrlCall():
            is_named = request.targets == (action.url,)
            return None if is_named else "the message does not name url"
        case FileCall():
            return _about_file(request, action, around)
        case GitCall(operation="commit"):
            is_said = request.quoted is None or request.quoted == action.text
            if not action.text:
                return "the call has no message to commit with"
            return None if is_said else "the message quotes another commit message"
        case GitCall():
            return _about_remote(request, action)
        case _:
            assert_never(action)


def _about_file(request: Request, action: FileCall, around: Surroundings) -> str | None:
    if request.kind not in {None, action.kind}:
        return "the message asks for it of another kind of thing"
    named = {path_of(text, around) for text in request.targets}
    if None in named or not set(action.paths) <= named:
        return "the message does not name path"
    if action.operation in {"write", "edit"} and len(named) != 1:
        return "the message names something else"
    if request.quoted is not None and request.quoted != action.content:
        return "the message quotes another content"
    return None


_UNCLEAR: Final = re.compile(r"(^|/)\.\.?(/|$)|//|[*?\[\]{}$\\|<>&;()]")


def path_of(text: str, around: Surroundings) -> RealPath | None:
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


def _about_remote(request: Request, action: GitCall) -> str | None:
    """Object unless remote and branch are those of the message, or git's own for the branch."""
    if request.remote != action.remote:
        return "the message does not name remote"
    current = action.current
    if action.operation == "push":
        # Unknown where configuration maps a branch to one of another name.
        is_own = current is not None and {action.branch, request.branch} <= {None, current}
        return None if is_own else "the branch is not known to be the current one"
    meant, done = request.branch or current, action.branch or current
    return None if meant == done else "the message does not name branch"

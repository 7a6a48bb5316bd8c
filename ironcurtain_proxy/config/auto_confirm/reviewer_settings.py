"""The reviewers of the auto-confirm engine: `auto_confirm.reviewers`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from ironcurtain_proxy.auto_confirm.engine.patterns import SessionType
from ironcurtain_proxy.auto_confirm.engine.settings import HUMAN, REVIEWER_TYPES, ReviewerSetting
from ironcurtain_proxy.config.reading.declared import one_of
from ironcurtain_proxy.config.reading.document import Members, Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.review_settings import read_model_id

ReviewerKind: TypeAlias = Literal["human", "session", "process", "model"]
ReviewerProtocol: TypeAlias = Literal["lines", "mcp"]

_SESSION_TYPES: Final[tuple[SessionType, ...]] = get_args(SessionType)
_KINDS: Final[tuple[ReviewerKind, ...]] = get_args(ReviewerKind)
_PROTOCOLS: Final[tuple[ReviewerProtocol, ...]] = get_args(ReviewerProtocol)
_HUMAN: Final[ReviewerKind] = "human"
_LINES: Final[ReviewerProtocol] = "lines"
_FOR: Final[Mapping[str, frozenset[ReviewerKind]]] = {
    "token_file": frozenset({"session"}),
    "command": frozenset({"process"}),
    "env": frozenset({"process", "model"}),
    "modelId": frozenset({"model"}),
    "apiBase": frozenset({"model"}),
    "mailbox": frozenset({"human", "session"}),
    "session": frozenset({"process", "session"}),
    "session_type": frozenset({"process", "session", "model"}),
}
"""The kinds of reviewers that take a key, for keys that not all kinds take."""
_NAME_LENGTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewerSpec:
    """The settings of one reviewer."""

    name: str
    kind: ReviewerKind
    command: tuple[str, ...] = ()
    """Process: the program and its arguments."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Process: added to its environment. Model: `API_KEY`."""
    protocol: ReviewerProtocol = "lines"
    """Process: the protocol that it speaks."""
    tool: str = "review"
    """MCP process: the tool that asks it."""
    model_id: str = ""
    """Model: `PROVIDER:MODEL`."""
    api_base: str | None = None
    """Model: another endpoint of its provider's protocol."""
    mailbox: Path | None = None
    """Session, or person with a directory of their own: the escalation directory."""
    token_file: Path | None = None
    """Session: the file with the token that authenticates its answers."""


def read_reviewer(layers: Layers, spot: Spot) -> tuple[ReviewerSetting, ReviewerSpec]:
    """Read one reviewer; paths are relative to the file that holds them."""
    members = spot.object(
        (
            *("name", "kind", "command", "env", "modelId", "mailbox", "token_file", "apiBase"),
            *("session", "session_type", "may_deny", "protocol", "tool"),
        )
    )
    name = members.required("name").name()
    if len(name) > _NAME_LENGTH or not name.isprintable():
        spot.error(f"a name has at most {_NAME_LENGTH} visible characters")
    kind = members.read("kind", one_of(_KINDS), _HUMAN)
    if name == HUMAN and kind != _HUMAN:
        spot.error(f'"{HUMAN}" is the person who is asked by default: choose another name')
    command = members.read("command", lambda inner: inner.each(Spot.name), ())
    if kind == "process" and not command:
        spot.error("a process needs a command: a list of the program and its arguments")
    model = members.read("modelId", read_model_id, "")
    if kind == "model" and not model:
        spot.error("a model needs a modelId: PROVIDER:MODEL")
    session_type = members.read(
        "session_type", one_of(_SESSION_TYPES), REVIEWER_TYPES.get(name, "unknown")
    )
    reviewer = ReviewerSetting(
        name=name,
        kind="human" if kind == "human" else "process",
        session=members.read("session", Spot.name, None),
        session_type=session_type,
        may_deny=members.read("may_deny", Spot.switch, default=True),
    )
    _check_kind(members, kind)
    if kind != _HUMAN and session_type == "unknown":
        spot.error(
            "needs a session_type, which says what it may review: manager, architect or high-level"
        )
    spec = ReviewerSpec(
        name=name,
        kind=kind,
        command=command,
        env=members.read("env", Spot.texts_by_name, {}),
        protocol=_spoken(members, kind),
        tool=members.read("tool", Spot.name, "review"),
        model_id=model,
        api_base=members.read("apiBase", Spot.name, None),
        mailbox=members.read("mailbox", layers.as_path, None),
        token_file=members.read("token_file", layers.as_path, None),
    )
    return reviewer, spec


def _check_kind(members: Members, kind: ReviewerKind) -> None:
    """Check the keys that a kind requires or does not take."""
    for key in ("mailbox", "token_file") if kind == "session" else ():
        members.required(key)
    for key, kinds in _FOR.items():
        said = members.get(key)
        if said is not None and kind not in kinds:
            said.error(f"is not for a {kind}")
    may_deny = members.get("may_deny")
    if may_deny is not None and kind == "human" and "mailbox" not in members:
        may_deny.error("is for a human with a mailbox of their own")


def _spoken(members: Members, kind: ReviewerKind) -> ReviewerProtocol:
    """The protocol of a reviewer, checked against its kind."""
    protocol = members.read("protocol", one_of(_PROTOCOLS), _LINES)
    said, tool = members.get("protocol"), members.get("tool")
    if said is not None and kind != "process":
        said.error(f"is for a process, not for a {kind}")
    if tool is not None and (kind, protocol) != ("process", "mcp"):
        tool.error('is for a process with "protocol": "mcp"')
    return protocol

"""The reviewers of the auto-confirm engine: `auto_confirm.reviewers`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import UNSET

from ironcurtain_proxy.auto_confirm.engine.patterns import SessionType
from ironcurtain_proxy.auto_confirm.engine.settings import HUMAN, REVIEWER_TYPES, ReviewerSetting
from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.forms import CheckedForm, FormMistake, Maybe, NameText
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.review_settings import ProviderModel
from ironcurtain_proxy.config.settings import Settings

ReviewerKind: TypeAlias = Literal["human", "session", "process", "model"]
ReviewerProtocol: TypeAlias = Literal["lines", "mcp"]

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
_RENAMED: Final = {"model_id": "modelId", "api_base": "apiBase"}
_NAME_LENGTH: Final = 64
_REVIEWS: Final = (
    "needs a session_type, which says what it may review: manager, architect or high-level"
)


class ReviewerForm(
    CheckedForm, frozen=True, kw_only=True, rename={"model_id": "modelId", "api_base": "apiBase"}
):
    """A reviewer."""

    name: NameText
    kind: ReviewerKind = "human"
    command: tuple[NameText, ...] = ()
    """A process: the program and its arguments."""
    env: Maybe[dict[str, str]] = UNSET
    """A process: added to its environment. A model: `API_KEY`."""
    protocol: Maybe[ReviewerProtocol] = UNSET
    """A process: what it speaks, `lines` if absent."""
    tool: Maybe[NameText] = UNSET
    """A process that speaks MCP: the tool that asks it, `review` if absent."""
    model_id: Maybe[ProviderModel] = UNSET
    """A model: `PROVIDER:MODEL`."""
    api_base: Maybe[NameText] = UNSET
    """A model: another endpoint of its provider's protocol."""
    mailbox: Maybe[NameText] = UNSET
    """A session, or a person with a directory of their own: the escalation directory."""
    token_file: Maybe[NameText] = UNSET
    """A session: the file with the token that authenticates its answers."""
    session: Maybe[NameText] = UNSET
    """The session that it reviews from; its name if absent."""
    session_type: Maybe[SessionType] = UNSET
    may_deny: Maybe[bool] = UNSET
    """Whether its refusal ends the question."""

    @property
    def type_of_session(self) -> SessionType:
        """The session type, by default the one that the original document names."""
        return self.session_type or REVIEWER_TYPES.get(self.name, "unknown")

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield keys that the kind needs, and those that it does not take."""
        yield from self._own_mistakes()
        fields = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        said = {key for key, name in fields if getattr(self, name) not in (UNSET, ())}
        given = [key for key in _FOR if key in said]
        for key in ("mailbox", "token_file") if self.kind == "session" else ():
            if key not in given:
                yield (key,), "is missing", ""
        for key in given:
            if self.kind not in _FOR[key]:
                yield (key,), f"is not for a {self.kind}", ""
        if self.may_deny is not UNSET and self.kind == "human" and self.mailbox is UNSET:
            yield ("may_deny",), "is for a human with a mailbox of their own", ""
        if self.protocol is not UNSET and self.kind != "process":
            yield ("protocol",), f"is for a process, not for a {self.kind}", ""
        if self.tool is not UNSET and (self.kind, self.protocol) != ("process", "mcp"):
            yield ("tool",), 'is for a process with "protocol": "mcp"', ""

    def _own_mistakes(self) -> Iterator[FormMistake]:
        if len(self.name) > _NAME_LENGTH or not self.name.isprintable():
            yield (), f"a name has at most {_NAME_LENGTH} visible characters", ""
        if self.name == HUMAN and self.kind != "human":
            message = f'"{HUMAN}" is the person who is asked by default: choose another name'
            yield (), message, ""
        if self.kind == "process" and not self.command:
            message = "a process needs a command: a list of the program and its arguments"
            yield (), message, ""
        if self.kind == "model" and not self.model_id:
            yield (), "a model needs a modelId: PROVIDER:MODEL", ""
        if self.kind != "human" and self.type_of_session == "unknown":
            yield (), _REVIEWS, ""

    def setting(self) -> ReviewerSetting:
        """Return what the engine knows of the reviewer."""
        return ReviewerSetting(
            name=self.name,
            kind="human" if self.kind == "human" else "process",
            session=self.session or None,
            session_type=self.type_of_session,
            may_deny=self.may_deny is not False,
        )


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


def reviewer_spec(layers: Layers, node: DocumentNode, form: ReviewerForm) -> ReviewerSpec:
    """Return the settings of one reviewer; paths are relative to the file that holds them."""
    return ReviewerSpec(
        name=form.name,
        kind=form.kind,
        command=form.command,
        env=form.env or {},
        protocol=form.protocol or "lines",
        tool=form.tool or "review",
        model_id=form.model_id or "",
        api_base=form.api_base or None,
        mailbox=layers.as_path(node.at("mailbox")) if form.mailbox else None,
        token_file=layers.as_path(node.at("token_file")) if form.token_file else None,
    )


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The access data handed to a model's library."""

    api_key: str = field(repr=False)
    """The API key; empty: there is none."""
    api_base: str | None
    """The endpoint; None: the provider's default."""


def provider_of(model_id: str) -> str:
    """Return the provider in `PROVIDER:MODEL`."""
    return model_id.partition(":")[0]


def model_access(spec: ReviewerSpec, settings: Settings) -> ModelAccess:
    """Return the reviewer's own key, else that of its provider.

    INVARIANT: a key is sent only to the provider that it belongs to. The key and endpoint of the
    LLM approver are used only by reviewers of the same provider.
    """
    provider, said = provider_of(spec.model_id), settings.auto_approve
    same = provider == provider_of(said.model_id)
    usual = said.api_key if same else settings.provider_keys.get(provider, "")
    return ModelAccess(
        api_key=spec.env.get("API_KEY") or usual,
        api_base=spec.api_base or (said.api_base if same else None),
    )

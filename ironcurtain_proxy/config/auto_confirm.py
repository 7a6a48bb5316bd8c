"""The section `auto_confirm`: settings of the engine, its reviewers and its notifications.

Imported only where the section exists: most sessions start without it.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import (
    Annotated,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    assert_never,
    get_args,
)

from msgspec import UNSET, Meta, Struct, field, structs

from ironcurtain_proxy.auto_confirm.engine.evaluation import check_on_timeout
from ironcurtain_proxy.auto_confirm.engine.interaction import OperationKind, SessionType
from ironcurtain_proxy.auto_confirm.engine.settings import (
    HUMAN,
    REVIEWER_TYPES,
    AutoConfirmSettings,
    EscalationTargets,
    NightMode,
    ReviewerSetting,
    RuleAction,
    RulePattern,
    SafetyRule,
    TimeoutAction,
    UnknownAction,
)
from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    NoticeChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.config.overlay_settings import ProviderModel
from ironcurtain_proxy.config.reading.document import DocumentNode, nearest, shown
from ironcurtain_proxy.config.reading.forms import (
    CheckedForm,
    Form,
    FormMistake,
    Maybe,
    MisfitError,
    NameText,
    fill,
    says,
)
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import WithSecrets

# --- reviewer settings


F = TypeVar("F", bound=Form)

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


# --- notification settings


NotificationKind: TypeAlias = Literal["none", "command", "webhook", "file", "tmux"]

_SUMMARY_MINUTES: Final = 15.0
_NEEDED: Final[Mapping[NotificationKind, str]] = {
    "command": "command",
    "webhook": "url",
    "file": "file",
    "tmux": "target",
}
"""The key that each kind needs."""

_WebAddress: TypeAlias = Annotated[
    str,
    says(r"https?://[^/?#\x00][^\x00]*", "must begin with http:// or https://, and name a host", 1),
]
_TmuxTarget: TypeAlias = Annotated[
    str,
    says(
        # The value becomes an argument and must not look like an option.
        r"[A-Za-z0-9_%@$:.=][A-Za-z0-9_%@$:./=-]{0,99}",
        "must name a tmux session, window or pane, such as main:0.1",
        1,
    ),
]


class NotificationsForm(CheckedForm, frozen=True, kw_only=True, rename={}):
    """Where notifications go."""

    kind: NotificationKind = "none"
    command: Maybe[tuple[NameText, ...]] = UNSET
    """For `command`: the program and its arguments."""
    url: Maybe[_WebAddress] = UNSET
    """For `webhook`: the address that notices are sent to."""
    file: Maybe[NameText] = UNSET
    """For `file`: the file that notices are added to."""
    target: Maybe[_TmuxTarget] = UNSET
    """For `tmux`: a session, window or pane."""
    summary_minutes: Annotated[float, Meta(ge=0, le=1440)] = _SUMMARY_MINUTES
    """Minutes between two summaries of the engine's approvals; 0 for none."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield the key that is missing, and keys of other kinds."""
        if self.command == ():
            yield ("command",), "must hold a program and its arguments", ""
        # Notifications may be switched off for a while, with the rest left in place.
        if self.kind == "none":
            return
        needed = _NEEDED[self.kind]
        if getattr(self, needed) is UNSET:
            yield (), f"{self.kind} needs {needed!r}", ""
        for key in _NEEDED.values():
            if key != needed and getattr(self, key) is not UNSET:
                yield (key,), f'is not for "{self.kind}"', ""


class NotificationSettings(Struct, frozen=True, kw_only=True):
    """The channels for notifications."""

    channels: tuple[NoticeChannel, ...] = ()
    summary_minutes: float = _SUMMARY_MINUTES
    """Minutes between two summaries of the engine's approvals, or 0 if there are no summaries."""


def notifications(
    layers: Layers, node: DocumentNode, form: NotificationsForm
) -> NotificationSettings:
    """Return the settings of a section; paths are relative to the file that holds them."""
    channel: NoticeChannel | None = None
    match form.kind:
        case "none":
            pass
        case "command":
            channel = CommandChannel(argv=form.command or ())
        case "webhook":
            channel = WebhookChannel(url=form.url or "")
        case "file":
            path = layers.as_path(node.at("file")) if form.file else None
            channel = None if path is None else FileChannel(path=path)
        case "tmux":
            channel = TmuxChannel(target=form.target or "")
        case _:
            assert_never(form.kind)
    return NotificationSettings(
        channels=() if channel is None else (channel,), summary_minutes=form.summary_minutes
    )


# --- settings


PROVIDER_VARIABLE: Final = "IRONCURTAIN_PROVIDER"
"""The variable with the provider of the session's model, set by the program that starts the proxy.
"""


_OPERATIONS: Final[tuple[OperationKind, ...]] = get_args(OperationKind)
_StoreUrl: TypeAlias = Annotated[
    str,
    says(
        r"(postgresql(\+psycopg)?://|sqlite:///)[^\x00]*",
        "must begin with postgresql:// or sqlite:///",
        1,
    ),
]
KEEP_DAYS: Final = 90.0
_MOST_DAYS: Final = 36500
_STANDARD: Final = AutoConfirmSettings()


class ContextForm(Form, frozen=True, kw_only=True, rename={}):
    """The environment that the operator expects. An absent setting requires nothing."""

    directory: Maybe[NameText] = UNSET
    """The expected workspace."""
    branch: Maybe[NameText] = UNSET
    environment: dict[str, str] = field(default_factory=dict)
    """The expected variables of the proxy's environment."""
    provider: Maybe[NameText] = UNSET
    """The expected value of `IRONCURTAIN_PROVIDER`."""


class StoreForm(CheckedForm, frozen=True, kw_only=True, rename={}):
    """Where the engine keeps its interactions."""

    url: Maybe[_StoreUrl] = UNSET
    """The address of the store; SQLite in the state directory if absent."""
    keep_days: Annotated[float, Meta(gt=-1, le=_MOST_DAYS)] = KEEP_DAYS
    """Days for which ended interactions are kept; 0 for ever."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield a part of a day."""
        if -1 < self.keep_days < 1 and self.keep_days != 0:
            yield ("keep_days",), "must be at least 1 day, or 0 to keep everything", ""


class SafetyRuleForm(CheckedForm, frozen=True, kw_only=True, rename={}):
    """A rule for a row of the matrix."""

    pattern: RulePattern
    action: RuleAction
    target: Maybe[NameText] = UNSET
    """The reviewer, for `escalate`; the reviewer of high risk if absent."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield what no rule may say."""
        yield from _refusals(self.rule)

    def rule(self) -> SafetyRule:
        """Return the rule."""
        return SafetyRule(pattern=self.pattern, action=self.action, target=self.target or None)


class AutoConfirmForm(CheckedForm, frozen=True, kw_only=True, rename={}):
    """The section of the engine."""

    enabled: bool = False
    intelligent_escalation: bool = True
    """Off: a person decides on every escalated call."""
    escalation_targets: EscalationTargets = _STANDARD.escalation_targets
    safety_rules: tuple[SafetyRuleForm, ...] = ()
    night_mode: NightMode = _STANDARD.night_mode
    escalation_timeout_minutes: Annotated[float, Meta(gt=0, le=1440)] = (
        _STANDARD.escalation_timeout_minutes
    )
    """Minutes for each of the two reviewers that are asked, one after the other."""
    fallback_escalation: NameText = _STANDARD.fallback_escalation
    load_relief: bool = False
    """Approve more when more than ten reviews of other sessions are pending."""
    unknown: UnknownAction = _STANDARD.unknown
    """What happens to an operation that the engine does not know."""
    on_timeout: dict[str, TimeoutAction] = field(default_factory=dict)
    """What happens to unanswered questions, by operation."""
    feature_branches: tuple[str, ...] = _STANDARD.feature_branches
    """Prefixes of branches that are nobody else's."""
    reviewers: tuple[ReviewerForm, ...] = ()
    session_type: SessionType = "worker"
    """The kind of session, as the operator names it."""
    store: StoreForm = StoreForm()
    notifications: NotificationsForm = NotificationsForm()
    context: ContextForm = ContextForm()

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield operations that nobody knows, and what does not fit together."""
        for name in self.on_timeout:
            if name not in _OPERATIONS and not name.startswith("_"):
                words = f"{shown(name)} is not one of {', '.join(_OPERATIONS)}"
                yield ("on_timeout", name), words, nearest(name, _OPERATIONS)
        for problem in check_on_timeout(self.table()):
            yield ("on_timeout",), problem.partition(": ")[2], ""
        yield from _refusals(lambda: self.engine(rules=()))

    def table(self) -> Mapping[OperationKind, TimeoutAction]:
        """Return what happens to unanswered questions, by operation."""
        return {one: self.on_timeout[one] for one in _OPERATIONS if one in self.on_timeout}

    def engine(self, rules: tuple[SafetyRule, ...]) -> AutoConfirmSettings:
        """Return the settings of the engine itself.

        Raises:
            ConfigurationError: they do not fit together.
        """
        return AutoConfirmSettings(
            enabled=self.enabled,
            intelligent_escalation=self.intelligent_escalation,
            escalation_targets=self.escalation_targets,
            safety_rules=rules,
            night_mode=self.night_mode,
            escalation_timeout_minutes=self.escalation_timeout_minutes,
            fallback_escalation=self.fallback_escalation,
            load_relief=self.load_relief,
            unknown=self.unknown,
            on_timeout=self.table(),
            feature_branches=self.feature_branches,
            reviewers=tuple([one.setting() for one in self.reviewers]),
        )


def _refusals(make: Callable[[], object]) -> Iterator[FormMistake]:
    try:
        make()
    except ConfigurationError as error:
        yield (), str(error), ""


class AutoConfirmConfig(WithSecrets, frozen=True, kw_only=True):
    """The settings in the section."""

    hidden: ClassVar[frozenset[str]] = frozenset({"store_url"})

    engine: AutoConfirmSettings
    session_type: SessionType = "worker"
    """The kind of session, as the operator names it."""
    context: ContextForm = field(default_factory=ContextForm)
    store_url: str | None = None
    """The address of the store; None: SQLite in the state directory."""
    keep_days: float = KEEP_DAYS
    """Days for which the store keeps ended interactions, or 0 if it holds for ever."""
    reviewers: tuple[ReviewerForm, ...] = ()
    notifications: NotificationSettings = field(default_factory=NotificationSettings)

    @property
    def mailboxes(self) -> tuple[Path, ...]:
        """The escalation directories of reviewers with a directory of their own."""
        return tuple([Path(spec.mailbox) for spec in self.reviewers if spec.mailbox])

    @property
    def token_files(self) -> tuple[Path, ...]:
        """The token files that authenticate their answers."""
        return tuple([Path(spec.token_file) for spec in self.reviewers if spec.token_file])


def read_auto_confirm(layers: Layers) -> AutoConfirmConfig | None:
    """Return the section, or None if it does not exist.

    Paths are relative to the file that holds them.
    """
    return layers.read("auto_confirm", lambda node: _config(layers, node), None)


def _config(layers: Layers, node: DocumentNode) -> AutoConfirmConfig:
    form = fill(node, AutoConfirmForm)
    _warn_of_strangers(node, [HUMAN, *[one.name for one in form.reviewers]])
    try:
        engine = form.engine(tuple([one.rule() for one in form.safety_rules]))
    except ConfigurationError:
        # It was reported where the form was filled.
        engine = _STANDARD
    return AutoConfirmConfig(
        engine=engine,
        session_type=form.session_type,
        context=_located(layers, node.at("context"), form.context, "directory"),
        store_url=form.store.url or None,
        keep_days=form.store.keep_days,
        reviewers=tuple(
            [
                _located(layers, node.at("reviewers", index), one, "mailbox", "token_file")
                for index, one in enumerate(form.reviewers)
            ]
        ),
        notifications=notifications(layers, node.at("notifications"), form.notifications),
    )


def _located(layers: Layers, node: DocumentNode, form: F, *keys: str) -> F:
    """Return a form with absolute paths at these keys. They are relative to its file."""
    paths = {key: layers.as_path(node.at(key)) for key in keys if getattr(form, key)}
    try:
        return structs.replace(form, **{key: str(path or "") for key, path in paths.items()})
    except MisfitError:
        # It was reported where the form was filled.
        return form


def _warn_of_strangers(node: DocumentNode, known: list[str]) -> None:
    """Warn of names that no reviewer has: a person is asked instead."""
    for place in (
        ("escalation_targets", "high_risk"),
        ("escalation_targets", "medium_risk"),
        ("fallback_escalation",),
    ):
        said = node.at(*place)
        if isinstance(said.value, str) and said.value not in known:
            words = f"{shown(said.value)} is not among the reviewers: a person is asked"
            said.warning(words, nearest(said.value, known))

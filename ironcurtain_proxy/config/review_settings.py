"""Settings of reviewers: sections `escalation` and `autoApprove`, and API keys of models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from ironcurtain_proxy.config.reading.declared import declared, setting
from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.forms import NameText, Seconds, says
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.model.origin import NamedBy

EscalationMode: TypeAlias = Literal["wait", "auto", "held"]
"""`wait`: the call waits for its answer. `held`: the call is returned after a while and may be
repeated. `auto`: `wait` if the operator named an escalation directory, else `held`."""

ChannelName: TypeAlias = Literal["mailbox", "elicitation", "terminal"]
"""A channel to a reviewer."""

DEFAULT_MODEL: Final = "anthropic:claude-haiku-4-5"

PROVIDER_KEYS: Final[Mapping[str, str]] = {
    "anthropic": "anthropicApiKey",
    "google": "googleApiKey",
    "openai": "openaiApiKey",
}
"""The key of the configuration file that holds each provider's API key."""

_ToolPattern: TypeAlias = Annotated[
    str, says(r"[^/\s\x00]+/[^/\s\x00]+", "must be SERVER/TOOL; * stands for any characters", 1)
]
ProviderModel: TypeAlias = Annotated[
    str,
    says(
        r"(anthropic|google|openai):[A-Za-z0-9._/@-]{1,128}",
        "must be PROVIDER:MODEL, the provider anthropic, google or openai",
        1,
    ),
]
"""A model as `PROVIDER:MODEL`."""

_PORT: Final = (
    r":0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
_Address: TypeAlias = Annotated[
    str,
    says(
        r"[Hh][Tt][Tt][Pp][Ss]?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]+)"
        rf"({_PORT})?([/?#][!-?A-~]*)?",
        # The address may be a secret: it is not repeated.
        "must be an http or https address, without a user name",
        1,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """The targets of a notice that a call waits for a person."""

    desktop: bool = setting("noticeDesktop", default=False)
    webhook: _Address = setting("noticeWebhook", "", is_secret=True)
    """An address; whoever knows it may often post there."""
    ntfy: _Address = setting("noticeNtfy", "", is_secret=True)
    """The address of a topic; whoever knows it may read and post there."""
    ntfy_token: NameText = setting("noticeNtfyToken", "", is_secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationSettings:
    """The settings of questions to reviewers."""

    mode: EscalationMode = setting("mode", "auto")
    hold_after_seconds: Seconds = setting("holdAfterSeconds", 45.0)
    """Seconds that a call waits before it is held."""
    channels: tuple[ChannelName, ...] = setting("channels", ("mailbox",))
    """The channels, in the order in which they are asked."""
    require_digest: bool = setting("requireDigest", default=False)
    """Accept only answers with the digest of the request that was shown."""
    wait_until_answered: bool = setting("waitUntilAnswered", default=False)
    """Whether a question has no deadline."""
    notices: NoticeSettings = field(default_factory=NoticeSettings)


_OwnRecord: TypeAlias = Annotated[
    str,
    says(
        r"[^/\s\x00]+/[^/\s\x00:]+(:[^\s\x00:]+)?",
        "must be SERVER/TOOL, or SERVER/TOOL:MEMBER of its results",
        1,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """The settings of who named what a call reaches."""

    ask_when_named_by: tuple[NamedBy, ...] = setting("askWhenNamedBy", ())
    """Ask a person about calls that reach a target which was named so, whatever the policy, a grant
    or a model says."""
    own: tuple[_OwnRecord, ...] = setting("own", ())
    """Tools whose results are the user's own records, such as an address book: `SERVER/TOOL`, or
    `SERVER/TOOL:MEMBER` for one member of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoApproveSettings:
    """The settings of the LLM approver, which is off by default."""

    enabled: bool = setting("enabled", default=False)
    model_id: ProviderModel = setting("modelId", DEFAULT_MODEL)
    api_key: str = field(default="", repr=False)
    api_base: NameText | None = setting("apiBase", None)
    """Another endpoint of the provider's protocol, such as a local model."""
    target_check: bool = setting("targetCheck", default=True)
    deadline_seconds: Annotated[float, Meta(gt=0.1, le=60)] = setting("deadlineSeconds", 8.0)
    """Seconds over all attempts."""
    max_per_minute: Annotated[int, Meta(ge=0, le=1000)] = setting("maxPerMinute", 20)
    max_outages: Annotated[int, Meta(ge=1, le=100)] = setting("maxOutages", 3)
    llm_log: Path | None = None
    """The log of the model; None: `auto-approve-llm.jsonl` in the session's directory."""
    only: tuple[_ToolPattern, ...] = setting("only", ())
    """The tools that the LLM approver may approve, as `SERVER/TOOL` with `*`; empty: all tools."""
    never: tuple[_ToolPattern, ...] = setting("never", ())
    """The tools that the LLM approver may not approve. This list precedes `only`."""
    confidence: Annotated[float, Meta(gt=0, le=1)] | None = setting("confidence", None)
    """The lowest confidence of the model, from 0 to 1, that counts; None: confidence is not asked
    for."""
    messages: Annotated[int, Meta(ge=1, le=5)] = setting("messages", 1)
    """The number of the user's last messages that the model sees."""
    shadow: bool = setting("shadow", default=False)
    """Whether the model is asked and its answer recorded while a person decides; it approves
    nothing."""


def read_escalation(layers: Layers) -> EscalationSettings:
    """Return the section `escalation`."""
    values = declared(EscalationSettings, layers.read, "escalation.")
    # Each channel is asked once.
    values["channels"] = tuple(dict.fromkeys(values["channels"]))
    return EscalationSettings(
        **values,
        notices=NoticeSettings(**declared(NoticeSettings, layers.read, "escalation.")),
    )


def read_auto_approve(
    layers: Layers, secrets: Mapping[str, str], session_dir: Path
) -> AutoApproveSettings:
    """Return the section `autoApprove`, with its key from the environment or else the file."""
    values = declared(AutoApproveSettings, layers.read, "autoApprove.")
    key_name = PROVIDER_KEYS.get(values["model_id"].partition(":")[0], "")
    return AutoApproveSettings(
        **values,
        api_key=secrets.get("AUTO_APPROVE_API_KEY") or layers.read(key_name, DocumentNode.name, ""),
        llm_log=layers.path("autoApprove.llmLogPath") or session_dir / "auto-approve-llm.jsonl",
    )


def read_provider_keys(layers: Layers) -> Mapping[str, str]:
    """Return the API keys that the file has, by provider."""
    keys = {name: layers.read(key, DocumentNode.name, "") for name, key in PROVIDER_KEYS.items()}
    return {name: key for name, key in keys.items() if key}

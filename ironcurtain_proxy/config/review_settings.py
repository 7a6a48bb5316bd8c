"""Settings of reviewers: sections `escalation` and `autoApprove`, and API keys of models."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from ironcurtain_proxy.config.reading.declared import (
    declared,
    keys_of,
    number,
    one_of,
    setting,
    whole,
)
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers

EscalationMode: TypeAlias = Literal["wait", "auto", "held"]
"""`wait`: the call waits for its answer. `held`: the call is returned after a while and may be
repeated. `auto`: `wait` if the operator named an escalation directory, else `held`."""

ChannelName: TypeAlias = Literal["mailbox", "elicitation", "terminal"]
"""A channel to a reviewer."""

DEFAULT_MODEL: Final = "anthropic:claude-haiku-4-5"

_MODES: Final[tuple[EscalationMode, ...]] = ("auto", "wait", "held")
_CHANNELS: Final[tuple[ChannelName, ...]] = ("mailbox", "elicitation", "terminal")

PROVIDER_KEYS: Final[Mapping[str, str]] = {
    "anthropic": "anthropicApiKey",
    "google": "googleApiKey",
    "openai": "openaiApiKey",
}
"""The key of the configuration file that holds each provider's API key."""

_TOOL: Final = re.compile(r"[^/\s]+/[^/\s]+")
_MODEL: Final = re.compile(r"(anthropic|google|openai):[A-Za-z0-9._/@-]{1,128}", re.ASCII)


def _address(spot: Spot) -> str:
    text = spot.name()
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not text.isascii() or "@" in text or set(text) & set(" \r\n\t"):
        # The address may be a secret: it is not repeated.
        spot.error("must be an http or https address, without a user name")
    return text


def _tools(spot: Spot) -> tuple[str, ...]:
    return tuple(spot.each(_tool))


def _tool(spot: Spot) -> str:
    text = spot.name()
    if _TOOL.fullmatch(text) is None:
        spot.error("must be SERVER/TOOL; * stands for any characters")
    return text


def _channels(spot: Spot) -> tuple[ChannelName, ...]:
    return tuple(dict.fromkeys(spot.each(lambda entry: entry.word(_CHANNELS))))


def read_model_id(spot: Spot) -> str:
    """A model as `PROVIDER:MODEL`."""
    text = spot.name()
    if _MODEL.fullmatch(text) is None:
        spot.error("must be PROVIDER:MODEL, the provider anthropic, google or openai")
        return DEFAULT_MODEL
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """The targets of a notice that a call waits for a person."""

    desktop: bool = setting("noticeDesktop", Spot.switch, default=False)
    webhook: str = setting("noticeWebhook", _address, "", is_secret=True)
    """An address; whoever knows it may often post there."""
    ntfy: str = setting("noticeNtfy", _address, "", is_secret=True)
    """The address of a topic; whoever knows it may read and post there."""
    ntfy_token: str = setting("noticeNtfyToken", Spot.name, "", is_secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationSettings:
    """The settings of questions to reviewers."""

    mode: EscalationMode = setting("mode", one_of(_MODES), "auto")
    hold_after_seconds: float = setting("holdAfterSeconds", number(0, 3600), 45.0)
    """Seconds that a call waits before it is held."""
    channels: tuple[ChannelName, ...] = setting("channels", _channels, ("mailbox",))
    """The channels, in the order in which they are asked."""
    require_digest: bool = setting("requireDigest", Spot.switch, default=False)
    """Accept only answers with the digest of the request that was shown."""
    notices: NoticeSettings = field(default_factory=NoticeSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoApproveSettings:
    """The settings of the LLM approver, which is off by default."""

    enabled: bool = setting("enabled", Spot.switch, default=False)
    model_id: str = setting("modelId", read_model_id, DEFAULT_MODEL)
    api_key: str = field(default="", repr=False)
    api_base: str | None = setting("apiBase", Spot.name, None)
    """Another endpoint of the provider's protocol, such as a local model."""
    target_check: bool = setting("targetCheck", Spot.switch, default=True)
    deadline_seconds: float = setting("deadlineSeconds", number(0.1, 60), 8.0)
    """Seconds over all attempts."""
    max_per_minute: int = setting("maxPerMinute", whole(0, 1000), 20)
    max_outages: int = setting("maxOutages", whole(1, 100), 3)
    llm_log: Path | None = None
    """The log of the model; None: `auto-approve-llm.jsonl` in the session's directory."""
    only: tuple[str, ...] = setting("only", _tools, ())
    """The tools that the LLM approver may approve, as `SERVER/TOOL` with `*`; empty: all tools."""
    never: tuple[str, ...] = setting("never", _tools, ())
    """The tools that the LLM approver may not approve. This list precedes `only`."""
    confidence: float | None = setting("confidence", number(0, 1), None)
    """The lowest confidence of the model, from 0 to 1, that counts; None: confidence is not asked
    for."""
    messages: int = setting("messages", whole(1, 5), 1)
    """The number of the user's last messages that the model sees."""
    shadow: bool = setting("shadow", Spot.switch, default=False)
    """Whether the model is asked and its answer recorded while a person decides; it approves
    nothing."""


REVIEW_KEYS: Final = (
    *keys_of(EscalationSettings, "escalation."),
    *keys_of(NoticeSettings, "escalation."),
    *keys_of(AutoApproveSettings, "autoApprove."),
    "autoApprove.llmLogPath",
    *PROVIDER_KEYS.values(),
)


def read_escalation(layers: Layers) -> EscalationSettings:
    """The section `escalation`."""
    return EscalationSettings(
        **declared(EscalationSettings, layers.read, "escalation."),
        notices=NoticeSettings(**declared(NoticeSettings, layers.read, "escalation.")),
    )


def read_auto_approve(
    layers: Layers, secrets: Mapping[str, str], session_dir: Path
) -> AutoApproveSettings:
    """The section `autoApprove`, with its key from the environment or else the file."""
    values = declared(AutoApproveSettings, layers.read, "autoApprove.")
    key_name = PROVIDER_KEYS.get(values["model_id"].partition(":")[0], "")
    return AutoApproveSettings(
        **values,
        api_key=secrets.get("AUTO_APPROVE_API_KEY") or layers.read(key_name, Spot.name, ""),
        llm_log=layers.path("autoApprove.llmLogPath") or session_dir / "auto-approve-llm.jsonl",
    )


def read_provider_keys(layers: Layers) -> Mapping[str, str]:
    """The API keys that the file has, by provider."""
    keys = {name: layers.read(key, Spot.name, "") for name, key in PROVIDER_KEYS.items()}
    return {name: key for name, key in keys.items() if key}

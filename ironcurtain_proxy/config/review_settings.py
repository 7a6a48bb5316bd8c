"""Settings of reviewers: sections `escalation` and `autoApprove`, and API keys of models."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Where a notice goes when a call waits for a person."""

    desktop: bool = False
    webhook: str = field(default="", repr=False)
    """An address; whoever knows it may often post there."""
    ntfy: str = field(default="", repr=False)
    """The address of a topic; whoever knows it may read and post there."""
    ntfy_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationSettings:
    """How reviewers are asked."""

    mode: EscalationMode = "auto"
    hold_after_seconds: float = 45.0
    """Seconds that a call waits before it is held."""
    channels: tuple[ChannelName, ...] = ("mailbox",)
    """In the order they are asked."""
    require_digest: bool = False
    """Accept only answers with the digest of the request that was shown."""
    notices: NoticeSettings = field(default_factory=NoticeSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoApproveSettings:
    """The settings of the LLM approver, which is off by default."""

    enabled: bool = False
    model_id: str = DEFAULT_MODEL
    api_key: str = field(default="", repr=False)
    api_base: str | None = None
    """Another endpoint of the provider's protocol, such as a local model."""
    target_check: bool = True
    deadline_seconds: float = 8.0
    """Seconds over all attempts."""
    max_per_minute: int = 20
    max_outages: int = 3
    llm_log: Path | None = None
    """None: `auto-approve-llm.jsonl` in the session's directory."""
    only: tuple[str, ...] = ()
    """Tools that it may approve, as `SERVER/TOOL` with `*`; empty: all tools."""
    never: tuple[str, ...] = ()
    """Tools that it may not approve. This list precedes `only`."""
    confidence: float | None = None
    """The lowest confidence of the model, from 0 to 1, that counts; None: confidence is not asked
    for."""
    messages: int = 1
    """The number of the user's last messages that the model sees."""
    shadow: bool = False
    """The model is asked and its answer recorded while a person decides; it approves nothing."""


def read_escalation(layers: Layers) -> EscalationSettings:
    """The section `escalation`."""
    standard = EscalationSettings()
    return EscalationSettings(
        mode=layers.read("escalation.mode", lambda spot: spot.word(_MODES), standard.mode),
        hold_after_seconds=layers.read(
            "escalation.holdAfterSeconds",
            lambda spot: spot.number(0, 3600),
            standard.hold_after_seconds,
        ),
        channels=layers.read("escalation.channels", _channels, standard.channels),
        require_digest=layers.read("escalation.requireDigest", Spot.switch, default=False),
        notices=NoticeSettings(
            desktop=layers.read("escalation.noticeDesktop", Spot.switch, default=False),
            webhook=layers.read("escalation.noticeWebhook", _address, ""),
            ntfy=layers.read("escalation.noticeNtfy", _address, ""),
            ntfy_token=layers.read("escalation.noticeNtfyToken", Spot.name, ""),
        ),
    )


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


def read_auto_approve(
    layers: Layers, secrets: Mapping[str, str], session_dir: Path
) -> AutoApproveSettings:
    """The section `autoApprove`, with its key from the environment or else the file."""
    standard = AutoApproveSettings()
    model_id = layers.read("autoApprove.modelId", read_model_id, standard.model_id)
    key_name = PROVIDER_KEYS.get(model_id.partition(":")[0], "")
    return AutoApproveSettings(
        enabled=layers.read("autoApprove.enabled", Spot.switch, default=False),
        model_id=model_id,
        api_key=secrets.get("AUTO_APPROVE_API_KEY") or layers.read(key_name, Spot.name, ""),
        api_base=layers.read("autoApprove.apiBase", Spot.name, None),
        target_check=layers.read("autoApprove.targetCheck", Spot.switch, default=True),
        deadline_seconds=layers.read(
            "autoApprove.deadlineSeconds",
            lambda spot: spot.number(0.1, 60),
            standard.deadline_seconds,
        ),
        max_per_minute=layers.read(
            "autoApprove.maxPerMinute", lambda spot: spot.whole(0, 1000), standard.max_per_minute
        ),
        max_outages=layers.read(
            "autoApprove.maxOutages", lambda spot: spot.whole(1, 100), standard.max_outages
        ),
        llm_log=layers.path("autoApprove.llmLogPath") or session_dir / "auto-approve-llm.jsonl",
        only=layers.read("autoApprove.only", _tools, ()),
        never=layers.read("autoApprove.never", _tools, ()),
        confidence=layers.read("autoApprove.confidence", lambda spot: spot.number(0, 1), None),
        messages=layers.read("autoApprove.messages", lambda spot: spot.whole(1, 5), 1),
        shadow=layers.read("autoApprove.shadow", Spot.switch, default=False),
    )


def read_provider_keys(layers: Layers) -> Mapping[str, str]:
    """The API keys that the file has, by provider."""
    keys = {name: layers.read(key, Spot.name, "") for name, key in PROVIDER_KEYS.items()}
    return {name: key for name, key in keys.items() if key}


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

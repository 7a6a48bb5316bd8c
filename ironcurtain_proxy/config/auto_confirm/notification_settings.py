"""Notifications of the auto-confirm engine: `auto_confirm.notifications`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    NoticeChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.config.reading.declared import one_of
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers

NotificationKind: TypeAlias = Literal["none", "command", "webhook", "file", "tmux"]

_TMUX_TARGET: Final = re.compile(r"[A-Za-z0-9_%@$:.=][A-Za-z0-9_%@$:./=-]{0,99}", re.ASCII)
"""A session, window or pane. The value becomes an argument and must not look like an option."""

_NOTIFICATIONS: Final[tuple[NotificationKind, ...]] = get_args(NotificationKind)
_NOBODY: Final[NotificationKind] = "none"
_SUMMARY_MINUTES: Final = 15.0
_NEEDED: Final = {"command": "command", "webhook": "url", "file": "file", "tmux": "target"}
"""The key that each kind needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """The channels for notifications."""

    channels: tuple[NoticeChannel, ...] = ()
    summary_minutes: float = _SUMMARY_MINUTES
    """Minutes between two summaries of the engine's approvals; 0: no summaries."""


def read_notifications(layers: Layers, spot: Spot) -> NotificationSettings:
    """Read the section; paths are relative to the file that holds them."""
    members = spot.object(("kind", *_NEEDED.values(), "summary_minutes"))
    kind = members.read("kind", one_of(_NOTIFICATIONS), _NOBODY)
    if kind in _NEEDED and _NEEDED[kind] not in members:
        spot.error(f"{kind} needs {_NEEDED[kind]!r}")
    # Notifications may be switched off for a while, with the rest left in place.
    for key in () if kind == "none" else set(_NEEDED.values()) - {_NEEDED[kind]}:
        said = members.get(key)
        if said is not None:
            said.error(f'is not for "{kind}"')
    readers: Mapping[str, Callable[[Spot], NoticeChannel | None]] = {
        "command": _command,
        "url": _webhook,
        "file": lambda inner: _file(layers, inner),
        "target": _tmux,
    }
    found = {key: members.read(key, read, None) for key, read in readers.items()}
    channel = None if kind == "none" else found[_NEEDED[kind]]
    minutes = members.read("summary_minutes", _minutes_or_never, _SUMMARY_MINUTES)
    return NotificationSettings(
        channels=() if channel is None else (channel,), summary_minutes=minutes
    )


def _minutes_or_never(spot: Spot) -> float:
    if spot.value == 0 and not isinstance(spot.value, bool):
        return 0.0
    return spot.number(0, 1440)


def _command(spot: Spot) -> CommandChannel:
    argv = spot.each(Spot.name)
    if not argv and isinstance(spot.value, list):
        spot.error("must hold a program and its arguments")
    return CommandChannel(argv=argv)


def _webhook(spot: Spot) -> WebhookChannel:
    url = spot.name()
    try:
        is_web = url.startswith(("http://", "https://")) and bool(urlsplit(url).hostname)
    except ValueError:
        is_web = False
    if not is_web:
        spot.error("must begin with http:// or https://, and name a host")
    return WebhookChannel(url=url)


def _file(layers: Layers, spot: Spot) -> FileChannel | None:
    path = layers.as_path(spot)
    return None if path is None else FileChannel(path=path)


def _tmux(spot: Spot) -> TmuxChannel:
    target = spot.name()
    if _TMUX_TARGET.fullmatch(target) is None:
        spot.error("must name a tmux session, window or pane, such as main:0.1")
    return TmuxChannel(target=target)

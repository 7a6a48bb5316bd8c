"""Notifications of the auto-confirm engine: `auto_confirm.notifications`."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers

NotificationKind: TypeAlias = Literal["none", "command", "webhook", "file", "tmux"]

TMUX_TARGET: Final = re.compile(r"[A-Za-z0-9_%@$:.=][A-Za-z0-9_%@$:./=-]{0,99}", re.ASCII)
"""A session, window or pane. The value becomes an argument and must not look like an option."""

_NOTIFICATIONS: Final[tuple[NotificationKind, ...]] = get_args(NotificationKind)
_NOBODY: Final[NotificationKind] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """A channel for notifications."""

    kind: NotificationKind = "none"
    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    """The URL of a webhook; it may hold a secret."""
    file: Path | None = None
    target: str = ""
    """The tmux pane or session."""
    summary_minutes: float = 15
    """Minutes between two summaries of the engine's approvals; 0: no summaries."""


def read_notifications(layers: Layers, spot: Spot) -> NotificationSettings:
    """Read the section; paths are relative to the file that holds them."""
    members = spot.object(("kind", "command", "url", "file", "target", "summary_minutes"))
    kind = members.read("kind", _notification, _NOBODY)
    needed = {"command": "command", "webhook": "url", "file": "file", "tmux": "target"}
    if kind in needed and needed[kind] not in members:
        spot.error(f"{kind} needs {needed[kind]!r}")
    # Notifications may be switched off for a while, with the rest left in place.
    for key in () if kind == "none" else set(needed.values()) - {needed[kind]}:
        said = members.get(key)
        if said is not None:
            said.error(f'is not for "{kind}"')
    return NotificationSettings(
        kind=kind,
        command=members.read("command", lambda inner: inner.each(Spot.name), ()),
        url=members.read("url", _web_address, ""),
        file=members.read("file", layers.as_path, None),
        target=members.read("target", _tmux_target, ""),
        summary_minutes=members.read(
            "summary_minutes", _minutes_or_never, NotificationSettings().summary_minutes
        ),
    )


def _notification(spot: Spot) -> NotificationKind:
    return spot.word(_NOTIFICATIONS)


def _minutes_or_never(spot: Spot) -> float:
    if spot.value == 0 and not isinstance(spot.value, bool):
        return 0.0
    return spot.number(0, 1440)


def _web_address(spot: Spot) -> str:
    text = spot.name()
    if not text.startswith(("http://", "https://")):
        spot.error("must begin with http:// or https://")
    return text


def _tmux_target(spot: Spot) -> str:
    text = spot.name()
    if TMUX_TARGET.fullmatch(text) is None:
        spot.error("must name a tmux session, window or pane, such as main:0.1")
    return text

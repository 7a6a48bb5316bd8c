"""Notifications of the auto-confirm engine: `auto_confirm.notifications`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, assert_never

from msgspec import UNSET, Meta

from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    NoticeChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.forms import CheckedForm, FormMistake, Maybe, NameText, says
from ironcurtain_proxy.config.reading.layers import Layers

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
    """For `webhook`."""
    file: Maybe[NameText] = UNSET
    """For `file`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """The channels for notifications."""

    channels: tuple[NoticeChannel, ...] = ()
    summary_minutes: float = _SUMMARY_MINUTES
    """Minutes between two summaries of the engine's approvals; 0: no summaries."""


def notifications(layers: Layers, spot: Spot, form: NotificationsForm) -> NotificationSettings:
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
            path = layers.as_path(spot.at("file")) if form.file else None
            channel = None if path is None else FileChannel(path=path)
        case "tmux":
            channel = TmuxChannel(target=form.target or "")
        case _:
            assert_never(form.kind)
    return NotificationSettings(
        channels=() if channel is None else (channel,), summary_minutes=form.summary_minutes
    )

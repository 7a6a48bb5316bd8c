"""The timeline of the session's workspace, joined from the settings."""

import logging
import os
from datetime import timedelta
from typing import Final

from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.snapshots.timeline.keeper import Limits
from ironcurtain_proxy.snapshots.timeline.workspace_timeline import WorkspaceTimeline

TIMELINES: Final = "timeline"
"""The directory of all timelines, in that of the proxy's state."""
_LOGGER: Final = logging.getLogger(__name__)


_KEYS: Final = (".ssh", ".gnupg", ".aws")


def limits_of(settings: Settings) -> Limits:
    """The limits of the timeline."""
    told = settings.timeline
    own = (settings.state_dir, settings.audit.path, settings.mailbox_dir)
    left_out = [*own, *[settings.home / key for key in _KEYS]]
    named = [RealPath.from_text(os.path.abspath(path)) for path in left_out]  # noqa: PTH100
    return Limits(
        max_bytes=told.max_bytes,
        max_files=told.max_files,
        caches=told.caches,
        keep=timedelta(days=told.keep_days),
        # A link in such a place is left out, and what it leads to.
        left_out=frozenset([*named, *[real(path) for path in left_out]]),
    )


def workspace_timeline(settings: Settings, clock: Clock) -> WorkspaceTimeline | None:
    """The timeline, which the caller runs and closes; None: there is no workspace to keep.

    A timeline that cannot be opened counts as missing: the log names the reason, and no call is
    contained.
    """
    if settings.workspace is None:
        return None
    try:
        return WorkspaceTimeline(
            settings.state_dir / TIMELINES,
            settings.workspace,
            limits_of(settings),
            session=settings.session,
            now=clock.now,
        )
    except OSError as error:
        _LOGGER.warning("the workspace has no timeline: %s", error.strerror or error)
        return None

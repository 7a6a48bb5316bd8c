"""The timeline of the session's workspace, as the settings have it."""

import logging
from datetime import timedelta
from typing import Final

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.snapshots.timeline.keeper import Limits
from ironcurtain_proxy.snapshots.timeline.workspace_timeline import WorkspaceTimeline

TIMELINES: Final = "timeline"
"""The directory of all timelines, in that of the proxy's state."""
_LOGGER: Final = logging.getLogger(__name__)


def limits_of(settings: Settings) -> Limits:
    """How much is kept."""
    told = settings.timeline
    return Limits(
        max_bytes=told.max_bytes,
        max_files=told.max_files,
        caches=told.caches,
        keep=timedelta(days=told.keep_days),
    )


def workspace_timeline(settings: Settings, clock: Clock) -> WorkspaceTimeline | None:
    """The timeline, for whoever runs it and closes it; None: there is no workspace to keep.

    One that cannot be opened is none, and the log says so: no call is contained then.
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
        _LOGGER.warning("the workspace has no timeline: %s", error)
        return None

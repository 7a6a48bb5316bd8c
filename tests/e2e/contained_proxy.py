"""The proxy with a timeline that copies the workspace, as a program."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.ports import Timeline
from ironcurtain_proxy.wiring import proxy
from tests.copying_timeline import CopyingTimeline


def copying(settings: Settings, environ: Mapping[str, str]) -> Timeline | None:
    del environ
    if settings.workspace is None:
        return None
    return CopyingTimeline(Path(str(settings.workspace)), settings.state_dir / "points")


if __name__ == "__main__":
    vars(proxy)["open_timeline"] = copying
    sys.exit(main())

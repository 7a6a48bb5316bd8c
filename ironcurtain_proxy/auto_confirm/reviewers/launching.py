"""Starts the processes that review, guarded like servers: they end with the proxy."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import orjson

from ironcurtain_proxy.audit.bounding import shape_arguments
from ironcurtain_proxy.auto_confirm.briefing import Redacted
from ironcurtain_proxy.auto_confirm.reviewers.process_start import ReviewerLaunch, Start
from ironcurtain_proxy.downstream.allowance import Ration
from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.process import ServerProcess, spawn
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.downstream.stderr import StderrDrain
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec


def launcher(directory: Path, log: Path) -> ReviewerLaunch:
    """Starts a process in a directory; what it prints goes to the session log, secrets masked."""
    rations: defaultdict[str, Ration] = defaultdict(Ration)
    session_log = SessionLog(log)

    def launch(start: Start) -> ServerProcess:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = spawn(
            ServerSpec(name=f"reviewer {start.name}", annotations="", command=start.argv[0]),
            environment=start.environment,
            cwd=str(directory),
            argv=start.argv,
            inherited=start.inherited,
        )
        masker = Masker(list(start.secrets))
        name = f"reviewer {start.name}"
        StderrDrain(name, process.take_stderr(), masker, session_log, rations[name])
        return process

    return launch


def redact(arguments: Mapping[str, Json]) -> Redacted:
    """A call's arguments, redacted as in the audit log."""
    shaped = shape_arguments(arguments, redaction=True)
    fields: Json = orjson.loads(shaped.raw)
    if not isinstance(fields, dict):
        return Redacted({}, complete=False)
    return Redacted(fields, complete=shaped.size is None)

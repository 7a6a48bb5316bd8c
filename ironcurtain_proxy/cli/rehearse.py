"""`ironcurtain-proxy rehearse`: the questions that recorded sessions would have met."""

import argparse
import os
from pathlib import Path

import orjson

from ironcurtain_proxy.cli.output import complain, picked, say
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.kept import GrantsFile
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.rehearsal.playing import RULES, Assumed, Rehearsed, lines_of, rehearse
from ironcurtain_proxy.rehearsal.transcripts import Recording, read_transcripts


def run(options: argparse.Namespace) -> int:
    """Count the questions. Return 1 if there are no recorded calls.

    Raises:
        ConfigurationError: a path is not there, or the grants cannot be read.
    """
    recording = read_transcripts(options.paths)
    workspace = None if options.workspace is None else os.path.realpath(options.workspace)
    assumed = Assumed(
        home=str(home_directory(os.environ)), workspace=workspace, kept=_kept(options.grants)
    )
    found = rehearse(recording, assumed, os.environ)
    most = max(0, options.examples)
    if options.json:
        say(orjson.dumps(_as_json(found, recording, most)).decode())
    else:
        with_grants = options.grants is not None
        for line in lines_of(found, recording, options.preset, most, with_grants=with_grants):
            say(line)
    return int(found.calls == 0)


def _kept(file: Path | None) -> tuple[KeptGrant, ...]:
    if file is None:
        return ()
    if not file.exists():
        raise ConfigurationError(f"{file}: no such file")
    read = GrantsFile(file).read().read
    for problem in read.problems:
        complain(f"{file}: {problem}")
    return read.grants


def _as_json(found: Rehearsed, recording: Recording, most: int) -> dict[str, Json]:
    return {
        **picked(found, "calls sessions withoutPlace"),
        **picked(recording, "files otherFiles"),
        "broken": recording.broken_lines + found.broken,
        "unreadable": [*recording.unreadable],
        "notRehearsed": dict(found.passed_over),
        "rules": {rules: dict(found.tallies[rules].as_json(found.calls, most)) for rules in RULES},
    }

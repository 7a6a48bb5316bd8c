"""`ironcurtain-proxy pins`: the differences between pinned and present descriptions of servers."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.cli.output import (
    complain,
    counted,
    encodable,
    is_confirmed,
    picked,
    say,
    say_json,
)
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.reading.document import nearest
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.server import Section
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.pins.book import PinsFileError, PinStore
from ironcurtain_proxy.pins.pinned import Finding, Parts, PinChange, ServerPins, changes, scan
from ironcurtain_proxy.wiring.shared import pin_store, pinned_servers

_LINES: Final = 60
"""The most lines of one part that `diff` shows of all servers."""


def run(options: argparse.Namespace) -> int:
    """Run one action.

    Raises:
        ConfigurationError: no such server is pinned, or a person cannot be asked.
    """
    store = pin_store(state_directory())
    if options.action == "reset":
        return _reset(store, options.server, options.config)
    everything = list(store.all())
    faults = [one for one in everything if isinstance(one, PinsFileError)]
    found = [one for one in everything if isinstance(one, ServerPins)]
    chosen = [one for one in found if options.server in (None, one.server)]
    for fault in faults:
        complain(f"{visible(str(fault))}; its server stays hidden: {_MEND}")
    if options.server is not None and not chosen:
        raise ConfigurationError(_not_pinned(options.server, [one.server for one in found]))
    match options.action:
        case "list":
            _list(chosen, as_json=options.json)
        case "diff":
            _diff(chosen, found, options)
        case _:
            return _accept(store, chosen, options) or int(bool(faults))
    return int(bool(faults))


def _not_pinned(server: str, known: Sequence[str]) -> str:
    meant = nearest(server, known)
    rest = (
        f'did you mean "{visible(meant)}"?' if meant else "`ironcurtain-proxy pins list` shows all"
    )
    return f'no server "{visible(server)}" is pinned: {rest}'


_MEND: Final = "`pins reset SERVER` trusts the server anew, and moves the file aside"


def _list(chosen: Sequence[ServerPins], *, as_json: bool) -> None:
    if as_json:
        say_json([_listed(one) for one in chosen])
        return
    for one in chosen:
        counts = [_counted(section, len(parts)) for section, parts in one.trusted.items() if parts]
        waiting = len(changes(one))
        more = f"; {waiting} to be accepted" if waiting else ""
        say(f"{visible(one.server)}  {one.launch[:12]}  {', '.join(counts) or 'nothing'}{more}")
    if not chosen:
        say("nothing is pinned: a server is pinned when it starts for the first time")


def _counted(section: Section, number: int) -> str:
    """Return the number of parts: `1 tool`, `2 tools`; title and instructions are one text each."""
    if section in {"title", "instructions"}:
        return section
    return f"{number} {section[:-1] if number == 1 else section}"


def _listed(one: ServerPins) -> dict[str, Json]:
    return {
        **picked(one, "server launch"),
        "pinned": _names(one),
        "waiting": [_as_json(change) for change in changes(one)],
    }


def _names(one: ServerPins) -> dict[str, Json]:
    return {section: [*sorted(parts)] for section, parts in one.trusted.items()}


def _as_json(change: PinChange) -> Json:
    return {
        **picked(change, "section name kind"),
        "was": change.was or None,
        "before": None if change.before is None else change.before.value,
        "after": change.after.value,
        "digest": change.after.digest,
    }


def _diff(
    chosen: Sequence[ServerPins], all_pins: Sequence[ServerPins], options: argparse.Namespace
) -> None:
    others = {one.server for one in all_pins}
    if options.json:
        say_json(
            [
                {
                    **_listed(one),
                    "digest": _digest(one),
                    "findings": [_finding(f) for f in _findings(one, others)],
                }
                for one in chosen
            ]
        )
        return
    is_quiet = True
    for one in chosen:
        is_whole = options.server is not None
        for line in _shown(one, others, most=None if is_whole else _LINES):
            is_quiet = False
            say(line)
        if changes(one) and is_whole:
            command = f"pins accept {shlex.quote(visible(one.server))} --digest {_digest(one)}"
            say(f"To accept this and nothing else: ironcurtain-proxy {command}")
    if is_quiet:
        say("no server has changed since it was accepted")


def _shown(one: ServerPins, others: set[str], most: int | None = None) -> list[str]:
    """Return what changed of a server, in lines; at most so many of each part."""
    lines: list[str] = []
    for change in changes(one):
        was = f", almost equal to {visible(change.was)}" if change.was else ""
        lines.append(
            f"{visible(one.server)}: {change.section}/{visible(change.name)}: {change.kind}{was}"
        )
        differing = list(change.lines())
        lines += [f"    {line}" for line in differing[:most]]
        if most is not None and len(differing) > most:
            left_out = len(differing) - most
            lines.append(f"    … {left_out} more lines; see `pins diff {visible(one.server)}`")
    findings = [f"    {finding}" for finding in _findings(one, others)]
    if findings:
        lines += [f"{visible(one.server)}: signs to look at:", *findings]
    return lines


def _findings(one: ServerPins, servers: set[str]) -> list[Finding]:
    others = sorted(servers - {one.server})
    return [
        finding
        for section, parts in {**one.trusted, **_joined(one)}.items()
        for name, part in parts.items()
        for finding in scan(f"{section}/{name}", part.value, others)
    ]


def _joined(one: ServerPins) -> dict[Section, Parts]:
    return {s: {**one.trusted.get(s, {}), **parts} for s, parts in one.offered.items()}


def _finding(finding: Finding) -> Json:
    return {**picked(finding, "rule part where"), "text": finding.shown}


def _accept(store: PinStore, chosen: Sequence[ServerPins], options: argparse.Namespace) -> int:
    done = 0
    servers = {one.server for one in store.all() if isinstance(one, ServerPins)}
    _refuse_unknown(options.part or (), [change for one in chosen for change in changes(one)])
    for one in chosen:
        waiting = [c for c in changes(one) if _is_named(c, options.part)]
        if not waiting or options.digest not in (None, _digest(one)):
            continue
        if options.digest is None:
            # All of it: a server can put a harmless page before what it wants accepted.
            # A script reads the number on standard output.
            shown = "\n".join(_shown(one, servers))
            print(encodable(shown), file=sys.stderr if options.yes else sys.stdout, flush=True)
            question = f"Accept {len(waiting)} of these for {visible(one.server)}?"
            if not options.yes and not _agreed(question):
                continue
        # Only the shown changes are accepted, none that came meanwhile.
        digests = {(c.section, c.name): c.after.digest for c in waiting}

        def take(pins: ServerPins, digests: dict[tuple[Section, str], str] = digests) -> ServerPins:
            same = {
                (section, name)
                for section, parts in pins.offered.items()
                for name, part in parts.items()
                if digests.get((section, name)) == part.digest
            }
            return pins.accepted(frozenset(same))

        trusted = store.update(one.launch, one.server, take).pins.trusted
        done += sum(
            section in trusted
            and name in trusted[section]
            and trusted[section][name].digest == digest
            for (section, name), digest in digests.items()
        )
    differs = "" if options.digest is None else ": what waits is not what had this digest"
    say(f"{done} accepted" if done else f"nothing was accepted{differs}")
    return 0 if done else 1


def _digest(one: ServerPins) -> str:
    """Return the digest of what waits: half of it is still too long to find a second text for."""
    named = [[c.section, c.name, c.after.digest] for c in changes(one)]
    return sha256(orjson.dumps([one.launch, *named])).hexdigest()[:32]


def _refuse_unknown(parts: Sequence[str], waiting: Sequence[PinChange]) -> None:
    known = [f"{change.section}/{change.name}" for change in waiting]
    for part in parts:
        if part not in known:
            meant = nearest(part, known)
            rest = f": did you mean {visible(meant)}?" if meant else "; see `pins diff`"
            raise ConfigurationError(f"--part {visible(part)}: nothing of this name waits{rest}")


def _is_named(change: PinChange, parts: Sequence[str] | None) -> bool:
    return not parts or f"{change.section}/{change.name}" in parts


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "`pins accept` asks on a terminal, and there is none: read `pins diff SERVER`, "
            "then add the --digest that it ends with"
        )
    return is_confirmed(question)


def _reset(store: PinStore, server: str, config: Path | None) -> int:
    everything = list(store.all())
    chosen = [one for one in everything if isinstance(one, ServerPins) and one.server == server]
    faults = {one.launch for one in everything if isinstance(one, PinsFileError)}
    # A damaged file does not name its server. Its file name is a digest of the server's command.
    damaged = faults & _launches(server, config) if faults else set()
    if not chosen and not damaged:
        known = [one.server for one in everything if isinstance(one, ServerPins)]
        raise ConfigurationError(_not_pinned(server, known))
    for launch in sorted(damaged):
        say(f"moved aside: {visible(str(store.put_aside(launch)))}")
    for one in chosen:
        store.forget(one.launch)
    say(f"forgotten: {visible(server)} is trusted anew when it lists its tools next")
    return 0


def _launches(server: str, config: Path | None) -> set[str]:
    found = pinned_servers(load_settings(dict(os.environ), config)).get(server)
    return set() if found is None else {found.launch}


def pins_warnings(state_dir: Path) -> Sequence[str]:
    """Return the servers with changed descriptions, one line each with the command to run."""
    lines: list[str] = []
    for one in pin_store(state_dir).all():
        if isinstance(one, PinsFileError):
            lines.append(
                f"{visible(str(one))}; its server stays hidden: ironcurtain-proxy pins list"
            )
        elif waiting := changes(one):
            count = counted(len(waiting), "change")
            name = visible(one.server)
            lines.append(
                f'server "{name}": {count} in what it says of itself, to look at and accept: '
                f"ironcurtain-proxy pins diff {name}"
            )
    return lines

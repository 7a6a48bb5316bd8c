"""`status`: the settings that `serve` would use now; `containment`: sessions where it has ended."""

import argparse
import os
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.approval.capabilities import effective_profile
from ironcurtain_proxy.auto_confirm.session_files import given_up
from ironcurtain_proxy.cli.doctor import hooks, store
from ironcurtain_proxy.cli.output import complain, picked, say, say_json
from ironcurtain_proxy.cli.pins import pins_warnings
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.policy.managed import bundle_fields, bundle_lines
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import utc_now
from ironcurtain_proxy.model.values import Json, list_of
from ironcurtain_proxy.sessions import SessionState, configuration_by, running_sessions
from ironcurtain_proxy.wiring.call_facts import isolation_of
from ironcurtain_proxy.wiring.confinement import confined_servers
from ironcurtain_proxy.wiring.containment import EndedContainment, sessions_ended
from ironcurtain_proxy.wiring.serving import look_at_the_start

_WIDTH: Final = 17
_ISOLATION: Final = {
    "isolated": "every server runs in one",
    "unisolated": "declared as none",
    "unknown": "not every server runs in one (below)",
}
_HEARS: Final = "the user's words, where a program sends them; see docs/embedding.md"


def run(options: argparse.Namespace) -> int:
    """Print the settings.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    report = Report()
    look_at_the_start(settings, loaded, os.environ, report)
    confined = confined_servers(settings, os.environ, lambda _: None)
    warnings = [str(problem) for problem in (*settings.warnings, *loaded.warnings)]
    warnings += [str(problem) for problem in report.problems if problem.severity == "warning"]
    stops = [str(problem) for problem in report.problems if problem.severity == "error"]
    about = [] if loaded.bundle is None else [*bundle_lines(loaded.bundle, utc_now())]
    warnings += about[1:]
    fields = _fields(settings, loaded, confined, stops, warnings)
    if options.json:
        say_json(fields)
        return 0
    for line in [*_lines(fields), *[f"{'Bundle:':<{_WIDTH}}{one}" for one in about[:1]]]:
        say(line)
    for warning in warnings:
        complain(warning)
    for stop in stops:
        complain(f"serve refuses to start: {stop}")
    return 0


def _fields(
    settings: Settings,
    loaded: LoadedPolicy,
    confined: Mapping[str, bool],
    stops: list[str],
    warnings: list[str],
) -> dict[str, Json]:
    overlay = settings.overlay
    inside = {name for name, is_inside in confined.items() if is_inside}
    isolation = isolation_of(settings, inside)
    profile = overlay.capabilities.profile
    holds = None
    if profile is not None:
        holding, sentence = effective_profile(profile, isolation)
        holds = holding.name
        if sentence is not None:
            warnings.append(f"warning: {sentence}")
    approver = settings.auto_approve
    waiting = pins_warnings(settings.state_dir)
    warnings += waiting
    return {
        "starts": not stops,
        "stoppedBy": [*stops],
        "workspace": None if settings.workspace is None else str(settings.workspace),
        "approvalPolicy": overlay.interceptor.mode if overlay.interceptor.enabled else "none",
        "profile": "none" if profile is None else profile.name,
        "profileThatHolds": holds or "none",
        "isolation": isolation,
        "autoApprove": approver.model_id if approver.enabled else "off",
        "autoConfirm": _engine(settings),
        "store": _store(settings, warnings),
        "givenUp": _given_up(settings, warnings),
        "containment": "on" if settings.containment.undo else "off",
        "containmentEnded": _ended(settings, warnings),
        "sandboxPolicy": settings.sandbox_policy,
        "pins": settings.pins,
        "pinsWaiting": [*waiting],
        "servers": [
            {
                "name": spec.name,
                "sandboxed": confined[spec.name],
                "trusted": spec.sandbox is False and spec.remote is None,
                "remote": None if spec.remote is None else spec.remote.host,
            }
            for spec in settings.servers
        ],
        "hooks": _hooks(settings, warnings),
        "sessions": _sessions(settings),
        "policyVersion": loaded.policy.version,
        "bundle": None if loaded.bundle is None else bundle_fields(loaded.bundle),
        "managed": None if loaded.files.managed is None else str(loaded.files.managed.directory),
        "escalations": str(settings.escalation_dir or settings.sessions_dir),
        "auditLog": str(settings.audit.path),
    }


def _engine(settings: Settings) -> str:
    config = settings.auto_confirm
    if config is None or not config.engine.enabled:
        return "off"
    return f"on, session type {config.session_type}, {len(config.reviewers)} reviewers"


def _store(settings: Settings, warnings: list[str]) -> str:
    found = next(store(settings), None)
    if found is None:
        return "off"
    if found.state == "ok":
        return found.found
    warnings.append(f"the auto-confirm engine approves nothing: {found.found}: {found.remedy}")
    return "CANNOT BE USED"


def _given_up(settings: Settings, warnings: list[str]) -> list[Json]:
    """Return the reviewers that running sessions no longer ask."""
    found = list(given_up(settings.sessions_dir))
    warnings += [
        f'session {visible(one.session)}: reviewer "{visible(one.reviewer)}" was given up, '
        "because it ended again and again: repair it, then restart the session"
        for one in found
    ]
    return [picked(one, "session reviewer") for one in found]


def _ended(settings: Settings, warnings: list[str]) -> list[Json]:
    """Return the sessions whose containment has ended until a person looks."""
    found = list(sessions_ended(settings.state_dir / "sessions"))
    warnings += [
        f"{_shown(one)}; once you have looked: ironcurtain-proxy containment resume "
        f"{visible(one.session)}"
        for one in found
    ]
    return [picked(one, "session call why") for one in found]


def _hooks(settings: Settings, warnings: list[str]) -> dict[str, Json]:
    """Return the state of the hooks of each client that has ours."""
    found = list(hooks(settings))
    warnings += [f"{check.name}: {check.found}" for check in found if check.state != "ok"]
    return {check.name: check.found for check in found if check.state == "ok"}


def _sessions(settings: Settings) -> list[Json]:
    """Return the settings of running sessions, which may have other files and variables."""
    said = "pid workspace client servers config policyVersion policyProblem"
    return [
        {
            **picked(one, "session openQuestions"),
            **picked(one.state, said),
            "policyOfItsFiles": _policy_of_files(one.state),
        }
        for one in running_sessions(settings.sessions_dir)
    ]


def _policy_of_files(state: SessionState) -> str | None:
    """Return the version of a session's files now: it has its own servers, and so descriptions."""
    try:
        return load_policy(configuration_by(state, os.environ).settings).version
    except (ConfigurationError, OSError):
        return None


def _shown_sessions(fields: Mapping[str, Json]) -> list[str]:
    sessions = fields["sessions"]
    if not isinstance(sessions, list) or not sessions:
        return [f"{'Sessions:':<{_WIDTH}}none is running"]
    return [_shown_session(one) for one in sessions if isinstance(one, dict)]


def _shown_session(one: Mapping[str, Json]) -> str:
    servers = one["servers"] if isinstance(one["servers"], list) else []
    count = one["openQuestions"]
    version, now = str(one["policyVersion"]), one["policyOfItsFiles"]
    policy = f"policy {version[:12] or 'not known'}"
    if version and now:
        policy += " (as its files are)" if now == version else f" (its files: {str(now)[:12]})"
    parts = (
        str(one["session"]),
        f"client {one['client'] or 'not known yet'}",
        f"workspace {one['workspace'] or 'none'}",
        f"servers {', '.join([str(name) for name in servers]) or 'none'}",
        f"{count} open question{'' if count == 1 else 's'}",
        policy,
        *([f"its files cannot be used: {one['policyProblem']}"] if one["policyProblem"] else []),
    )
    return f"{'Session:':<{_WIDTH}}{visible('; '.join(parts))}"


def _lines(fields: Mapping[str, Json]) -> list[str]:
    profile = str(fields["profile"])
    if fields["profileThatHolds"] != profile:
        profile += f" ({fields['profileThatHolds']} holds)"
    of_which = " (of the servers below)" if fields["servers"] else ""
    rows = [
        ("Workspace", fields["workspace"] or "not set: run `ironcurtain-proxy init`"),
        ("Approval Policy", fields["approvalPolicy"]),
        ("Profile", profile),
        *([("Sandboxes", _ISOLATION[str(fields["isolation"])])] if fields["servers"] else []),
        ("Auto-approver", fields["autoApprove"]),
        *([("Its evidence", _HEARS)] if fields["autoApprove"] != "off" else []),
        ("Auto-confirm", fields["autoConfirm"]),
        *([("Store", fields["store"])] if fields["store"] != "off" else []),
        ("Containment", _containment(fields)),
        ("Sandbox policy", fields["sandboxPolicy"]),
        ("Pins", fields["pins"]),
        ("Policy version", f"{str(fields['policyVersion'])[:12]}{of_which}"),
        *([("Administrator", fields["managed"])] if fields["managed"] else []),
        *[(name.capitalize(), text) for name, text in _named(fields["hooks"])],
        ("Questions in", fields["escalations"]),
        ("Audit log", fields["auditLog"]),
    ]
    lines = [f"{name + ': ':<{_WIDTH}}{visible(str(value))}" for name, value in rows]
    return [
        *lines,
        *[
            f"{'Server:':<{_WIDTH}}{visible(str(server['name']))}, {_how(server)}"
            for server in list_of(fields["servers"])
            if isinstance(server, dict)
        ],
        *_shown_sessions(fields),
    ]


def _named(found: Json) -> list[tuple[str, Json]]:
    return [*found.items()] if isinstance(found, dict) else []


def _containment(fields: Mapping[str, Json]) -> str:
    ended = fields["containmentEnded"]
    count = len(ended) if isinstance(ended, list) else 0
    servers = fields["servers"] if isinstance(fields["servers"], list) else []
    is_bare = bool(servers) and not any(
        one["sandboxed"] for one in servers if isinstance(one, dict)
    )
    without = ", but settles no call of the servers below: none has a sandbox"
    of_none = without if fields["containment"] == "on" and is_bare else ""
    return f"{fields['containment']}{of_none}{f', ended in {count} session(s)' if count else ''}"


def _how(server: Mapping[str, Json]) -> str:
    if server["sandboxed"]:
        return "sandboxed"
    if server["remote"] is not None:
        return f"at {visible(str(server['remote']))}: no sandbox and no containment there"
    why = '"sandbox": false' if server["trusted"] else "no sandbox for it here"
    return f"NOT SANDBOXED ({why}): all rights of this user"


# --- containment


def run_containment(options: argparse.Namespace) -> int:
    """List the sessions, or resume containment.

    Raises:
        ConfigurationError: the session to resume is ambiguous or unknown.
    """
    found = list(sessions_ended(state_directory() / "sessions"))
    if options.action is None:
        for one in found:
            say(_shown(one))
        if not found:
            say("containment has ended in no session")
        return 0
    return _resume(found, options.session)


def _resume(found: list[EndedContainment], session: str | None) -> int:
    chosen = [one for one in found if session in (None, one.session)]
    if not chosen:
        complain(
            "there is nothing to resume: `ironcurtain-proxy containment` lists the sessions in "
            "which containment has ended"
        )
        return 1
    if len(chosen) > 1:
        names = ", ".join([visible(one.session) for one in chosen])
        raise ConfigurationError(f"containment has ended in several sessions: name one of {names}")
    chosen[0].file.unlink(missing_ok=True)
    say(f"calls of session {visible(chosen[0].session)} are contained again")
    return 0


def _shown(one: EndedContainment) -> str:
    after = f" after call {one.call}" if one.call else ""
    of_whom = "" if one.of_all else ", but for our own shell"
    return visible(f"session {one.session}: containment has ended{after}{of_whom}: {one.why}")

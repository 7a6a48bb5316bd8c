"""Settings from environment variables, under the names the original uses.

A variable that is empty counts as not set: many clients write all they know.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ironcurtain_proxy.administration.problems import PathPart, Problem, Report, json_path
from ironcurtain_proxy.administration.reading import parse
from ironcurtain_proxy.administration.settings_file import SettingsShape
from ironcurtain_proxy.administration.shapes import read_shape
from ironcurtain_proxy.model.json import Json

SERVERS_VARIABLE: Final = "MCP_SERVERS_CONFIG"
API_KEY_VARIABLE: Final = "AUTO_APPROVE_API_KEY"

SECRET_VARIABLES: Final = (SERVERS_VARIABLE, "SERVER_CREDENTIALS", API_KEY_VARIABLE)
"""Taken out of the environment once read: what a child, a core dump or a debugger of ours could
otherwise find there."""

_Parser: TypeAlias = Callable[[str, str, Report], Json]

_TRUE: Final = frozenset({"true", "1", "on", "yes"})
_FALSE: Final = frozenset({"false", "0", "off", "no"})
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


def _text(text: str, _variable: str, _report: Report) -> Json:
    return text


def _number(text: str, variable: str, report: Report) -> Json:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is None:
        report.error(variable, (), "must be a number")
        return None
    return float(stripped) if "." in stripped else int(stripped)


def _switch(text: str, variable: str, report: Report) -> Json:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        report.error(variable, (), "must be true or false")
        return None
    return word in _TRUE


def _json(text: str, variable: str, report: Report) -> Json:
    return parse(text.encode("utf-8", "surrogateescape"), variable, report)


def _names(text: str, _variable: str, _report: Report) -> Json:
    return [name.strip() for name in text.split(",") if name.strip()]


_VARIABLES: Final[Mapping[str, tuple[tuple[str, ...], _Parser]]] = {
    "GENERATED_DIR": (("generatedDir",), _text),
    "TOOL_ANNOTATIONS_DIR": (("toolAnnotationsDir",), _text),
    "PROTECTED_PATHS": (("protectedPaths",), _json),
    "ALLOWED_DIRECTORY": (("allowedDirectory",), _text),
    "CONTAINER_WORKSPACE_DIR": (("containerWorkspaceDir",), _text),
    "ESCALATION_DIR": (("escalationDir",), _text),
    "ESCALATION_TIMEOUT_SECONDS": (("escalationTimeoutSeconds",), _number),
    "AUDIT_LOG_PATH": (("auditLogPath",), _text),
    "AUDIT_REDACTION": (("auditRedaction", "enabled"), _switch),
    "AUDIT_FSYNC": (("auditFsync",), _text),
    "AUDIT_WRITE_DEADLINE_SECONDS": (("auditWriteDeadlineSeconds",), _number),
    "AUDIT_MAX_BYTES": (("auditMaxBytes",), _number),
    "SESSION_LOG_PATH": (("sessionLogPath",), _text),
    "SANDBOX_POLICY": (("sandboxPolicy",), _text),
    "SERVER_FILTER": (("serverFilter",), _names),
    "SERVER_CREDENTIALS": (("serverCredentials",), _json),
    "MAX_MESSAGE_BYTES": (("maxMessageBytes",), _number),
}


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says."""

    shape: SettingsShape
    servers: Json
    """`MCP_SERVERS_CONFIG`, parsed; None if it is not set."""
    secrets: Mapping[str, str]


def variable_of(key: str) -> str:
    """The variable that sets a key of the configuration file, such as `generatedDir`."""
    return next((name for name, (path, _) in _VARIABLES.items() if path[0] == key), key)


def read_environment(environ: MutableMapping[str, str], report: Report) -> Environment:
    """Everything the environment says; secrets are gone from it afterwards, whatever happens."""
    secrets = {name: environ.pop(name) for name in SECRET_VARIABLES if name in environ}
    document: dict[str, Json] = {}
    for variable, (path, parser) in _VARIABLES.items():
        text = secrets.get(variable) or environ.get(variable) or ""
        if text.strip():
            _put(document, variable, path, _checked(variable, path, parser, text, report))
    servers: Json = None
    if secrets.get(SERVERS_VARIABLE, "").strip():
        servers = _json(secrets[SERVERS_VARIABLE], SERVERS_VARIABLE, report)
    kept = {API_KEY_VARIABLE: secrets[API_KEY_VARIABLE]} if API_KEY_VARIABLE in secrets else {}
    return Environment(SettingsShape.model_validate(document), servers, kept)


def _checked(
    variable: str, path: tuple[str, ...], parser: _Parser, text: str, report: Report
) -> Json:
    """The value, or None (with an error in the report) if the setting does not take it."""
    own = Report()
    value = parser(text, variable, own)
    if not own.has_errors:
        document: Json = value
        for key in reversed(path):
            document = {key: document}
        found = Report()
        read_shape(SettingsShape, document, variable, found)
        # The variable is the place; its key in a file would only confuse.
        own.extend([_below(problem, path) for problem in found.problems])
    report.extend(own.problems)
    return None if own.has_errors else value


def _below(problem: Problem, path: tuple[PathPart, ...]) -> Problem:
    inner = problem.json_path.removeprefix(json_path(path))
    return Problem(
        problem.source,
        f"${inner}" if inner else "",
        problem.message,
        problem.suggestion,
        problem.severity,
    )


def _put(
    document: dict[str, Json], _variable: str, path: tuple[str, ...], value: Json
) -> None:
    if value is None:
        return
    if len(path) == 1:
        document[path[0]] = value
    else:
        document[path[0]] = {path[1]: value}

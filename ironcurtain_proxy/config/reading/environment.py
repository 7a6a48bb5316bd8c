"""Settings from environment variables, with the names of the original program.

An empty variable counts as unset: many clients write all variables they know.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import parse
from ironcurtain_proxy.model.json import Json

SERVERS_VARIABLE: Final = "MCP_SERVERS_CONFIG"
API_KEY_VARIABLE: Final = "AUTO_APPROVE_API_KEY"
CONFIG_VARIABLE: Final = "IRONCURTAIN_CONFIG"
SESSION_VARIABLE: Final = "IRONCURTAIN_SESSION_ID"
PRINCIPAL_VARIABLE: Final = "IRONCURTAIN_PRINCIPAL"
"""The name of the token that the agent over HTTP has; `serve --http` sets it."""
ISOLATION_VARIABLE: Final = "IRONCURTAIN_ISOLATION"

SECRET_VARIABLES: Final = (SERVERS_VARIABLE, "SERVER_CREDENTIALS", API_KEY_VARIABLE)
"""Variables that are removed from the environment once read, so that code in this process, or a
process that inherits the environment by mistake, does not find them."""

_Parser: TypeAlias = Callable[[str], Json]

_TRUE: Final = frozenset({"true", "1", "on", "yes"})
_FALSE: Final = frozenset({"false", "0", "off", "no"})
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


def _number(text: str) -> Json:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is None:
        return text  # the reader says that it is text
    return float(stripped) if "." in stripped else int(stripped)


def _switch(text: str) -> Json:
    word = text.strip().lower()
    return word in _TRUE if word in _TRUE | _FALSE else text


def _exactly_true(text: str) -> Json:
    """Return whether the text is exactly `true`."""
    return text == "true"


def _names(text: str) -> Json:
    return [name.strip() for name in text.split(",") if name.strip()]


_VARIABLES: Final[Mapping[str, tuple[str, _Parser | None]]] = MappingProxyType(
    {
        SERVERS_VARIABLE: ("mcpServers", None),
        "GENERATED_DIR": ("generatedDir", str),
        "TOOL_ANNOTATIONS_DIR": ("toolAnnotationsDir", str),
        "PROTECTED_PATHS": ("protectedPaths", None),
        "ALLOWED_DIRECTORY": ("allowedDirectory", str),
        "CONTAINER_WORKSPACE_DIR": ("containerWorkspaceDir", str),
        "ESCALATION_DIR": ("escalationDir", str),
        "ESCALATION_TIMEOUT_SECONDS": ("escalationTimeoutSeconds", _number),
        "AUDIT_LOG_PATH": ("auditLogPath", str),
        "AUDIT_REDACTION": ("auditRedaction.enabled", _switch),
        "AUDIT_FSYNC": ("auditFsync", str),
        "AUDIT_WRITE_DEADLINE_SECONDS": ("auditWriteDeadlineSeconds", _number),
        "AUDIT_MAX_BYTES": ("auditMaxBytes", _number),
        "SESSION_LOG_PATH": ("sessionLogPath", str),
        "SANDBOX_POLICY": ("sandboxPolicy", str),
        "UNKNOWN_TOOLS": ("unknownTools", str),
        "PINS": ("pins", str),
        "SERVER_FILTER": ("serverFilter", _names),
        "SERVER_CREDENTIALS": ("serverCredentials", None),
        "MAX_MESSAGE_BYTES": ("maxMessageBytes", _number),
        "AUTO_APPROVE_ENABLED": ("autoApprove.enabled", _exactly_true),
        "AUTO_APPROVE_MODEL_ID": ("autoApprove.modelId", str),
        "AUTO_APPROVE_LLM_LOG_PATH": ("autoApprove.llmLogPath", str),
        "ESCALATION_MODE": ("escalation.mode", str),
        "ESCALATION_CHANNELS": ("escalation.channels", _names),
        "ESCALATION_HOLD_AFTER_SECONDS": ("escalation.holdAfterSeconds", _number),
        # Not merged with `capabilities.isolation`: the source of the value matters.
        ISOLATION_VARIABLE: ("capabilities.isolationFlag", str),
    }
)
"""The key of the configuration file for each variable, and the parser of its text; None: JSON."""

SETTING_VARIABLES: Final = frozenset({*_VARIABLES, CONFIG_VARIABLE, SESSION_VARIABLE})
"""All variables that say something about the settings."""


CLIENT_VARIABLES: Final = "IRONCURTAIN_SECRET_"
"""The prefix of the variables from which `SERVER_CREDENTIALS` may take secrets."""


def _filled_in(credentials: dict[str, Json], given: Mapping[str, str], report: Report) -> Json:
    """Return the credentials with `{"from": VARIABLE}` replaced by what the variable holds.

    A client fills its own variables into a text: inside JSON a quote would end the text early.
    """
    found: dict[str, Json] = {}
    for server, entry in credentials.items():
        if not isinstance(entry, dict):
            found[server] = entry
            continue
        secrets = {**entry}
        for name, value in entry.items():
            variable = value.get("from") if isinstance(value, dict) else None
            if not isinstance(variable, str):
                continue
            if variable not in given:
                why = f"{shown(variable)} is not set, or does not begin with {CLIENT_VARIABLES}"
                report.error("SERVER_CREDENTIALS", (server, name), why)
            secrets[name] = given.get(variable, "")
        found[server] = secrets
    return found


class Environment(Struct, frozen=True):
    """The settings found in the environment."""

    spots: Mapping[str, Spot]
    """The values by key of the configuration file."""
    secrets: Mapping[str, str]
    """The secrets by variable."""


def read_environment(environ: MutableMapping[str, str], report: Report) -> Environment:
    """Read all variables. Secrets are removed from the mapping afterwards, even on errors."""
    secrets = {name: environ.pop(name) for name in SECRET_VARIABLES if name in environ}
    given = {name: environ.pop(name) for name in [*environ] if name.startswith(CLIENT_VARIABLES)}
    spots: dict[str, Spot] = {}
    for variable, (key, parser) in _VARIABLES.items():
        text = secrets.get(variable) or environ.get(variable) or ""
        if not text.strip():
            continue
        before = len(report.problems)
        raw = text.encode("utf-8", "surrogateescape")
        value = parse(raw, variable, report) if parser is None else parser(text)
        if variable == "SERVER_CREDENTIALS" and isinstance(value, dict):
            value = _filled_in(value, given, report)
        if len(report.problems) == before:
            spots[key] = Spot(value, variable, report)
    kept = {API_KEY_VARIABLE: secrets[API_KEY_VARIABLE]} if API_KEY_VARIABLE in secrets else {}
    return Environment(spots, kept)

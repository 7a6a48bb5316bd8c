"""`ironcurtain-proxy complain`: keep a decision that was wrong, as a scenario for `policy test`.

Each complaint is one line of `complaints.yaml` in the state directory: JSON, which YAML can read,
with escapes for characters that nobody sees. The file is a file of scenarios like any other; a
person may edit it. `of` holds the facts of the record, which no test compares. An agent has no such
tool: what it says of its own refusals would be words of the judged about the judge, and `policy
suggest` must not learn from them.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.audit.calls import find_calls
from ironcurtain_proxy.audit.display import printable
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import no_log
from ironcurtain_proxy.cli.output import complain, encodable, say
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.policy.short_form import VERBS
from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.reading.reading import parse
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.escalation import is_invisible
from ironcurtain_proxy.model.values import Json, object_of, word_list
from ironcurtain_proxy.private_files import KeptFile, make_private_directory

FILE_NAME: Final = "complaints.yaml"


_FACTS: Final = word_list(
    """
    timestamp client decidedBy refusedBy refusalRule escalationResult origins policyVersion
    """
)
"""The fields of a record that a complaint keeps besides the call."""
_MOST_BYTES: Final = 8 << 20
_SECONDS: Final = 5.0


def run(options: argparse.Namespace) -> int:
    """Keep one complaint. Return 1 if no call, or several, have this reference.

    Raises:
        ConfigurationError: a log or the file cannot be used.
    """
    logs = logs_to_read(options.log)
    shown = printable(options.reference)
    try:
        calls = find_calls(logs.members(), options.reference)
    except FileNotFoundError as error:
        raise no_log(logs.log) from error
    record = parsed(calls[0].lines[-1].raw or b"") if len(calls) == 1 else None
    if record is None or not calls[0].request_id:
        found = "no call has" if not calls else f"{len(calls)} calls have"
        complain(f"{found} the reference {shown}; `ironcurtain-proxy audit tail` shows the numbers")
        return 1
    scenario = _scenario(record, options.expect, encodable(options.note))
    file = complaints_file(state_directory())
    if not _keep(file, scenario):
        complain(f"{shown} was complained of before: change its line in {file}")
        return 1
    say(f"kept in {file}: {printable(str(scenario['call']))}, expected {scenario['expect']}")
    return 0


def complaints_file(state: Path) -> Path:
    """Return the file of complaints in a state directory."""
    return state / FILE_NAME


def _scenario(record: Mapping[str, object], expected: str | None, note: str) -> dict[str, object]:
    found = object_of(record.get("policyDecision"))
    usual = VERBS["escalate" if found.get("status") == "allow" else "allow"]
    facts = {name: record[name] for name in _FACTS if name in record}
    return {
        "call": f"{record.get('serverName')}/{record.get('toolName')}",
        "args": record.get("arguments", {}),
        "expect": expected or usual,
        **({"note": note} if note else {}),
        "of": {"id": record.get("requestId"), "decision": found, **facts},
    }


def _keep(path: Path, scenario: dict[str, object]) -> bool:
    """Add a scenario to the file. Return False if it holds one of the same call.

    Raises:
        ConfigurationError: the file cannot be used, or could not be read with the new line.
    """

    def fault(what: str) -> ConfigurationError:
        return ConfigurationError(f"{path} {what}")

    file = KeptFile(path, _MOST_BYTES, fault)
    line = b"- %b\n" % _seen(orjson.dumps(scenario).decode()).encode()
    try:
        make_private_directory(path.parent)
        with file.locked(path.with_name(f"{path.name}.lock"), _SECONDS):
            kept = file.read()
            old = b"" if kept is None else kept[0]
            items = _items(old, path) if old else []
            if scenario["of"] in [_facts_of(one) for one in items]:
                return False
            new = old + (b"" if old.endswith(b"\n") or not old else b"\n") + line
            # What YAML would read as something else, or not at all, must not spoil the file.
            if not _reads_as(new, [*items, scenario], path):
                raise fault("cannot hold this call: its arguments have no form in YAML")
            file.replace(new)
    except OSError as error:
        raise fault(f"cannot be written: {error.strerror or error}") from None
    return True


def _seen(text: str) -> str:
    """Return JSON with escapes for invisible characters, which stand in its texts alone.

    Those beyond 16 bits get YAML's form: YAML joins no surrogates.
    """
    return "".join([_escaped(char) if is_invisible(char) else char for char in text])


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


def _facts_of(item: Json) -> Json:
    return item.get("of") if isinstance(item, dict) else None


def _reads_as(raw: bytes, items: list[object], path: Path) -> bool:
    try:
        return _items(raw, path) == items
    except ConfigurationError:
        return False


def _items(raw: bytes, path: Path) -> list[Json]:
    report = Report()
    document = parse(raw, path, report, yaml=True)
    report.raise_errors()
    return [one.value for one in DocumentNode(document, str(path), report).items()]

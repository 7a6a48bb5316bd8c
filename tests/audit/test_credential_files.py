"""What is written into a file of credentials is masked, whatever it looks like."""

from collections.abc import Iterator

import orjson
import pytest

from ironcurtain_proxy.audit.bounding import shape_arguments
from ironcurtain_proxy.audit.commands import rules_of
from ironcurtain_proxy.audit.redaction import is_suspicious, redact_text, secrets_in
from ironcurtain_proxy.credentials import is_credential, names, places
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.shell.grammar import Grammar, grammar_of
from ironcurtain_proxy.shell.programs import expanded, paths
from tests.tables import table

WRITTEN = "plain words of nobody"
PATHS = sorted(
    {
        path
        for name in (*names(), *[place.path for place in places() if not place.only_at_home])
        for path in (f"/srv/a/{name.replace('*', 'x')}", f"sub/{name.replace('*', '')}")
        if is_credential("/" + path)
    }
)


def written(arguments: dict[str, Json]) -> str:
    return shape_arguments(arguments, redaction=True).raw.decode()


def calls(path: str) -> list[dict[str, Json]]:
    """Return the arguments of tools that write a file."""
    return [
        {"path": path, "content": WRITTEN},
        {"file_path": path, "edits": [{"oldText": WRITTEN, "newText": "b"}]},
        {"files": [{"path": path, "content": WRITTEN}]},
    ]


def test_a_tool_s_content_for_each_file_of_the_table_is_masked() -> None:
    shown = [path for path in PATHS for call in calls(path) if WRITTEN in written(call)]
    assert len(PATHS) > 500
    assert shown == []


COMMANDS = table("audit/credential_files.commands", tuple[str, ...])


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_writes_into_a_file_of_the_table_is_masked(command: str) -> None:
    plain = [path for path in PATHS if not set(path) & set(" \\")]
    shown = []
    for path in plain:
        text = command.replace("{path}", path).replace("{}", WRITTEN)
        if WRITTEN in redact_text(text) or WRITTEN in written({"command": text}):
            shown.append(path)
    assert shown == []


@pytest.mark.parametrize(
    "text",
    table("audit/redaction.written_elsewhere", list[str]),
)
def test_what_is_written_elsewhere_is_shown(text: str) -> None:
    assert redact_text(text) == text


def test_a_file_s_name_and_what_is_around_a_secret_stay() -> None:
    assert written({"path": "/srv/.pgpass", "mode": "0600", "content": "h:1:d:u:p"}) == (
        '{"path":"/srv/.pgpass","mode":"0600","content":"[redacted]"}'
    )
    text = "umask 077; echo 'a b' >~/.netrc && ls\ncat >~/.pgpass <<X\nh\nX\nls"
    assert redact_text(text) == (
        "umask 077; echo [redacted] >~/.netrc && ls\ncat >~/.pgpass <<X\n[redacted]\nX\nls"
    )
    assert redact_text(redact_text(text)) == redact_text(text)


def test_an_argument_with_the_content_of_such_a_file_is_a_secret_that_is_sent() -> None:
    (found,) = secrets_in({"path": ".env", "content": "plain"})
    assert (found.argument, found.kind) == ("content", "content of a file of credentials")


@pytest.mark.parametrize(
    "piece",
    table("audit/redaction.long_pieces", list[str]),
)
def test_a_long_hostile_text_is_read_in_linear_time(piece: str) -> None:
    # Quadratic time would be 10^10 steps, which the limit of a test ends.
    text = piece * (200_000 // len(piece))
    redact_text(text)
    is_suspicious(orjson.dumps({"text": text}))


def test_the_options_of_secrets_take_values_in_the_shell_s_grammar_too() -> None:
    """Two tables speak of the same options: what one masks, the other must not take for a flag."""
    wrong = []
    for path, grammar in _grammars():
        for rule in rules_of(path[0]):
            if all(word in path for word in rule.needed):
                options = [*rule.following, *rule.attached, *[one for one, _ in rule.joined]]
                stated = [one for one in options if one in grammar.options]
                wrong += [(path, one) for one in stated if grammar.options[one].arity == "none"]
    assert wrong == []


def _grammars() -> Iterator[tuple[tuple[str, ...], Grammar]]:
    sections = ("reads", "reaches", "families")
    for section in sections:
        for path, text in paths(section).items():
            yield path, grammar_of(expanded(text))

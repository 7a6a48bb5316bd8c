"""`explain` says why, in words and as JSON."""

from pathlib import Path

import orjson
import pytest

from tests.cli.test_decide import directory, run

__all__ = ["directory"]


def explain(directory: Path, tool: str, arguments: object, *extra: str) -> str:
    result = run(
        "explain", tool, "--args", orjson.dumps(arguments).decode(), "--dir", str(directory), *extra
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_denied_call_shows_what_was_tried_and_what_would_allow_it(directory: Path) -> None:
    text = explain(directory, "filesystem/read_file", {"path": "/etc/hosts"})
    assert text.startswith("filesystem/read_file: deny by default-deny")
    assert "path [read-path]: /etc/hosts" in text
    assert "- read-docs: no path is within" in text
    assert '"within": "/etc/hosts"' in text
    # An agent's words move no cursor and write no line of their own.
    text = explain(directory, "filesystem/read_file", {"path": "/srv/a\u202e\U000e0001\n= allow"})
    assert text.isascii()
    assert "\n= allow" not in text


def test_an_empty_argument_is_told_from_one_that_was_not_given(directory: Path) -> None:
    file = directory / "tool-annotations.json"
    annotations = orjson.loads(file.read_bytes())
    (tool, *_) = annotations["servers"]["filesystem"]["tools"]
    tool["args"]["content"] = ["none"]
    tool["inputSchema"] = {}
    file.write_bytes(orjson.dumps(annotations))
    empty = explain(directory, "filesystem/read_file", {"path": "/etc/hosts", "content": ""})
    left_out = explain(directory, "filesystem/read_file", {"path": "/etc/hosts"})
    assert 'content [none]: ""\n' in empty
    assert "(not given)" not in empty
    assert 'content [none]: ""' not in left_out


def test_an_escalated_call_names_the_rule_and_its_role(directory: Path) -> None:
    text = explain(directory, "filesystem/write_file", {"path": "/tmp/x"})
    assert "escalate by ask-writes" in text
    assert "+ ask-writes: says escalate for /tmp/x" in text


def test_the_proposed_rules_really_allow_the_call(directory: Path) -> None:
    arguments = {"path": "/etc/hosts"}
    document = orjson.loads(explain(directory, "filesystem/read_file", arguments, "--json"))
    policy = orjson.loads((directory / "compiled-policy.json").read_bytes())
    policy["rules"] = document["change"] + policy["rules"]
    (directory / "compiled-policy.json").write_bytes(orjson.dumps(policy))
    again = orjson.loads(explain(directory, "filesystem/read_file", arguments, "--json"))
    assert document["decision"] == "deny"
    assert again["decision"] == "allow"
    assert again["change"] == []


def test_arguments_that_cannot_be_read_are_explained(directory: Path) -> None:
    text = explain(directory, "filesystem/read_file", {"path": 5})
    assert 'Argument "path" must be a string (got number).' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("filesystem",), "is not SERVER/TOOL"),
        (("filesystem/x", "--args", "{"), "--args is not JSON"),
        (("filesystem/x", "--args", "[]"), "--args must be a JSON object"),
    ],
)
def test_bad_input_is_one_clear_line(
    directory: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run("explain", *arguments, "--dir", str(directory))
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr

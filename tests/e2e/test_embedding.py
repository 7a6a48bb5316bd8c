"""The programs and schemas of docs/embedding.md, against a running proxy."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import jsonschema_rs
import orjson
import pytest

from ironcurtain_proxy import EscalationInbox
from ironcurtain_proxy.mailbox.session_state import ContextFile, put_command
from ironcurtain_proxy.private_directory import MailboxDirectory
from tests.e2e.installation import ROOT, Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.real_servers import npm_server
from tests.mailbox.mailbox_fixture import CLOCK

EXAMPLES: Final = ROOT / "docs/examples"
SCHEMAS: Final = ROOT / "docs/schemas"


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    made.add_server("filesystem", npm_server("filesystem", str(made.workspace), "/srv"))
    (made.workspace / "notes.txt").write_text("the notes")
    made.variables["ESCALATION_DIR"] = str(tmp_path / "escalations")
    yield made
    made.end()


def example(
    installation: Installation, name: str, *arguments: str, code: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env=installation.environment(),
        cwd=installation.workspace,
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )


def problems(schema: str, file: Path | bytes) -> list[str]:
    text = orjson.loads((SCHEMAS / f"{schema}.schema.json").read_bytes())
    value = orjson.loads(file if isinstance(file, bytes) else file.read_bytes())
    found = [error.message for error in jsonschema_rs.validator_for(text).iter_errors(value)]
    return [*found, *[f"undescribed: {key}" for key in value if key not in text["properties"]]]


# --- programs ------------------------------------------------------------------------------------


def test_the_in_process_agent_reads_and_is_asked(installation: Installation) -> None:
    key = installation.home / ".ssh/id_ed25519"
    shown = example(
        installation, "in_process_agent.py", "notes.txt", "/srv/none.txt", "/srv/none.txt", str(key)
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("success ")
    assert lines[0].endswith(" kernel")
    assert lines[1].startswith("asked about read_text_file: ")
    assert lines[2].endswith(" human")
    assert "grant:" in lines[3]
    assert lines[4] == "denied structural-protected-path policy"
    assert len(lines) == 5


def test_the_code_mode_agent_lists_calls_and_catches_a_denial(installation: Installation) -> None:
    code = (
        "print(await tools.filesystem.read_text_file(path='notes.txt'))\n"
        "try:\n"
        "    await tools.filesystem.read_text_file(path='~/.ssh/id_rsa')\n"
        "except Denied as denied:\n"
        "    print(denied)\n"
    )
    shown = example(installation, "code_mode_agent.py", "read my notes", code=code)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "tools.filesystem.read_text_file(path, tail, head)" in shown.stdout
    assert "the notes" in shown.stdout
    assert shown.stdout.splitlines()[-1] == ("filesystem/read_text_file: structural-protected-path")


def test_the_reviewer_of_twenty_lines_answers_a_running_proxy(installation: Installation) -> None:
    mailbox = installation.root / "escalations"
    agent = installation.start()
    reviewer = subprocess.Popen(
        [sys.executable, "-I", str(EXAMPLES / "mailbox_reviewer.py"), str(mailbox)]
    )
    try:
        read = agent.answer(agent.start_call("read_text_file", {"path": "/srv/none.txt"}))
        write = agent.answer(
            agent.start_call("write_file", {"path": "/srv/none.txt", "content": "x"})
        )
    finally:
        reviewer.terminate()
        reviewer.wait()
    installation.end()
    assert "did not approve" not in str(read)
    assert "did not approve" in str(write)
    outcomes = installation.outcomes()
    assert [one["decidedBy"] for one in outcomes] == ["reviewer:reads-only"] * 2
    assert list(mailbox.iterdir()) == []


def test_the_users_words_are_heard_as_they_were_typed(installation: Installation) -> None:
    mailbox = installation.root / "escalations"
    words = 'push "my branch" to origin'
    sent = example(installation, "user_words.py", str(mailbox), words)
    assert sent.returncode == 0, sent.stderr
    heard = ContextFile(directory=mailbox, clock=CLOCK)()
    assert heard is not None
    assert heard.text == words
    assert problems("user-context", mailbox / "user-context.json") == []


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_example_of_the_readme_works_as_it_stands_there(installation: Installation) -> None:
    [program] = blocks("README.md")
    (installation.workspace / "program.py").write_text(program)
    shown = example(installation, str(installation.workspace / "program.py"))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("success ")
    assert "the notes" in shown.stdout


def test_the_inbox_of_the_document_answers_a_running_proxy(installation: Installation) -> None:
    mailbox = installation.root / "escalations"
    shown = textwrap.indent(blocks("docs/embedding.md")[1], "    ")
    program = (
        "import anyio, sys\nfrom ironcurtain_proxy import *\ndirectory = sys.argv[1]\n"
        f"async def main():\n{shown}\nanyio.run(main)\n"
    )
    agent = installation.start()
    reviewer = subprocess.Popen([sys.executable, "-c", program, str(mailbox)])
    try:
        for path in ("/srv/data/none.txt", "/srv/data/other.txt"):
            agent.answer(agent.start_call("read_text_file", {"path": path}))
        write = agent.answer(
            agent.start_call("write_file", {"path": "/srv/none.txt", "content": "x"})
        )
    finally:
        reviewer.terminate()
        reviewer.wait()
    assert "ask again tomorrow" in str(write)
    by = [str(one["decidedBy"]) for one in installation.outcomes()]
    assert (by[0], by[1][:6], by[2]) == ("reviewer:night-shift", "grant:", "reviewer:night-shift")


# --- schemas -------------------------------------------------------------------------------------


def test_what_a_running_proxy_writes_is_what_the_schemas_describe(
    installation: Installation,
) -> None:
    person = Person(installation)
    agent = installation.start()
    call = agent.start_call("read_text_file", {"path": "/srv/none.txt"})
    person.until_asked()
    [request] = person.requests()
    assert problems("request", request) == []
    assert person.command("approve", "--remember", request.stem[8:]).returncode == 0
    agent.answer(call)
    assert problems("grants", person.directory / "grants.json") == []


def test_what_our_reviewers_side_writes_is_what_the_schemas_describe(tmp_path: Path) -> None:
    identity = "7db5443e-0000-4000-8000-000000000000"
    inbox = EscalationInbox(tmp_path, reviewer="manager-1")
    request = {
        "escalationId": identity,
        "serverName": "files",
        "toolName": "read_file",
        "arguments": {},
        "reason": "outside",
        "whitelistCandidates": [{"description": "Allow it"}],
    }
    (tmp_path / f"request-{identity}.json").write_bytes(orjson.dumps(request))
    [pending] = inbox.pending()
    assert inbox.approve_now(identity, remember=pending.candidates[0], note="fine")
    assert problems("response", tmp_path / f"response-{identity}.json") == []
    inbox.write_user_message("hello", trusted_source=True)
    assert problems("user-context", tmp_path / "user-context.json") == []
    place = MailboxDirectory.open(tmp_path, create=False)
    for action, grant in (("revoke", "g1"), ("clear", None)):
        name = put_command(place, "revoke" if action == "revoke" else "clear", grant)
        assert problems("withdrawal", tmp_path / name) == []


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ("response", b'{"decision": "Approved"}'),
        ("response", b'{"decision": "approved", "whitelistSelection": true}'),
        ("response", b'{"decision": "approved", "requestDigest": "00"}'),
        ("response", b'{"whitelistSelection": 0}'),
        ("user-context", b'{"userMessage": ""}'),
        ("withdrawal", b'{"action": "revoke"}'),
        ("withdrawal", b'{"action": "grant"}'),
        ("request", b'{"escalationId": "../../etc"}'),
    ],
)
def test_a_schema_refuses_what_the_proxy_does_not_take(schema: str, document: bytes) -> None:
    assert problems(schema, document) != []


def test_every_example_and_schema_is_in_the_document() -> None:
    document = (ROOT / "docs/embedding.md").read_text()
    files = [*EXAMPLES.glob("*.py"), *SCHEMAS.iterdir()]
    assert len(files) == 10
    missing = [file.name for file in files if os.path.relpath(file, ROOT / "docs") not in document]
    assert missing == []
    assert len((EXAMPLES / "mailbox_reviewer.py").read_text().splitlines()) <= 25

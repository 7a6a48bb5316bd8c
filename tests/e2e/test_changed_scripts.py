"""A script that is exchanged while a person reads the command that runs it.

With a real sandbox, and a person at the mailbox.
"""

import pytest

from tests.e2e.confined_installation import escalations, folder
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import text
from tests.e2e.test_containment import CONFIG, contained

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("build.sh", "sh {here}/build.sh"),
        ("build.sh", "bash -c 'cd {here}; timeout 9 ./build.sh'"),
        ("pkg/tool.py", "cd {here} && python3 -m pkg.tool"),
    ],
)
def test_what_was_exchanged_while_a_person_read_is_not_run(
    installation: Installation, file: str, start: str
) -> None:
    escalations(installation)
    place, here = folder(installation, "outside"), installation.workspace
    script = here / file
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/bin/true\n")
    script.chmod(0o755)
    agent, person = contained(installation, CONFIG), Person(installation)
    command = f"cp /dev/null {place}/y; {start.format(here=here)}"
    call = agent.start_call("shell", {"command": command})
    person.until_asked()
    script.write_text("#!/bin/sh\n'''true' ; echo evil; exit; '''\n'''\nprint('evil')\n")
    person.answer({"decision": "approved"})
    assert "what it names changed while waiting" in text(agent.result(call))
    assert list(place.iterdir()) == []

"""A confined process writes a hook while its proxy is killed: the next start takes it away."""

import os
import signal
import subprocess

import pytest

from tests.e2e.confined_installation import done
from tests.e2e.installation import Installation
from tests.program import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def test_a_hook_that_a_process_writes_as_its_proxy_is_killed_is_gone_at_the_next_start(
    single: Installation,
) -> None:
    subprocess.run(["git", "init", "-q", str(single.workspace)], check=True)
    hook = single.workspace / "sub/.git/hooks/post-commit"
    agent = single.start()
    done(agent.call("shell", {"command": _ONCE_THE_PROXY_STANDS.format(place=single.workspace)}))
    # It cannot look while it stands.
    os.kill(agent.process.pid, signal.SIGSTOP)
    (single.workspace / "go").touch()
    wait_until(hook.exists)
    agent.process.kill()
    agent.process.wait(PATIENCE)
    assert hook.exists()

    second = single.start()
    done(second.call("pids"))
    assert not hook.exists()
    assert "a proxy was killed" in second.errors.read_text()
    assert second.close() == 0

    third = single.start()
    done(third.call("pids"))
    assert "a proxy was killed" not in third.errors.read_text()
    assert third.close() == 0
    assert not list((single.home / ".ironcurtain/watches").iterdir())


_ONCE_THE_PROXY_STANDS = (
    "cd {place}; (while ! [ -e go ]; do sleep 0.05; done; mkdir -p sub/.git/hooks; "
    "echo evil > sub/.git/hooks/post-commit) >/dev/null 2>&1 &"
)

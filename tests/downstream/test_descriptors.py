"""How many files may be open at once: in the proxy, and in its servers."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import PATIENCE

ROOT = Path(__file__).parents[2]

STARTS_A_SERVER = """
import os, resource
from ironcurtain_proxy.downstream.process import raise_limit
from ironcurtain_proxy.downstream.process import spawn
from ironcurtain_proxy.model.server import ServerSpec
raise_limit()
raise_limit()
spec = ServerSpec(name="s", annotations="s", command="sh")
argv = ["sh", "-c", "ulimit -Sn; ulimit -Hn"]
process = spawn(spec, environment={"PATH": os.environ["PATH"]}, cwd="/", argv=argv)
read, _ = process.take_wire()
with os.fdopen(read) as output:
    said = output.read().split()
process.end(0)
print(*resource.getrlimit(resource.RLIMIT_NOFILE), *said)
"""

SAYS_WHETHER_THERE_ARE_ENOUGH = """
import sys
from ironcurtain_proxy.downstream.process import raise_limit, too_few
raise_limit()
print(too_few(int(sys.argv[1])))
"""


def run(code: str, soft: int, hard: int, *arguments: object) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    ).stdout.strip()


def test_the_proxy_takes_what_it_may_have_and_servers_keep_what_they_had() -> None:
    assert run(STARTS_A_SERVER, 64, 500) == "500 500 64 500"


def test_where_nothing_can_be_raised_all_stays_as_it_is() -> None:
    assert run(STARTS_A_SERVER, 200, 200) == "200 200 200 200"


@pytest.mark.parametrize(("hard", "enough"), [(64, False), (500, True)])
def test_too_few_for_the_servers_is_said(hard: int, enough: bool) -> None:
    said = run(SAYS_WHETHER_THERE_ARE_ENOUGH, 64, hard, 12)
    assert (said == "None") is enough
    assert enough or "64 files may be open at once, and 12 servers need about" in said

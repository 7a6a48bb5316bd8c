"""The compose file of `docs/teams.md` in meaning: its commands and variables, without containers.

Other than there: addresses and directories, PostgreSQL of this machine, another provider of logins,
a server of the tests in place of one from npm, and no proxy in front of the two pages.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import jsonschema_rs
import orjson
import pytest
import yaml

from ironcurtain_proxy.mailbox.mailboxes import is_listened_to, sessions_directory
from tests import program
from tests.e2e.installation import Installation
from tests.fleet.pages import logged_in_at, person, provider
from tests.program import PATIENCE, PROXY, ROOT, free_port, wait_until
from tests.signed_answers import SoftPasskey

EXAMPLE = ROOT / "docs/examples/fleet"
SERVICES = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
DEX = yaml.safe_load((EXAMPLE / "dex.yaml").read_text())
MACHINES = [name for name in SERVICES if name.startswith("machine-")]
ORIGIN = "http://localhost:8800"


class Composed:
    """What `docker compose up` starts."""

    def __init__(self, place: Path, url: str, stack: ExitStack) -> None:
        self._place, self._stack = place, stack
        self._url = url
        # A fork of what is imported starts in a twentieth of the time.
        self.path = self._command("bin", f'exec {" ".join(program.for_others())} "$@"')
        self._said = self._command("said", "printf '%s\\0' \"$@\"")
        (client,) = DEX["staticClients"]
        assert client["redirectURIs"] == [f"{ORIGIN}/callback"]
        self.issuer = provider(stack, client["redirectURIs"][0], client["secret"])
        self.machines = {name: self._machine(name) for name in MACHINES}
        self.ports = [self._page(name) for name in ("page-1", "page-2")]
        for name, one in self.machines.items():
            argv = [*PROXY, *SERVICES[name]["command"]]
            self._started(argv, one.environment(), one.root / "relay.log", one.workspace)

    def _command(self, folder: str, does: str) -> str:
        """Return a `PATH` with an `ironcurtain-proxy` that does this."""
        place = self._place / folder / "ironcurtain-proxy"
        place.parent.mkdir()
        place.write_text(f"#!/bin/sh\n{does}\n")
        place.chmod(0o755)
        return f"{place.parent}:{os.environ['PATH']}"

    def variables(self, name: str) -> dict[str, str]:
        said = {key: str(value) for key, value in SERVICES[name]["environment"].items()}
        assert said["IRONCURTAIN_DATABASE"].startswith("postgresql://fleet@")
        assert said["PGPASSWORD"] == SERVICES["database"]["environment"]["POSTGRES_PASSWORD"]
        return {**said, "IRONCURTAIN_DATABASE": self._url}

    def _machine(self, name: str) -> Installation:
        one = Installation(self._place / name)
        self._stack.callback(one.end)
        one.variables |= self.variables(name)
        one.add_scripted(
            "memory",
            {"read_graph": {}},
            tools=[{"name": "read_graph", "inputSchema": {"type": "object"}}],
        )
        state = one.home / ".ironcurtain"
        state.mkdir(mode=0o700)
        shutil.copy(EXAMPLE / "policy.yaml", state)
        return one

    def _page(self, name: str) -> int:
        port = free_port()
        (words,) = SERVICES[name]["command"]
        for old, new in (
            ("$$", "$"),
            ("/tmp/", f"{self._place}/{name}-"),
            ("http://localhost:5556/dex", self.issuer),
        ):
            assert old in words
            words = words.replace(old, new)
        environment = {**self.variables(name), "PORT": str(port), "PATH": self._said}
        shell = [*SERVICES[name]["entrypoint"], words]
        said = subprocess.run(
            shell, env=environment, cwd=self._place, check=True, capture_output=True, text=True
        ).stdout
        argv = [*PROXY, *said.split("\0")[:-1]]
        page = self._started(argv, environment, self._place / f"{name}.log", self._place)
        assert page.stdout is not None
        assert page.stdout.readline().startswith(f"{ORIGIN}/ shows the questions".encode())
        return port

    def _started(
        self, argv: list[str], environment: dict[str, str], log: Path, place: Path
    ) -> "program.Forked | subprocess.Popen[bytes]":
        with log.open("ab") as errors:
            running = program.start(argv, environment, errors, place)
        self._stack.callback(lambda: (running.kill(), running.wait()))
        return running

    def ends(self, running: subprocess.Popen[bytes]) -> None:
        def end() -> None:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()

        self._stack.callback(end)


@pytest.fixture
def composed(tmp_path: Path, postgres_url: str) -> Iterator[Composed]:
    pytest.importorskip("joserfc", reason="the extra desk is not installed: scripts/setup")
    if not (ROOT / "node_modules/oidc-provider").is_dir():
        pytest.skip("oidc-provider is not installed: npm ci")
    with ExitStack() as stack:
        yield Composed(tmp_path, postgres_url, stack)


def asking(composed: Composed, passkey: SoftPasskey) -> dict[str, subprocess.Popen[bytes]]:
    """Let a person approve on each machine, and let an agent there make a call by `ask.sh`."""
    line, found = composed.machines["machine-1"].root / "ada.txt", {}
    line.write_text(f"{passkey.passkey.line}\n")
    for name, one in composed.machines.items():
        add = [*PROXY, "reviewers", "add", "ada", str(line), "--risk", "critical"]
        assert program.run(add, one.environment()).returncode == 0
        listening = sessions_directory(one.home)
        wait_until(lambda listening=listening: is_listened_to(listening), "no relay")  # type: ignore[misc]
        run = one.root / "run"
        run.write_text('#!/bin/sh\nshift; exec "$@"\n')
        run.chmod(0o755)
        found[name] = subprocess.Popen(
            [str(EXAMPLE / "ask.sh"), name], stdout=subprocess.PIPE, cwd=one.workspace,
            env={**one.environment(), "PATH": composed.path, "ASK_WITH": str(run)},
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        composed.ends(found[name])
    return found


def opened_at(browser: httpx.Client, composed: Composed) -> None:
    """Log in at the first copy, and open the page at the second."""
    address = logged_in_at(browser, f"http://127.0.0.1:{composed.ports[0]}/", ORIGIN)
    ticket = {"ticket": address.partition("#")[2]}
    browser.headers["Host"] = "localhost:8800"
    opened = browser.post(f"http://127.0.0.1:{composed.ports[1]}/api/page", json=ticket)
    browser.headers["Authorization"] = f"Bearer {opened.json()['key']}"


def test_the_page_on_teams_leads_to_an_approved_call_on_each_machine(composed: Composed) -> None:
    passkey = SoftPasskey(ORIGIN)
    found: list[dict[str, object]] = []
    asked = asking(composed, passkey)
    with person() as browser:
        opened_at(browser, composed)

        def all_ask() -> bool:
            url = f"http://127.0.0.1:{composed.ports[1]}/api/questions"
            with browser.stream("GET", url) as answer:
                found[:] = orjson.loads(next(answer.iter_lines()))["questions"]
            return len(found) == len(MACHINES)

        wait_until(all_ask, "a question did not come")
        for one, port in zip(found, (*composed.ports, composed.ports[0]), strict=True):
            fields = {"id": one["id"], "digest": one["digest"], "approve": True, "note": ""}
            url = f"http://127.0.0.1:{port}/api/answers"
            sign = browser.post(url, json=fields).json()["sign"]
            signed = passkey.asserts_text(str(sign["challenge"]))
            done = browser.post(url, json={**fields, "passkey": signed})
            assert done.is_success, done.text
    for name, process in asked.items():
        told, _ = process.communicate(timeout=PATIENCE)
        assert b'"id":2' in told.splitlines()[-1]
        assert b"isError" not in told
        assert composed.machines[name].outcomes()[-1]["decidedBy"] == "signed:ada"


def test_the_chart_s_values_fit_their_schema_and_helm_takes_the_chart() -> None:
    chart = EXAMPLE / "chart"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    schema = orjson.loads((chart / "values.schema.json").read_bytes())
    check = jsonschema_rs.validator_for(schema).is_valid
    assert check(values)
    for wrong in (
        {"replicas": 0},
        {"url": "http://x"},
        {"database": {"url": "postgresql://a:b@c/d"}},
    ):
        assert not check({**values, **wrong})
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed: the templates are not rendered")
    done = subprocess.run([helm, "template", "acme", chart], check=True, capture_output=True)
    kinds = {one["kind"] for one in yaml.safe_load_all(done.stdout)}
    assert kinds == {"Deployment", "Service", "Ingress"}

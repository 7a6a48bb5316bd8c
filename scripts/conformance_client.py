"""The client that the conformance suite is given: an agent of a proxy before the suite's server.

    MCP_CONFORMANCE_SCENARIO=NAME conformance_client.py [--sdk CLIENT] URL

It does what the SDK's own client of the suite does in each scenario, but every request goes through
a proxy that has the URL as its one server. A person logs in where the server wants it, as the
commands of the proxy say, and approves each call. `--sdk` runs the SDK's client itself instead, in
the same scenarios.
"""

import json  # noqa: TID251  what the suite hands over
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

PROXY: Final = [sys.executable, "-m", "ironcurtain_proxy"]
SERVER: Final = "suite"
_MOST_LOGINS: Final = 2
_PATIENCE: Final = 40.0
_TAKEN_UP: Final = 10.0
"""Seconds in which a running proxy takes up a new login."""
NOT_OFFERED: Final = ("dpop", "dpop-nonce", "wif-jwt-bearer", "client-credentials-jwt")
NOT_OFFERED_NAMES: Final = frozenset(
    {*[f"auth/{name}" for name in NOT_OFFERED], "auth/enterprise-managed-authorization"}
)
"""Extensions that the proxy does not have. The suite scores them for no revision."""


class Agent:
    """An agent of one proxy, whose user fills in what a form proposes."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            PROXY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._id = 0

    def ask(self, method: str, params: dict) -> dict:
        """The answer to a request."""
        self._id += 1
        self.send({"id": self._id, "method": method, "params": params})
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": _filled_in(message)})
            elif message.get("id") == self._id:
                return message
        raise SystemExit("the proxy has ended")

    def send(self, message: dict) -> None:
        """Send one message."""
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def start(self) -> None:
        """Shake hands."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {"form": {"applyDefaults": True}}},
            "clientInfo": {"name": "conformance", "version": "1"},
        }
        self.ask("initialize", params)
        self.send({"method": "notifications/initialized"})

    def tools(self, patience: float = 0.0) -> list[dict]:
        """The tools of the server, once it has started. None: it has none, or does not start.

        A server that did not start is tried again, and waited for as long as `patience`.
        """
        begin = time.monotonic()
        while (waited := time.monotonic() - begin) < _PATIENCE:
            listed = self.ask("tools/list", {})["result"]["tools"]
            found = [tool for tool in listed if not tool["name"].startswith("ironcurtain_")]
            if found:
                return found
            said = self.call("none", {})
            has_failed = "did not start" in said and waited >= patience
            if has_failed or not ("did not start" in said or "still starting" in said):
                return []
            time.sleep(0.2)
        return []

    def call(self, name: str, arguments: dict) -> str:
        """The answer to a call, as text."""
        return json.dumps(self.ask("tools/call", {"name": name, "arguments": arguments}))

    def end(self) -> None:
        """Hang up."""
        self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _filled_in(question: dict) -> dict:
    schema = question.get("params", {}).get("requestedSchema", {})
    content = {
        name: field.get("default", True)
        for name, field in schema.get("properties", {}).items()
        if "default" in field or field.get("type") == "boolean"
    }
    return {"action": "accept", "content": content}


def environment(home: Path, entry: dict) -> dict[str, str]:
    """A proxy with one server, of whose tools a person is asked about each."""
    rules = [
        {"name": "none", "if": {"server": ["nobody"]}, "then": "deny", "reason": "measured"},
        {
            "name": "operations",
            "if": {"operations": ["resources/read", "prompts/get"]},
            "then": "allow",
            "reason": "measured",
        },
    ]
    generated = home / "generated"
    generated.mkdir()
    (generated / "compiled-policy.json").write_text(json.dumps({"rules": rules}), "utf-8")
    (home / "config.json").write_text('{"unknownTools": "ask", "pins": "off"}', "utf-8")
    return {
        **os.environ,
        "HOME": str(home),
        "IRONCURTAIN_CONFIG": str(home / "config.json"),
        "MCP_SERVERS_CONFIG": json.dumps({SERVER: entry}),
        "GENERATED_DIR": str(generated),
        "ESCALATION_DIR": str(home / "questions"),
    }


def entry_of(url: str, context: dict) -> dict:
    """The server's entry, with the client that the operator registered, if there is one."""
    entry = {"url": url, "addresses": ["127.0.0.0/8", "::1"], "ask": ["form"]}
    if "client_id" not in context:
        return entry
    oauth = {"clientId": context["client_id"]}
    if "client_secret" in context:
        oauth |= {"clientSecret": context["client_secret"], "issuer": _issuer(url)}
    if os.environ["MCP_CONFORMANCE_SCENARIO"] == "auth/client-credentials-basic":
        oauth["grant"] = "client-credentials"
    return {**entry, "oauth": oauth}


def _issuer(url: str) -> str:
    """What an operator would have been told together with the secret."""
    place = urljoin(url, f"/.well-known/oauth-protected-resource{urlsplit(url).path}")
    with urllib.request.urlopen(place) as answer:  # noqa: S310  the suite's own
        return json.loads(answer.read())["authorization_servers"][0]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def log_in(environ: dict[str, str]) -> bool:
    """The command, and a browser that opens the page which it prints."""
    command = [*PROXY, "login", SERVER, "--no-browser"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        page = next((line.strip() for line in process.stdout if line.startswith("http")), "")
        if page:
            browser = urllib.request.build_opener(_NoRedirect)
            try:
                browser.open(page)
            except urllib.error.HTTPError as answer:
                back = answer.headers.get("location")
                if back:
                    urllib.request.urlopen(back).close()  # noqa: S310  ours
        process.stdout.read()
    return process.returncode == 0


def approve(questions: Path) -> None:
    """Approve what is asked."""
    answered: set[str] = set()
    while True:
        for file in questions.glob("request-*.json"):
            name = file.stem.removeprefix("request-")
            if name not in answered:
                answered.add(name)
                answer = file.with_name(f"response-{name}.json")
                answer.with_suffix(".tmp").write_text('{"decision": "approved"}', "utf-8")
                answer.with_suffix(".tmp").rename(answer)
        time.sleep(0.05)


_MRTR: Final = ("echo_state", "unrelated", "no_state", "no_result_type")
CALLS: Final = {
    "initialize": [],
    "json-schema-ref-no-deref": [],
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "request-metadata": [("add_numbers", {"a": 5, "b": 3})],
    "sse-retry": [("test_reconnection", {})],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "sep-2322-client-request-state": [(f"test_mrtr_{kind}", {}) for kind in _MRTR],
}
"""The calls that a scenario wants."""


def calls_of(scenario: str, tools: list[dict], context: dict) -> list[tuple[str, dict]] | None:
    """The calls that a scenario wants. None: as many as a login needs."""
    match scenario:
        case "json-schema-2020-12-preservation":
            focal = next(one for one in tools if one["name"] == "json_schema_2020_12_tool")
            return [("json_schema_echo", {"schema": focal["inputSchema"]})]
        case "http-custom-headers":
            # An argument that is null is none here: the tool's own schema admits no null.
            return [
                (one["name"], {k: v for k, v in one["arguments"].items() if v is not None})
                for one in context["toolCalls"]
            ]
        case "http-invalid-tool-headers" | "http-standard-headers":
            return [(tool["name"], {"region": "x"}) for tool in tools]
        case _:
            return CALLS.get(scenario)


def play(agent: Agent, scenario: str, environ: dict[str, str], context: dict) -> None:
    """What the suite's scenario wants of an agent."""
    tools = agent.tools()
    calls = calls_of(scenario, tools, context)
    for name, arguments in calls or []:
        sys.stderr.write(agent.call(name, arguments))
    if scenario == "http-standard-headers":
        read_all(agent)
    for _ in range(_MOST_LOGINS if calls is None else 0):
        said = agent.call(tools[0]["name"], {}) if tools else "login"
        if "login" not in said or not log_in(environ):
            return
        tools = agent.tools(_TAKEN_UP)


def read_all(agent: Agent) -> None:
    """Read all resources, and get all prompts."""
    for one in agent.ask("resources/list", {})["result"]["resources"]:
        agent.ask("resources/read", {"uri": one["uri"]})
    for one in agent.ask("prompts/list", {})["result"]["prompts"]:
        agent.ask("prompts/get", {"name": one["name"]})


def main() -> int:
    """Play one scenario."""
    url, scenario = sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if scenario in NOT_OFFERED_NAMES:
        return 1
    if sys.argv[1] == "--sdk":
        os.execv(sys.executable, [sys.executable, sys.argv[2], url])  # noqa: S606  no shell
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        environ = environment(home, entry_of(url, context))
        threading.Thread(target=approve, args=[home / "questions"], daemon=True).start()
        is_personal = scenario.startswith("auth/") and "client-credentials" not in scenario
        if is_personal and not log_in(environ):
            return 1
        agent = Agent(environ)
        try:
            agent.start()
            play(agent, scenario, environ, context)
        finally:
            agent.end()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

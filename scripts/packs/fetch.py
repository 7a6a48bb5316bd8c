"""Install servers in a scratch directory, start each, and keep what its `tools/list` says.

    scripts/packs/fetch.py --scratch DIR [NAME …]

Scripts of packages do not run while they are installed. A server gets worthless tokens.
"""

import argparse
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

HERE: Final = Path(__file__).parent
_INSTALL: Final = 420.0
_ANSWER: Final = 60.0


def main() -> int:
    """Fetch the named servers, or all. 1 if one did not answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    servers = orjson.loads((HERE / "servers.json").read_text())
    failed = 0
    for name in options.names or sorted(servers):
        scratch = options.scratch / name
        scratch.mkdir(parents=True, exist_ok=True)
        kept = scratch / "tools.json"
        if kept.exists():
            continue
        try:
            kept.write_bytes(orjson.dumps(fetched(servers[name], scratch)))
            sys.stdout.write(f"{name}: {len(orjson.loads(kept.read_text())['tools'])} tools\n")
        except (OSError, subprocess.SubprocessError, ValueError, StopIteration) as error:
            failed += 1
            sys.stdout.write(f"{name}: {str(error)[:300]}\n")
        sys.stdout.flush()
    return int(failed > 0)


def fetched(server: Mapping[str, object], scratch: Path) -> dict[str, object]:
    """What one server says: its package, version and tools."""
    command = from_npm(server, scratch) if "npm" in server else from_pypi(server, scratch)
    given = [
        str(word).replace("@scratch", str(scratch)).replace("@vault", str(_vault(scratch)))
        for word in server.get("args", [])  # type: ignore[attr-defined]
    ]
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYENV_ROOT": os.environ.get("PYENV_ROOT", ""),
        **{
            str(key): str(value).replace("@scratch", str(scratch))
            for key, value in dict(server.get("env", {})).items()  # type: ignore[call-overload]
        },
    }
    started = [*command[0], *given]
    with (scratch / "stderr.txt").open("wb") as errors:
        process = subprocess.Popen(
            started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env=environment, cwd=scratch, start_new_session=True,
        )  # fmt: skip
        try:
            tools = list(_tools(process))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait(10)
    return {"version": command[1], "tools": tools}


def _vault(scratch: Path) -> Path:
    vault = scratch / "vault"
    (vault / ".obsidian").mkdir(parents=True, exist_ok=True)
    (vault / ".obsidian" / "app.json").write_text("{}")
    return vault


def from_npm(server: Mapping[str, object], scratch: Path) -> tuple[list[str], str]:
    """Install a server of npm. Returns its command and its version."""
    package = str(server["npm"])
    at = scratch / "node_modules" / package / "package.json"
    if not at.exists():
        words = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix",
                 str(scratch), f"{package}@{server['version']}"]  # fmt: skip
        _run(words)
    about = orjson.loads(at.read_text())
    programs = about["bin"]
    program = programs if isinstance(programs, str) else next(iter(programs.values()))
    if isinstance(programs, dict) and "program" in server:
        program = programs[str(server["program"])]
    return ["node", str(at.parent / program)], about["version"]


def from_pypi(server: Mapping[str, object], scratch: Path) -> tuple[list[str], str]:
    """Install a server of PyPI. Returns its command and its version."""
    package, venv = str(server["pypi"]), scratch / "venv"
    pin = f"=={server['version']}" if server["version"] else ""
    if not (venv / "done").exists():
        _run([str(server.get("python", sys.executable)), "-m", "venv", str(venv)])
        _run(
            [
                str(venv / "bin/pip"),
                "install",
                "-q",
                *([] if server.get("source") else ["--only-binary=:all:"]),
                f"{package}{pin}",
                *[str(word) for word in server.get("with", [])],
            ]
        )  # type: ignore[attr-defined]
        (venv / "done").touch()
    shown = _run([str(venv / "bin/pip"), "show", package])
    version = next(line for line in shown.splitlines() if line.startswith("Version: "))
    program = str(server.get("program", package))
    return [str(venv / "bin" / program)], version.removeprefix("Version: ")


def _run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL, check=False)
    if done.returncode:
        raise ValueError(f"{words[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _tools(process: subprocess.Popen[bytes]) -> Iterator[object]:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "packs", "version": "1"}}  # fmt: skip
    answers = _Answers(process)
    answers.send({"id": 0, "method": "initialize", "params": hello})
    answers.wait(0)
    answers.send({"method": "notifications/initialized"})
    cursor: object = None
    for number in range(1, 50):
        params = {} if cursor is None else {"cursor": cursor}
        answers.send({"id": number, "method": "tools/list", "params": params})
        result = answers.wait(number)
        yield from result["tools"]  # type: ignore[misc]
        cursor = result.get("nextCursor")
        if not cursor:
            return


class _Answers:
    """What a server writes, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pending = b""

    def send(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")
        self._process.stdin.flush()

    def wait(self, number: int) -> dict[str, object]:
        until = time.monotonic() + _ANSWER
        assert self._process.stdout is not None  # noqa: S101
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while time.monotonic() < until:
                while b"\n" in self._pending:
                    line, self._pending = self._pending.split(b"\n", 1)
                    with suppress(ValueError):
                        message = orjson.loads(line)
                        if isinstance(message, dict) and message.get("id") == number:
                            if "result" not in message:
                                raise OSError(f"error: {str(message)[:200]}")
                            return dict(message["result"])
                if selector.select(1.0):
                    data = os.read(self._process.stdout.fileno(), 65536)
                    if not data:
                        raise OSError("it ended")
                    self._pending += data
        raise OSError("no answer")


if __name__ == "__main__":
    raise SystemExit(main())

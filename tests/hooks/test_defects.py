"""A defect in the handling of one event denies that event, and the session goes on."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import object_of
from tests import program
from tests.hooks.hooked import HookedHome, decision_in
from tests.hooks.test_questions import listener, open_questions, waiting
from tests.program import PATIENCE, wait_until

FAULTS: Final = """
import sys, time
from pathlib import Path
from ironcurtain_proxy.cli import main
from ironcurtain_proxy.hooks import door, kernel
from ironcurtain_proxy.hooks.events import HookDialect
from ironcurtain_proxy.mailbox import reviewer
from ironcurtain_proxy.mailbox.reviewer import Mailbox
from ironcurtain_proxy.mediation.calls import Calls
from ironcurtain_proxy.pins.book import PinBook
from ironcurtain_proxy.wiring.reloading import Reloading

def plant(where, name, when):
    real = getattr(where, name)
    def broken(*given, **more):
        if when(given):
            raise ZeroDivisionError("planted in " + name)
        return real(*given, **more)
    setattr(where, name, broken)

plant(door, "_object", lambda given: b"in-reading" in given[0])
plant(HookDialect, "is_passed_by", lambda given: given[1] == "InName")
plant(door, "as_server_call", lambda given: "in-meaning" in str(given[1]))
plant(door.Door, "_command", lambda given: "in-place" in str(given[2].arguments))
plant(door.Door, "_after", lambda given: "in-after" in str(given[1].calls))
plant(kernel, "note_event", lambda given: (given[0] / "in-noting").exists())
plant(kernel, "switched_off_by", lambda given: True)
real = Calls.handle
async def handle(self, name, params, *more):
    if "in-handling" in str(params):
        raise ZeroDivisionError("planted in handle")
    reply = await real(self, name, params, *more)
    if "in-the-end" in str(params):
        raise ZeroDivisionError("planted behind handle")
    return reply
Calls.handle = handle

# What goes on beside the calls.
state = Path.home() / ".ironcurtain"
once = set()
def plant_once(where, name):
    real = getattr(where, name)
    def broken(*given, **more):
        if (state / "in-the-background").exists() and name not in once:
            once.add(name)
            raise ZeroDivisionError("planted in " + name)
        return real(*given, **more)
    setattr(where, name, broken)

plant_once(Mailbox, "_look_at_everything")
plant_once(PinBook, "changed_servers")
plant_once(Reloading, "look")
plant(reviewer, "judge_response", lambda given: b"in-judging" in given[0])

sys.argv[1:] = sys.argv[2:]
sys.exit(main())
"""
BACKGROUND: Final = ("_look_at_everything", "changed_servers", "look")
"""The functions of `FAULTS` that meet a defect beside the calls, each once."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookedHome]:
    hooked = HookedHome(tmp_path)
    monkeypatch.chdir(hooked.workspace)
    (tmp_path / "faults.py").write_text(FAULTS)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {program.PROXY[0]} {tmp_path}/faults.py "$@"\n')
    python.chmod(0o755)
    yield hooked
    hooked.end_session()


def states(home: HookedHome) -> list[str]:
    return [str(object_of(one["result"])["status"]) for one in home.outcomes()]


def test_a_defect_denies_its_event_is_logged_and_recorded_and_the_kernel_goes_on(
    home: HookedHome,
) -> None:
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    kernel = home.kernel()
    for number, (tool, command) in enumerate(
        [
            ("Bash", "cat in-reading"),
            ("InName", "x"),
            ("Bash", "cat in-meaning"),
            ("Bash", "cat in-place"),
            ("Bash", "cat in-handling"),
        ],
        start=1,
    ):
        assert home.decide(tool, {"command": command}) == "deny", command
        assert states(home) == ["denied"] * number, command
    (home.state / "in-noting").touch()
    assert home.decide("Bash", {"command": "ls"}) == "deny"
    (home.state / "in-noting").unlink()
    assert orjson.loads(home.fire("ConfigChange", {}).stdout)["decision"] == "block"
    for command in ("cat in-after", "cat in-the-end"):
        call = home.call("Bash", {"command": command})
        assert decision_in(home.fire("PreToolUse", call).stdout) == "silence"
        assert home.fire("PostToolUse", {**call, "tool_response": {}}).returncode == 0
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    assert home.kernel() == kernel
    said = "".join(one.read_text() for one in home.state.rglob("*.log"))
    for one in ("_object", "is_passed_by", "as_server_call", "_command", "handle", "note_event"):
        assert f"ZeroDivisionError: planted in {one}\n" in said, one
    assert said.count("Traceback") == 9
    home.end_session()
    ids = [one["requestId"] for one in home.records() if "result" not in one]
    assert {*ids} <= {one["requestId"] for one in home.outcomes()}


def has_ended(home: HookedHome, number: int) -> Callable[[], bool]:
    return lambda: len(home.outcomes()) == number


HALF: Final = """
import os, socket, sys
os.chdir(sys.argv[1])
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[2])
wire.sendall(b'claude PreToolUse \\n{"tool_name": "Bash"')
wire.shutdown(socket.SHUT_WR)
wire.recv(1 << 16)  # whoever has gone by the time it is looked at is nobody's hook
"""
_FEW: Final = 320
"""Descriptors of a kernel. More connections than it serves at once take them."""
MANY: Final = """
import os, socket, sys, time
os.chdir(sys.argv[1])
held = []
for _ in range(400):
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(sys.argv[2])
    held.append(wire)
print("all wait", flush=True)
sys.stdin.read()
"""


def connecting(home: HookedHome, script: str) -> list[str]:
    """Return the words that start a script with the directory of the door and its name."""
    return [sys.executable, "-c", script, str(home.state / "doors"), home.door().name]


def said(home: HookedHome) -> str:
    """Return what the kernels have logged."""
    return "".join([one.read_text() for one in home.state.rglob("*.log")])


def test_a_hook_that_is_killed_in_the_middle_of_its_event_leaves_no_call_open(
    home: HookedHome,
) -> None:
    with listener(home):
        kernel = home.kernel()
        call = home.call("Bash", {"command": "curl https://example.com"})
        for number in (1, 2):
            hook = home.start("PreToolUse", call)
            waiting(home)
            os.killpg(hook.pid, signal.SIGKILL)
            hook.communicate(timeout=PATIENCE)
            wait_until(lambda: not open_questions(home))
            wait_until(has_ended(home, number))
        subprocess.run(connecting(home, HALF), check=True)
        wait_until(has_ended(home, 3))
        assert home.kernel() == kernel, said(home)
    assert "unreadable-event" in str(home.outcomes()[-1]["policyDecision"])
    assert states(home) == ["denied"] * 3


def test_more_connections_than_a_kernel_has_descriptors_end_no_session(
    home: HookedHome,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEW, before[1]))
    try:
        assert home.decide("Bash", {"command": "ls"}) == "silence"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    kernel = home.kernel()
    many = subprocess.Popen(
        connecting(home, MANY), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert many.stdout is not None
    assert many.stdout.readline() == "all wait\n"
    wait_until(lambda: len([*Path(f"/proc/{kernel}/fd").iterdir()]) == _FEW)
    many.communicate()
    assert home.decide("Bash", {"command": "ls"}) == "silence", said(home)
    assert home.kernel() == kernel, said(home)


def test_a_defect_beside_the_calls_is_logged_and_ends_no_session(home: HookedHome) -> None:
    with listener(home):
        kernel = home.kernel()
        (home.state / "in-the-background").touch()
        call = home.call("Bash", {"command": "curl https://example.com"})
        for answer in ("in-judging", "denied"):
            hook = home.start("PreToolUse", call)
            waiting(home)
            (asked,) = open_questions(home)
            answered = asked.with_name(asked.name.replace("request", "response"))
            answered.with_suffix(".new").write_text(f'{{"decision": "{answer}"}}')
            answered.with_suffix(".new").rename(answered)
            assert decision_in(hook.communicate(timeout=PATIENCE)[0]) == "deny"
        wait_until(lambda: said(home).count("begins again") == len(BACKGROUND))
        for one in (*BACKGROUND, "judge_response"):
            assert f"ZeroDivisionError: planted in {one}\n" in said(home), one
        assert home.decide("Bash", {"command": "ls"}) == "silence"
        assert home.kernel() == kernel
    assert states(home)[:2] == ["denied"] * 2


def test_a_session_whose_log_could_not_be_written_goes_on_once_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path)
    monkeypatch.chdir(home.workspace)
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    home.fire("Stop", {})
    # The disk is full for this kernel alone.
    resource.prlimit(home.kernel(), resource.RLIMIT_FSIZE, (0, 0))
    denied = home.fire("PreToolUse", home.call("Bash", {"command": "ls"})).stdout
    assert "the call cannot be recorded" in denied
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    home.end_session()

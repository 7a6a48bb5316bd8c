"""Records on their way to other machines, and what heads of logs find there."""

import http.server
import os
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import orjson
import pytest
from msgspec.json import encode
from msgspec.structs import replace

from ironcurtain_proxy.audit.files import head_path, head_text
from ironcurtain_proxy.audit.known_logs import Member
from ironcurtain_proxy.audit.records import GENESIS, seal
from ironcurtain_proxy.audit.shipping import Shipped, Shipper, ShippingError
from ironcurtain_proxy.audit.verify import LogHead, publish, root_of
from ironcurtain_proxy.cli import audit_whole
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_process import machine_id
from tests import program
from tests.e2e.raw_client import at

MACHINE = machine_id()


def record(number: int, **more: Json) -> bytes:
    fields: dict[str, Json] = {
        "timestamp": f"2026-11-28T12:{number // 60 % 60:02}:{number % 60:02}.000Z",
        "requestId": f"r{number}",
        "serverName": "git",
        "toolName": "git_push",
        "arguments": {"branch": "main"},
        "policyDecision": {"status": "allow", "rule": "allow-git", "reason": "x"},
        "result": {"status": "success"},
        "durationMs": 5,
        "session": "s",
        "client": "claude",
        "decidedBy": "kernel",
        **more,
    }
    return orjson.dumps(fields)


ASKED: dict[str, Json] = {
    "policyDecision": {"status": "escalate", "rule": "ask-push", "reason": "x"},
    "escalationResult": "approved",
    "decidedBy": "human",
    "waitedMs": 30_000,
}


class Machine:
    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.log = place / "audit.jsonl"
        self.share = place / "share"
        self.last = GENESIS
        self.count = 0
        self.home.mkdir(parents=True)

    def write(self, number: int, **more: Json) -> None:
        bodies = [record(self.count + n, **more) for n in range(number)]
        self.count += number
        lines, self.last = seal(bodies, self.last)
        with self.log.open("ab") as file:
            file.write(lines)
        head_path(self.log).write_bytes(head_text(self.last, closed=True))

    def rotate(self) -> None:
        number = len([*self.log.parent.glob("audit.jsonl.0*")]) + 1
        self.log.rename(self.log.with_name(f"audit.jsonl.{number:06d}"))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        return program.run([*program.PROXY, *arguments], environment)

    def ship(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        to = () if "--to" in arguments else ("--to", str(self.share / "team"))
        return self.run("audit", "ship", str(self.log), *to, *arguments)

    @property
    def copy(self) -> Path:
        return self.share / "team" / f"{MACHINE}.audit.jsonl.jsonl"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Receiver:
    """A collector over HTTP that takes, refuses, or takes and does not answer."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.status = 200
        self.on_post: Callable[[], object] = lambda: None
        self.said: dict[str, Json] = {}

    @property
    def lines(self) -> list[Json]:
        return [orjson.loads(line) for body in self.bodies for line in body.splitlines()]


@contextmanager
def receiving() -> Iterator[tuple[Receiver, str]]:
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.status < 300:
                receiver.bodies.append(body)
            receiver.on_post()
            self.send_response(receiver.status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(orjson.dumps({"partialSuccess": receiver.said}))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    with http.server.ThreadingHTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver, f"http://localhost:{server.server_address[1]}/in"
        finally:
            server.shutdown()
            thread.join()


def numbers(path: Path) -> list[int]:
    return [orjson.loads(line)["seq"] for line in path.read_bytes().splitlines()]


def test_records_reach_a_directory_once_over_rotations_and_restarts(machine: Machine) -> None:
    machine.write(700)
    assert "sent 700 records" in machine.ship().stdout
    machine.write(3)
    machine.rotate()
    machine.write(2)
    machine.rotate()
    machine.write(1)
    assert "sent 6 records" in machine.ship().stdout
    assert "sent 0 records" in machine.ship().stdout
    assert numbers(machine.copy) == [*range(1, 707)]


def test_what_a_kill_left_of_the_note_and_of_a_line_comes_again_and_not_twice(
    machine: Machine,
) -> None:
    machine.write(10)
    machine.ship()
    note = machine.log.with_name("audit.jsonl.shipped")
    before = note.read_bytes()
    machine.write(5)
    machine.ship()
    # Killed before the note was written, in the middle of the last line.
    note.write_bytes(before)
    machine.copy.write_bytes(machine.copy.read_bytes()[:-40])
    machine.ship()
    assert numbers(machine.copy) == [*range(1, 16)]


@pytest.mark.parametrize("style", ["ocsf", "otlp"])
def test_a_receiver_gets_every_record_though_the_sender_is_killed(
    machine: Machine, style: str
) -> None:
    machine.write(1200)
    with receiving() as (receiver, address):
        environment = {"PATH": os.environ["PATH"], "HOME": str(machine.home)}
        command = ["audit", "ship", str(machine.log), "--to", address, "--format", style]
        with subprocess.Popen(
            [*program.PROXY, *command], env=environment, stdout=subprocess.DEVNULL
        ) as process:
            # It has sent a batch and does not live to see the answer.
            receiver.on_post = lambda: (
                process.send_signal(signal.SIGKILL) if len(receiver.bodies) == 2 else None
            )
        assert process.returncode == -signal.SIGKILL
        receiver.on_post = lambda: None
        assert machine.run(*command).returncode == 0
        found = [seq_of(one, style) for one in _events(receiver, style)]
    assert sorted(set(found)) == [*range(1, 1201)]
    assert len(found) == 1700


def _events(receiver: Receiver, style: str) -> list[Json]:
    if style == "ocsf":
        return receiver.lines
    found: list[Json] = []
    for one in receiver.lines:
        about = at(one, "resourceLogs", 0, "resource", "attributes")
        assert {"key": "host.id", "value": {"stringValue": MACHINE}} in as_list(about)
        found += as_list(at(one, "resourceLogs", 0, "scopeLogs", 0, "logRecords"))
    return found


def as_list(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value


def seq_of(event: Json, style: str) -> int:
    if style == "ocsf":
        return int(str(at(event, "metadata", "uid")).rpartition(":")[2])
    pairs = {at(one, "key"): at(one, "value") for one in as_list(at(event, "attributes"))}
    return int(str(at(pairs["ironcurtain.seq"], "intValue")))


def test_a_receiver_that_refuses_gets_the_records_later(machine: Machine) -> None:
    machine.write(3)
    with receiving() as (receiver, address):
        receiver.status = 503
        refused = machine.ship("--to", address, "--format", "ocsf")
        assert refused.returncode == 1
        assert "refused the records with status 503" in refused.stderr
        receiver.status = 200
        machine.ship("--to", address, "--format", "ocsf")
        assert len(receiver.lines) == 3
    assert machine.ship("--to", "http://collector.example/", "--format", "ocsf").returncode == 2
    assert machine.ship("--to", "http://localhost.example/", "--format", "ocsf").returncode == 2
    assert machine.ship("--to", "relative").returncode == 2


def test_events_are_chained_over_batches_as_record_integrity_has_it(machine: Machine) -> None:
    machine.write(2)
    machine.write(1, decidedBy="grant:g7")
    with receiving() as (receiver, address):
        machine.ship("--to", address, "--format", "ocsf")
        machine.write(2)
        machine.ship("--to", address, "--format", "ocsf")
        events = receiver.lines
    last = ""
    for event in events:
        assert isinstance(event, dict)
        assert event["metadata"]["version"] == "1.9.0"  # type: ignore[index,call-overload]
        attestation = event["attestation"]
        assert isinstance(attestation, dict)
        fingerprint = attestation.pop("fingerprint")
        assert isinstance(fingerprint, dict)
        canonical = orjson.dumps(event, option=orjson.OPT_SORT_KEYS)
        assert fingerprint == {
            "algorithm": "SHA-256",
            "algorithm_id": 3,
            "value": sha256(canonical).hexdigest(),
        }
        previous = attestation.get("prev_event")
        assert (previous["fingerprint"]["value"] if previous else "") == last  # type: ignore[index,call-overload]
        last = str(fingerprint["value"])
    assert events[2]["delegation"]["uid"] == "g7"  # type: ignore[index,call-overload]
    assert "delegation" not in events[1]  # type: ignore[operator]


def test_an_edited_log_is_not_sent_on(machine: Machine) -> None:
    machine.write(5)
    machine.ship()
    machine.log.write_bytes(machine.log.read_bytes().replace(b'"r4"', b'"r9"'))
    machine.write(2)
    done = machine.ship()
    assert done.returncode == 1
    assert "has another record 5 than the one that was sent" in done.stderr
    machine.log.unlink()
    machine.last = GENESIS
    machine.write(9)
    assert "record 5" in machine.ship().stderr


def test_a_line_with_a_high_number_keeps_no_later_record_away(machine: Machine) -> None:
    """Whoever has the user's rights adds it, so that nothing more leaves the machine."""
    machine.write(2)
    with receiving() as (receiver, address):
        to_ocsf = ("--to", address, "--format", "ocsf")
        for destination in ((), to_ocsf):
            machine.ship(*destination)
        with machine.log.open("ab") as file:
            file.write(b'{"seq":9000000000000000000,"prev":""}\n{"seq":1e400}\nnoise\n')
        machine.write(2)
        for destination in ((), to_ocsf):
            assert "sent 3 records" in machine.ship(*destination).stdout
        machine.write(1)
        for destination in ((), to_ocsf):
            assert "sent 1 record" in machine.ship(*destination).stdout
        sent = [seq_of(one, "ocsf") for one in receiver.lines]
    assert sent == numbers(machine.copy) == [1, 2, 9_000_000_000_000_000_000, 3, 4, 5]
    assert machine.run("audit", "verify", str(machine.copy)).returncode == 1


def test_heads_name_what_a_receiver_of_any_format_has_taken(machine: Machine) -> None:
    machine.write(3)
    with receiving() as (_, address):
        machine.ship("--to", address, "--format", "ocsf", "--heads", str(machine.share))
    (line,) = (machine.share / f"{MACHINE}.heads.jsonl").read_bytes().splitlines()
    assert (at(orjson.loads(line), "seq"), machine.count) == (3, 3)


def test_a_log_that_rests_is_not_named_again_each_minute(machine: Machine) -> None:
    shipper = Shipper(machine=MACHINE, style="records", to=machine.share / "team")
    logs = audit_whole.Logs(machine.log, lambda: (Member(machine.log),), machine.home, True)
    told: dict[Path, Shipped] = {}
    for number in (3, 0, 0, 1):
        machine.write(number)
        shipper.ship(machine.log)
        audit_whole._publish(shipper, logs, machine.share, told)
    lines = (machine.share / f"{MACHINE}.heads.jsonl").read_bytes().splitlines()
    assert [at(orjson.loads(line), "seq") for line in lines] == [3, 4]


MOST_SENT = 64 << 20


@pytest.mark.parametrize(
    ("begin", "piece", "taken"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (1 << 20), True),
        (b"HTTP/1.1 200 OK\r\n", b"X: ", False),
        (b"HTTP/1.1 302 Found\r\nLocation: http://localhost:1/\r\n\r\n", b"", False),
    ],
)
def test_a_receiver_that_never_ends_or_leads_away_holds_no_sender(
    monkeypatch: pytest.MonkeyPatch, begin: bytes, piece: bytes, taken: bool
) -> None:
    monkeypatch.setattr(audit_whole, "_ALL_SECONDS", 0.5)
    sent = 0

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            nonlocal sent
            with suppress(OSError):
                self.request.recv(4096)
                self.request.sendall(begin)
                while piece and sent < MOST_SENT:
                    self.request.sendall(piece)
                    sent += len(piece)
                    time.sleep(0.0 if taken else 0.02)

    with socketserver.ThreadingTCPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            post = audit_whole._poster(f"http://localhost:{server.server_address[1]}/")
            if taken:
                post(b"{}", "application/json")
            else:
                with pytest.raises(ShippingError):
                    post(b"{}", "application/json")
        finally:
            server.shutdown()
            thread.join()
    assert sent < MOST_SENT


# --- heads ----------------------------------------------------------------------------------------


def edited(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"r2"', b'"r9"'))


def cut(log: Path) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-2]))


def reordered(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]))


def rewritten(log: Path) -> None:
    """By somebody who can compute the whole chain, and its head file, anew."""
    lines, last = seal([record(n, client="innocent") for n in range(8)], GENESIS)
    log.write_bytes(lines)
    head_path(log).write_bytes(head_text(last, closed=True))


@pytest.mark.parametrize("change", [edited, cut, reordered, rewritten])
@pytest.mark.parametrize("where", ["machine", "copy"])
def test_published_heads_find_a_log_that_was_changed(
    machine: Machine, change: object, where: str
) -> None:
    for _ in range(2):
        machine.write(4)
        machine.ship("--heads", str(machine.share))
    published = machine.share / f"{MACHINE}.heads.jsonl"
    assert len(published.read_bytes().splitlines()) == 2
    log = machine.log if where == "machine" else machine.copy
    heads = ("--heads", str(machine.share))
    fine = machine.run("audit", "verify", str(log), *heads)
    assert fine.returncode == 0, fine.stdout
    assert callable(change)
    change(log)
    found = machine.run("audit", "verify", str(log), *heads)
    assert found.returncode == 1
    assert "PROBLEM" in found.stdout
    if change is rewritten:
        assert "has another record 8 than the head that was published" in found.stdout
        # A full disk cut the last line off, and there was room again a minute later.
        published.write_bytes(published.read_bytes()[:-40])
        machine.ship("--heads", str(machine.share))
        torn = machine.run("audit", "verify", str(log), *heads).stdout
        assert "line 2, cannot be read" in torn
        assert "has another record 4 than the head" in torn


def keep(share: Path, heads: list[LogHead]) -> None:
    """Let these heads alone be published, each machine's in its own file."""
    for old in share.glob("*.heads.jsonl"):
        old.unlink()
    for one in heads:
        publish(share / f"{one.machine}.heads.jsonl", one)


def test_the_signed_root_of_an_hour_finds_heads_that_somebody_dropped(machine: Machine) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)  # noqa: TID251
    machine.write(4)
    heads = [
        LogHead(machine=name, log="audit.jsonl", seq=4, digest="0" * 64, at=hour)
        for name in ("m1", "m2", "m3")
    ]
    machine.share.mkdir()
    keep(machine.share, heads)
    for name in ("ci", "eve"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(machine.share / name)],
            check=True,
        )
    assert (
        "signed 1 root"
        in machine.run(
            "audit", "root", str(machine.share), "--key", str(machine.share / "ci")
        ).stdout
    )
    assert (
        "signed 0 roots"
        in machine.run(
            "audit", "root", str(machine.share), "--key", str(machine.share / "ci")
        ).stdout
    )

    def verify(key: str) -> subprocess.CompletedProcess[str]:
        by = ("--heads", str(machine.share), "--root-key", str(machine.share / f"{key}.pub"))
        return machine.run("audit", "verify", str(machine.log), *by)

    assert verify("ci").returncode == 0
    assert "is not signed by a key that counts" in verify("eve").stdout
    for wrong in (heads[1:], heads[:2], [*heads[:2], replace(heads[2], seq=5)]):
        keep(machine.share, wrong)
        assert "some were changed, added or dropped" in verify("ci").stdout
    # A root of other heads does not count by a signature that stands in another line.
    roots = machine.share / "roots.jsonl"
    signed = roots.read_bytes()
    forged = orjson.loads(signed)
    forged["root"] = orjson.loads(encode(root_of([replace(heads[0], seq=5)], hour)))
    keep(machine.share, [replace(heads[0], seq=5)])
    roots.write_bytes(orjson.dumps(forged) + b"\n" + signed + b'{"torn')
    told = verify("ci").stdout
    assert "is not signed by a key that counts" in told
    assert "line 3, cannot be read" in told
    # Without the root of an hour nothing would show that its heads were changed.
    earlier = replace(heads[0], seq=3, at=hour - timedelta(hours=1))
    keep(machine.share, [*heads, earlier])
    roots.write_bytes(signed)
    assert "have no root: it was removed" in verify("ci").stdout


def test_heads_of_a_clock_that_is_behind_are_told_apart_from_changed_ones_and_signed_later(
    machine: Machine,
) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)  # noqa: TID251
    machine.write(4)
    machine.share.mkdir()
    key = machine.share / "ci"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(argv, check=True)

    def head(name: str, seq: int, minute: int) -> LogHead:
        at = hour + timedelta(minutes=minute)
        return LogHead(machine=name, log="audit.jsonl", seq=seq, digest=f"{seq}" * 64, at=at)

    def verify() -> subprocess.CompletedProcess[str]:
        by = ("--heads", str(machine.share), "--root-key", f"{key}.pub")
        return machine.run("audit", "verify", str(machine.log), *by)

    first = [head("m1", 1, 10), head("m2", 1, 10)]
    late = [head("m1", 2, 5), head("m3", 7, 5)]
    keep(machine.share, first)
    assert (
        "signed 1 root"
        in machine.run("audit", "root", str(machine.share), "--key", str(key)).stdout
    )
    keep(machine.share, [*first, *late])
    told = verify()
    assert told.returncode == 1
    assert "the clock of 'm1, m3' is behind, or was set back" in told.stdout
    assert "changed, added or dropped" not in told.stdout
    # What was changed is not taken for late, whatever came besides, and is not signed again.
    keep(machine.share, [first[0], head("m2", 2, 10), *late])
    assert "changed, added or dropped" in verify().stdout
    assert (
        "signed 0 roots"
        in machine.run("audit", "root", str(machine.share), "--key", str(key)).stdout
    )
    keep(machine.share, [*first, *late])
    assert (
        "signed 1 root"
        in machine.run("audit", "root", str(machine.share), "--key", str(key)).stdout
    )
    assert verify().returncode == 0
    keep(machine.share, [*first, late[0]])
    assert "changed, added or dropped" in verify().stdout


# --- the report -----------------------------------------------------------------------------------


def test_questions_and_minutes_are_counted_by_rule_team_and_machine(machine: Machine) -> None:
    machine.write(90)
    machine.write(10, **ASKED)
    # Somebody answered after an hour: nobody has looked at it for an hour.
    machine.write(1, **{**ASKED, "waitedMs": 3_600_000})
    machine.ship("--heads", str(machine.share))
    other = machine.share / "web" / "m2.audit.jsonl.jsonl"
    other.parent.mkdir()
    lines, _ = seal([record(n) for n in range(99)], GENESIS)
    high = b'{"seq":9000000000,"phase":"intent"}\n'
    other.write_bytes(high + lines + lines[:400])
    done = machine.run("report", "--fleet", str(machine.share), "--json")
    found = orjson.loads(done.stdout)
    rules = {one["name"]: one for one in found["rules"]}
    assert rules["ask-push"]["questions"] == 11
    assert rules["ask-push"]["minutes"] == 7.0
    assert rules["ask-push"]["per100"] == 100
    teams = {one["name"]: (one["calls"], one["per100"]) for one in found["teams"]}
    assert teams == {"team": (101, 10.89), "web": (99, 0)}
    machines = {one["name"]: one["calls"] for one in found["machines"]}
    assert machines == {MACHINE: 101, "m2": 99}
    shown = machine.run("report", "--fleet", str(machine.share)).stdout
    assert shown.startswith("200 calls, 11 questions")
    assert machine.run("report", "--fleet", str(machine.home)).returncode == 2

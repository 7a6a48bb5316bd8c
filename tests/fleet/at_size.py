"""A fleet at its size: many machines, two pages, kills of both and of PostgreSQL, forged answers.

    python -m tests.fleet.at_size [--proxies 20] [--mailboxes 480] [--rounds 2] [--desk-kills 20]
                                  [--database-kills 5] [--forged 10000] [--waiting 100]

Real: PostgreSQL, its kills, both pages with HTTP and a login at a provider, relays as programs, the
questions and signatures of passkeys, and so many proxies, with servers, agents and logs. The other
machines are mailboxes of the product, with its check of signatures, in programs of fifty; what they
were approved they write down, after an intent, instead of calling a server.
"""

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
import orjson
import psycopg
from msgspec.structs import replace

from ironcurtain_proxy.mailbox.messages import signed_response_bytes
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.model.escalation import Approved, Escalation
from ironcurtain_proxy.model.signing import ReviewerKey, Signatories, SignedAnswer
from ironcurtain_proxy.own_process import RandomIds, SystemClock, machine_id
from ironcurtain_proxy.signing import is_signed, passkey
from tests.auto_confirm.store.postgres import Server, a_server
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient
from tests.fakes import NO_TLS
from tests.fleet.conftest import Machine
from tests.fleet.pages import Pages, opened, person
from tests.program import PROXY, ROOT
from tests.questions import a_question
from tests.signed_answers import SoftPasskey

_FIFTY = 50
_SECONDS = 1800.0


@dataclass
class Size:
    proxies: int = 20
    mailboxes: int = 480
    rounds: int = 2
    desk_kills: int = 20
    database_kills: int = 5
    forged: int = 10_000
    waiting: int = 100


@dataclass
class Figures:
    """What came of it. The first four have to be 0."""

    lost: int = 0
    twice: int = 0
    without_intent: int = 0
    believed: int = 0
    answered: int = 0
    forged: int = 0
    seconds: float = 0
    latencies: list[float] = field(default_factory=list)

    def told(self) -> str:
        found = sorted(self.latencies)
        at = f"{found[len(found) // 2]:.3f} / {found[int(len(found) * 0.99)]:.3f}" if found else "-"
        return (
            f"{self.answered} answered in {self.seconds:.0f} s; {self.lost} lost, {self.twice} "
            f"twice, {self.without_intent} without intent; {self.forged} forged, {self.believed} "
            f"believed; answer to call, median / p99: {at} s"
        )


# --- mailboxes without a server -------------------------------------------------------------------


class _Asked:
    """Asks a mailbox alone."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def ask(self, escalation: Escalation, _on_wait: object = None) -> object:
        return await self._mailbox.ask(escalation)


async def _machine(place: Path, rounds: int, key: ReviewerKey, log: int) -> None:
    clock, ids = SystemClock(), RandomIds()
    known = Signatories(keys={key.id: key})
    judge = SignedAnswers(
        clock=clock, signatories=lambda: known, verify=is_signed, machine=machine_id()
    )
    settings = MailboxSettings(directory=place, assume_listener=True, signed=judge)
    mailbox = Mailbox(settings, clock)
    async with anyio.create_task_group() as tasks:
        await tasks.start(mailbox.run)
        for _ in range(rounds):
            now = clock.steady()
            question = replace(
                a_question({"path": f"/{place.name}"}),
                id=ids.new_escalation(),
                created=now,
                deadline=now + timedelta(seconds=_SECONDS),
            )
            ruling = await judge.ask(_Asked(mailbox), question)  # type: ignore[arg-type]
            at = time.monotonic()
            if isinstance(ruling, Approved):
                os.write(log, f"intent {question.id} {at}\nran {question.id} {at}\n".encode())
            else:
                os.write(log, f"refused {question.id} {at} {ruling}\n".encode())
        tasks.cancel_scope.cancel()


async def _machines(places: list[Path], rounds: int, line: str, log: Path) -> None:
    # The first answer of a process costs the import of its library besides.
    import webauthn  # noqa: F401, PLC0415

    named = passkey(line)
    assert named is not None
    key = ReviewerKey(
        id=named.fingerprint, public=named.raw, origin=named.origin, person="ada", risk="critical"
    )
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with anyio.create_task_group() as tasks:
        for place in places:
            tasks.start_soon(_machine, place, rounds, key, descriptor)


# --- persons --------------------------------------------------------------------------------------


class Persons:
    """Answer at either page by HTTP, and go on when it is gone."""

    def __init__(self, pages: Pages, key: dict[str, str], passkey: SoftPasskey) -> None:
        self._pages = pages
        self._key = {**key, "Host": urlsplit(pages.origin).netloc}
        self._passkey = passkey
        self._lock = threading.Lock()
        self.waiting: dict[str, dict[str, object]] = {}
        self.sent: dict[str, float] = {}
        """When the answer that counted was handed over, by the question."""
        self.tried: set[str] = set()
        self.ended = threading.Event()

    def follow(self, port: int) -> None:
        """Read the questions of one page, until all is over."""
        address = f"http://127.0.0.1:{port}/api/questions"
        while not self.ended.is_set():
            known: dict[str, dict[str, object]] = {}
            with (
                suppress(httpx.HTTPError, orjson.JSONDecodeError),
                httpx.stream(
                    "GET", address, headers=self._key, timeout=15, verify=NO_TLS
                ) as answer,
            ):
                for text in answer.iter_lines() if answer.status_code == 200 else ():
                    said = orjson.loads(text)
                    gone = said.get("gone", known)
                    known = {name: one for name, one in known.items() if name not in gone}
                    known |= {one["id"]: one for one in said["questions"]}
                    self.waiting = known
                    if self.ended.is_set():
                        return
            self.ended.wait(0.2)

    def answer(self, one: dict[str, object], port: int) -> bool:
        """Sign the answer to a question. Return whether the page took it."""
        address = f"http://127.0.0.1:{port}/api/answers"
        fields = {"id": one["id"], "digest": one["digest"], "approve": True, "note": ""}
        with suppress(httpx.HTTPError, orjson.JSONDecodeError, KeyError):
            asked = httpx.post(address, json=fields, headers=self._key, timeout=15, verify=NO_TLS)
            text = str(asked.json()["sign"]["challenge"])
            with self._lock:
                self._passkey.counter = -1  # many authenticators do not count
                response = self._passkey.asserts_text(text)
            at = time.monotonic()
            self.tried.add(str(one["id"]))
            said = {**fields, "passkey": response}
            done = httpx.post(address, json=said, headers=self._key, timeout=15, verify=NO_TLS)
            if done.is_success:
                self.sent[str(one["id"])] = at
                return True
        return False

    def work(self) -> None:
        """Answer what waits, in any order, again where no page took it."""
        while not self.ended.is_set():
            left = [one for name, one in list(self.waiting.items()) if name not in self.sent]
            if not left:
                self.ended.wait(0.05)
                continue
            self.answer(secrets.choice(left), secrets.choice(self._pages.ports))


# --- the run --------------------------------------------------------------------------------------


class Fleet:
    """The machines, and what they have done."""

    def __init__(self, place: Path, server: Server, line: str, stack: ExitStack) -> None:
        self.place = place
        self._server = server
        self._line = line
        self._stack = stack
        self.log = place / "ran.log"
        self.real: list[Installation] = []

    def add_mailboxes(self, count: int, rounds: int, name: str) -> None:
        """Start so many machines without servers, and their relays."""
        places = [self.place / f"{name}-{number}" for number in range(count)]
        for number in range(0, count, _FIFTY):
            some = places[number : number + _FIFTY]
            for one in some:
                one.mkdir(mode=0o700)
            argv = [sys.executable, "-m", "tests.fleet.at_size", "--as-machines", str(rounds)]
            argv += [self._line, str(self.log), *map(str, some)]
            self._started(argv)
            named = [word for one in some for word in ("--dir", str(one))]
            self._started([*PROXY, "relay", "--database", self._server.url, *named])

    def _started(self, argv: list[str]) -> None:
        with (self.place / "errors.log").open("ab") as errors:
            running = subprocess.Popen(
                argv, stdout=subprocess.DEVNULL, stderr=errors, cwd=ROOT,
                env={**os.environ, "HOME": str(self.place)},
            )  # fmt: skip
        self._stack.callback(running.wait)
        self._stack.callback(running.kill)

    def add_proxies(self, count: int, rounds: int) -> list[threading.Thread]:
        """Start so many real proxies and relays; return the threads of their agents."""
        threads = []
        for number in range(count):
            built = Installation(self.place / f"real-{number}")
            machine = Machine(built, self._server.url)
            state = built.home / ".ironcurtain"
            state.mkdir(mode=0o700, exist_ok=True)
            ada = {"person": "ada", "key": self._line, "risk": "critical"}
            (state / "reviewers.json").write_bytes(orjson.dumps({"reviewers": [ada]}))
            built.variables["ESCALATION_MODE"] = "wait"
            built.variables["ESCALATION_TIMEOUT_SECONDS"] = "1800"
            agent = built.start()
            machine.relay()
            self._stack.callback(built.end)
            self._stack.callback(machine.end)
            self.real.append(built)

            def calls(agent: RawClient = agent, number: int = number) -> None:
                for turn in range(rounds):
                    text = f"/srv/{number}-{turn}"
                    started = agent.start_call("ask", {"text": text})
                    while not any(one.get("id") == started for one in agent.arrived):
                        agent.wait(0.5)

            threads.append(threading.Thread(target=calls, daemon=True))
            threads[-1].start()
        return threads

    def lines(self, word: str) -> list[tuple[str, float]]:
        """What the machines without servers wrote: the question, and when."""
        found = self.log.read_text().splitlines() if self.log.exists() else []
        parts = [one.split() for one in found]
        return [(one[1], float(one[2])) for one in parts if one[0] == word]


def _until(found: Callable[[], object], what: str, seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def _forge(url: str, count: int) -> int:
    """Write answers that nobody signed for the open questions, and words of nobody."""
    stranger = SoftPasskey("http://localhost:1")
    with psycopg.connect(url, autocommit=True) as connection:
        asked = connection.execute(
            b"SELECT id::text, digest, request FROM ironcurtain_questions WHERE is_open"
        ).fetchall()
        true = connection.execute(b"SELECT body FROM ironcurtain_answers LIMIT 20").fetchall()
        rows = []
        for number in range(count if asked else 0):
            name, digest, request = asked[number % len(asked)]
            about = orjson.loads(request)
            answer = SignedAnswer(
                key=stranger.passkey.fingerprint, approved=True, question=name, digest=digest,
                policy_version=about["policyVersion"], machine=about["machine"],
            )  # fmt: skip
            body = signed_response_bytes(stranger.signs(answer))
            replayed = orjson.loads(true[number % len(true)][0]) if true else orjson.loads(body)
            kinds = (
                body,
                signed_response_bytes(answer),
                orjson.dumps({**replayed, "escalationId": name, "requestDigest": digest}),
                orjson.dumps(replayed),
                orjson.dumps({**replayed, "note": "x"}),
                orjson.dumps({"decision": "approved", "requestDigest": digest}),
                os.urandom(40),
            )
            rows.append((name, f"{number}-{os.urandom(8).hex()}", kinds[number % len(kinds)]))
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO ironcurtain_answers (question, hash, body) VALUES (%s, %s, %s)", rows
            )
    return len(rows)


def _disturb(size: Size, pages: Pages, server: Server, ended: threading.Event) -> None:
    for number in range(size.desk_kills):
        ended.wait(1)
        place = number % len(pages.copies)
        pages.copies[place].kill()
        pages.copies[place].wait()
        if number * size.database_kills // size.desk_kills != (
            (number + 1) * size.database_kills // size.desk_kills
        ):
            server.crash()
            ended.wait(0.5)
            server.start()
        pages.copies[place] = pages.start(pages.ports[place])


@contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fleet-", dir="/tmp") as found:
        yield Path(found)


def run(size: Size) -> Figures:
    """Run a fleet of a size, and count."""
    figures = Figures()
    with _place() as place, a_server("max_connections=400") as server, ExitStack() as stack:
        pages = Pages(server.url, place, stack)
        with person() as browser:
            key = opened(browser, pages)
        own = SoftPasskey(pages.origin)
        persons = Persons(pages, key, own)
        stack.callback(persons.ended.set)
        fleet = Fleet(place, server, own.passkey.line, stack)
        for port in pages.ports:
            threading.Thread(target=persons.follow, args=(port,), daemon=True).start()
        if size.waiting:
            _measure(size, fleet, persons, figures)
        begun = time.monotonic()
        before = len(persons.sent)
        fleet.add_mailboxes(size.mailboxes, size.rounds, "mailbox")
        agents = fleet.add_proxies(size.proxies, size.rounds)
        _until(lambda: len(persons.waiting) >= (size.mailboxes + size.proxies) // 2, "none asked")
        figures.forged += _forge(server.url, size.forged)
        workers = [threading.Thread(target=persons.work, daemon=True) for _ in range(8)]
        disturbing = threading.Thread(
            target=_disturb, args=(size, pages, server, persons.ended), daemon=True
        )
        for one in (*workers, disturbing):
            one.start()
        whole = size.mailboxes * size.rounds + size.waiting
        disturbing.join(600)
        _until(lambda: len(fleet.lines("ran")) >= whole, f"lost: {len(fleet.lines('ran'))}")
        for one in agents:
            one.join(600)
        persons.ended.set()
        figures.seconds = time.monotonic() - begun
        figures.answered = len(persons.sent) - before
        _count(size, fleet, persons, figures)
    return figures


def _measure(size: Size, fleet: Fleet, persons: Persons, figures: Figures) -> None:
    """Answer calls one after another while so many wait."""
    fleet.add_mailboxes(size.waiting, 1, "waiting")
    _until(lambda: len(persons.waiting) >= size.waiting, "too few wait")
    for number, one in enumerate(list(persons.waiting.values())):
        port = persons._pages.ports[number % 2]
        while not persons.answer(one, port):
            time.sleep(0.1)
    _until(lambda: len(fleet.lines("ran")) >= size.waiting, "an answer was lost")
    for name, at in fleet.lines("ran"):
        figures.latencies.append(at - persons.sent[name])


def _count(size: Size, fleet: Fleet, persons: Persons, figures: Figures) -> None:
    ran, intents = fleet.lines("ran"), {name for name, _ in fleet.lines("intent")}
    names = Counter([name for name, _ in ran])
    figures.lost = size.mailboxes * size.rounds + size.waiting - len(names)
    figures.twice = sum(count - 1 for count in names.values())
    figures.without_intent = sum(name not in intents for name in names)
    for one in fleet.real:
        received = Counter([str(call.get("arguments")) for call in one.received()])
        meant = [
            str(record.get("arguments")) for record in one.records()
            if record.get("phase") == "intent"
        ]  # fmt: skip
        figures.lost += size.rounds - len(received)
        figures.twice += sum(count - 1 for count in received.values())
        figures.without_intent += sum(name not in meant for name in received)
        # A call whose deadline has passed is lost, and nobody was believed.
        approved = [each for each in one.outcomes() if each.get("escalationResult") == "approved"]
        by = [str(record.get("decidedBy")) for record in approved]
        figures.believed += sum(not name.startswith("signed:") for name in by)
    # A machine that was approved although nobody has answered has believed somebody else.
    figures.believed += sum(name not in persons.tried for name in names)


def main() -> int:
    """Run by hand, or as a program of machines."""
    if sys.argv[1:2] == ["--as-machines"]:
        rounds, line, log, *places = sys.argv[2:]
        anyio.run(_machines, [Path(one) for one in places], int(rounds), line, Path(log))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Size()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    figures = run(Size(**vars(parser.parse_args())))
    sys.stdout.write(f"{figures.told()}\n")
    return int(bool(figures.lost + figures.twice + figures.without_intent + figures.believed))


if __name__ == "__main__":
    sys.exit(main())

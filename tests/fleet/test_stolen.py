"""What one or two stolen things approve: what `docs/teams.md` says of them, and nothing more."""

import shutil
import socketserver
import ssl
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from itertools import combinations
from socket import SHUT_WR, create_connection, socket

import orjson
import psycopg
import pytest
from msgspec.structs import replace
from tuf.api.metadata import Metadata, Root, Targets

from ironcurtain_proxy.bundle import repository
from ironcurtain_proxy.fleet.database import FleetDatabase
from ironcurtain_proxy.mailbox.messages import signed_response_bytes
from ironcurtain_proxy.model.signing import SignedAnswer
from ironcurtain_proxy.signing import KeyFile, base64_of, challenge_of, lines_of
from tests import program
from tests.bundle.fleet import Fleet, key, now
from tests.bundle.test_running import ENROLLED, tls
from tests.downstream.remote.test_tls import a_certificate
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.raw_client import Message, RawClient
from tests.fleet.conftest import Machine
from tests.fleet.pages import Pages, logged_in_at, person
from tests.fleet.test_relay import rows
from tests.program import PROXY, ROOT, wait_until
from tests.signed_answers import SoftPasskey

KEY, PAGE, DATABASE, BUNDLE = "a person's key", "the page", "the database", "a key for bundles"
MACHINE, LOGIN = "the machine's key for bundles", "a login"
PROVIDER, TLS = "the provider of logins", "the TLS proxy"
THINGS = (KEY, PAGE, DATABASE, BUNDLE, MACHINE, LOGIN, PROVIDER, TLS)
DECEIVED = "and bob signs on that page"
CASES = [frozenset(one) for count in (1, 2) for one in combinations(THINGS, count)] + [
    frozenset({*one, DECEIVED}) for one in ((PAGE,), (TLS,), (KEY, PAGE), (KEY, TLS))
]
RULES: dict[str, Message] = {
    "one": {"quorum": 1},
    "two": {"quorum": 2},
    "gravest": {"quorum": 1, "signers": ["by-command"]},
}


def opens(stolen: frozenset[str]) -> set[str]:
    """What `docs/teams.md` says, "What two stolen things open"."""
    found = set()
    if DECEIVED in stolen or (KEY in stolen and stolen & {PAGE, DATABASE, LOGIN, PROVIDER, TLS}):
        found.add("one")
    if KEY in stolen and stolen & {PAGE, DATABASE}:
        found.add("gravest")  # an answer by a key of SSH does not pass the page
    if stolen > {KEY, DECEIVED}:
        found.add("two")
    return found


class Terminator(socketserver.ThreadingTCPServer):
    """The TLS proxy before the page. Whoever holds it reads what passes."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.port = 0
        super().__init__(("localhost", 0), _Passing)


class _Passing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        front = self.server
        assert isinstance(front, Terminator)
        with (
            suppress(OSError),
            create_connection(("127.0.0.1", front.port)) as page,
            ThreadPoolExecutor(1) as back,
        ):
            back.submit(_pass, page, self.request, [])
            _pass(self.request, page, front.read)


def _pass(source: socket, target: socket, read: list[bytes]) -> None:
    with suppress(OSError):
        while part := source.recv(1 << 16):
            read.append(part)
            target.sendall(part)
        target.shutdown(SHUT_WR)


class Parts:
    """All parts of a fleet, started once, and the thieves' hands on them."""

    def __init__(self, installation: Installation, url: str, stack: ExitStack) -> None:
        self.url, self.place = url, installation.root
        self.fleet = Fleet(self.place)
        self.fleet.begin()
        self.fleet.update()
        self.machine = Machine(installation, url)
        stack.callback(self.machine.end)
        front = Terminator()
        certificate = a_certificate(self.place, "localhost")
        port = stack.enter_context(tls(front, certificate))
        self.pages = Pages(url, self.place, stack, f"https://localhost:{port}")
        front.port = self.pages.ports[0]
        context = ssl.create_default_context(cafile=certificate)
        self.browser = stack.enter_context(person(context))
        self.ada, self.bob = key(), key()
        self.phones = {name: SoftPasskey(self.pages.origin) for name in ("ada", "bob")}
        self.agent = self._starts(installation)
        self.words = {LOGIN: self.logs_in("eve"), PROVIDER: self.logs_in("ada")}
        victim = self.logs_in("bob")
        # It passes the page and the TLS proxy at each request of bob's.
        assert any(victim.encode() in part for part in front.read)
        self.words |= {PAGE: victim, TLS: victim, DATABASE: self.writes_a_login()}
        self.database = FleetDatabase(url)
        stack.callback(self.database.close)

    def _starts(self, installation: Installation) -> RawClient:
        tools = [tool(name, text={"type": "string"}) for name in RULES]
        installation.servers.clear()
        installation.add_scripted(
            "scripted", {name: {"text": ["write-path"]} for name in RULES}, tools=tools
        )
        installation.rules = [
            {**rule(name, "escalate", "a person must agree", tool=[name]), **demands}
            for name, demands in RULES.items()
        ]
        installation.command = ENROLLED
        installation.variables |= {
            "ENROLLED_IN": str(self.fleet.managed), "PYTHONPATH": str(ROOT),
            "ESCALATION_MODE": "wait", "ESCALATION_TIMEOUT_SECONDS": "900",
        }  # fmt: skip
        lines = {"ada": self.ada, "bob": self.bob}
        reviewers = [
            {"person": name, "risk": "critical", **entry}
            for name, one in lines.items()
            for entry in (
                {"key": line_of(one), "roles": ["by-command"]},
                {"key": self.phones[name].passkey.line},
            )
        ]
        (installation.home / ".ironcurtain").mkdir(mode=0o700)
        file = installation.home / ".ironcurtain/reviewers.json"
        file.write_bytes(orjson.dumps({"reviewers": reviewers}))
        self.machine.relay()
        return installation.start()

    def logs_in(self, name: str) -> str:
        """Log in, as who has an account does, and as who holds the provider can as anybody."""
        self.browser.cookies.clear()
        address = logged_in_at(self.browser, f"{self.pages.origin}/", self.pages.origin, name)
        ticket = {"ticket": address.partition("#")[2]}
        word = self.browser.post(f"{self.pages.origin}/api/page", json=ticket).json()["key"]
        assert self.says(word, "/api/answers", {}) == 409
        return str(word)

    def writes_a_login(self) -> str:
        """Write the row of a login, as who holds the database can."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_LOGIN, (sha256(b"x" * 43).hexdigest(),))
        assert self.says("x" * 43, "/api/answers", {}) == 409
        return "x" * 43

    def says(self, word: str, path: str, fields: dict[str, object]) -> int:
        """Send a request to the page. Return its status."""
        key = {"Authorization": f"Bearer {word}"}
        return self.browser.post(self.pages.origin + path, json=fields, headers=key).status_code

    def bodies(self, stolen: frozenset[str], asked: SignedAnswer) -> Iterator[bytes]:
        """Yield what thieves write into the database for a question."""
        stranger, phone = key(), SoftPasskey(self.pages.origin)
        yield orjson.dumps({"decision": "approved", "requestDigest": asked.digest})
        yield signed_response_bytes(replace(asked, key=self.ada.key, signature=bytes(64)))
        keys = [stranger, *([self.fleet.ada] if BUNDLE in stolen else [])]
        for one in (*keys, *([self.fleet.ci] if MACHINE in stolen else [])):
            mark = one._private.sign(lines_of(replace(asked, key=self.ada.key)))
            yield signed_response_bytes(replace(asked, key=self.ada.key, signature=mark))
            yield signed_response_bytes(replace(asked, key=one.key, signature=one.sign(asked)))
        strange = replace(phone.signs(asked), key=self.phones["ada"].passkey.fingerprint)
        yield signed_response_bytes(strange)
        if KEY in stolen:
            mark = self.ada.sign(replace(asked, key=self.ada.key))
            yield signed_response_bytes(replace(asked, key=self.ada.key, signature=mark))

    def assertions(self, stolen: frozenset[str], asked: SignedAnswer) -> Iterator[object]:
        """Yield what thieves send to the page as the answer of a passkey."""
        challenge = challenge_of(asked)
        for name, is_real in (("ada", KEY in stolen), ("bob", DECEIVED in stolen)):
            own = self.phones[name]
            phone = own if is_real else SoftPasskey(self.pages.origin)
            credential = base64_of(own.passkey.credential)
            yield {"id": credential, "response": phone.asserts(challenge)}

    def publishes(self, stolen: frozenset[str]) -> None:
        """Put a wider policy on the host, with the keys for bundles that were stolen."""
        one, own = self.fleet, [key(), key()]
        metadata, files = one.directory / "metadata", one.place / "wide"
        files.mkdir(exist_ok=True)
        (files / "policy.yaml").write_text("allow scripted: '*'\n")
        reviewers = {"reviewers": [{"person": "ada", "key": line_of(own[0]), "risk": "critical"}]}
        (files / "reviewers.json").write_bytes(orjson.dumps(reviewers))
        keys = [*own, *([one.ada] if BUNDLE in stolen else [])]
        version = one.repository.propose(files, now())
        pending = one.directory / "pending"
        targets = Metadata[Targets].from_bytes((pending / "targets.json").read_bytes())
        for each in keys:
            targets.sign(repository._Signer(each), append=True)
        (metadata / f"{version}.targets.json").write_bytes(targets.to_bytes())
        digest = targets.signed.targets["bundle.tar"].hashes["sha256"]
        shutil.copy(pending / "bundle.tar", one.directory / f"targets/{digest}.bundle.tar")
        if MACHINE in stolen:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(repository, "_missing", lambda *_: 0)
                one.sign_time()
        self.updates("too few" if MACHINE in stolen else "")
        one.repository.begin([each.public for each in keys[-2:]], key().public, now())
        root = Metadata[Root].from_bytes((pending / "root.json").read_bytes())
        for each in keys:
            root.sign(repository._Signer(each), append=True)
        (metadata / "2.root.json").write_bytes(root.to_bytes())
        self.updates("too few")
        (metadata / "2.root.json").unlink()

    def updates(self, why: str) -> None:
        """Let the machine fetch its bundle, which must stay as it is."""
        before = self.fleet.bundle()
        argv = [*PROXY, "bundle", "update", "--managed", str(self.fleet.managed)]
        done = program.run(argv, {"PATH": "/usr/bin", "HOME": str(self.place)})
        assert why in done.stderr, done.stderr
        found = self.fleet.bundle()
        assert (found.current.version, found.current.sha256) == (
            before.current.version, before.current.sha256,
        )  # fmt: skip

    def attack(self, stolen: frozenset[str], asked: SignedAnswer) -> None:
        """Do to a question all that thieves can."""
        if stolen & {PAGE, DATABASE}:
            with psycopg.connect(self.url, autocommit=True) as connection:
                for body in self.bodies(stolen, asked):
                    given = (asked.question, sha256(body).hexdigest(), body)
                    connection.execute(_FORGED, given)
        about = {"id": asked.question, "digest": asked.digest, "approve": True, "note": ""}
        for word in {self.words[one] for one in stolen if one in self.words}:
            for passkey in self.assertions(stolen, asked):
                self.says(word, "/api/answers", {**about, "passkey": passkey})


_LOGIN = """INSERT INTO ironcurtain_logins (word, kind, said, ends)
    VALUES (%s, 'page', '{"id": "ada", "name": "ada"}', now() + interval '1 day')"""
_FORGED = "INSERT INTO ironcurtain_answers (question, hash, body) VALUES (%s, %s, %s)"
_ASKED = "SELECT request FROM ironcurtain_questions WHERE is_open"
_UNSEEN = """SELECT FROM ironcurtain_answers a JOIN ironcurtain_questions q ON q.id = a.question
    WHERE q.is_open AND a.outcome IS NULL"""


def line_of(one: KeyFile) -> str:
    return "ssh-ed25519 " + b64encode(one.public.blob).decode()


def asked_of(found: list[tuple[object, ...]]) -> dict[tuple[frozenset[str], str], SignedAnswer]:
    """Return what is to be signed for each question, by its case and its tool."""
    questions = {}
    for (raw,) in found:
        assert isinstance(raw, bytes)
        about = orjson.loads(raw)
        number = int(about["arguments"]["text"].rpartition("/")[2])
        questions[CASES[number], about["toolName"]] = SignedAnswer(
            key="", approved=True, question=about["escalationId"],
            digest=sha256(raw).hexdigest(), policy_version=about["policyVersion"],
            machine=about["machine"],
        )  # fmt: skip
    return questions


def test_no_two_stolen_things_approve_more_than_is_said(
    installation: Installation, postgres_url: str
) -> None:
    pytest.importorskip("joserfc", reason="the extra desk is not installed: scripts/setup")
    if not (ROOT / "node_modules/oidc-provider").is_dir():
        pytest.skip("oidc-provider is not installed: npm ci")
    with ExitStack() as stack:
        parts = Parts(installation, postgres_url, stack)
        calls = {
            (case, name): parts.agent.start_call(name, {"text": f"/srv/{number}"})
            for number, case in enumerate(CASES)
            for name in RULES
        }
        wait_until(lambda: len(rows(postgres_url, _ASKED)) == len(calls), "not all questions came")
        questions = asked_of(rows(postgres_url, _ASKED))
        for case in CASES:
            if case & {BUNDLE, MACHINE}:
                parts.publishes(case)
        with ThreadPoolExecutor(8) as thieves:
            for done in [
                thieves.submit(parts.attack, case, one) for (case, _), one in questions.items()
            ]:
                done.result()
        wait_until(lambda: rows(postgres_url, _UNSEEN) == [], "the machine has not looked at all")
        for one in questions.values():
            no = replace(one, approved=False, key=parts.bob.key)
            no = replace(no, signature=parts.bob.sign(no))
            parts.database.put_answer(one.question, signed_response_bytes(no))
        found: dict[frozenset[str], set[str]] = {case: set() for case in CASES}
        for (case, name), call in calls.items():
            if "isError" not in parts.agent.result(call):
                found[case].add(name)
        assert found == {case: opens(case) for case in CASES}
        assert len(installation.received()) == sum(map(len, found.values()))

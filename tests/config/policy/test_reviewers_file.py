"""`reviewers.json`: all mistakes at once, and a running proxy that reads it again."""

from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.policy_file import PolicyReader
from ironcurtain_proxy.config.policy.reviewers_file import (
    ReviewersFile,
    check_quorums,
    read_reviewers,
)
from ironcurtain_proxy.config.policy.short_form import ShortReader
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.signing import NO_SIGNATORIES, Quorum, Signatories
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.signing import KeyFile, PublicKey
from ironcurtain_proxy.wiring.reviewers import SignatoriesInForce, signed_answers
from tests.config.files import said
from tests.fakes import FakeClock
from tests.signed_answers import SoftPasskey

if TYPE_CHECKING:
    from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy

HOME = Path("/home/ada")


def a_key(number: int) -> PublicKey:
    return KeyFile(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)).public


def a_line(number: int) -> str:
    blob = a_key(number).blob
    return f"ssh-ed25519 {b64encode(blob).decode()} somebody"


def entry(number: int = 1, **changed: Json) -> dict[str, Json]:
    return {"person": f"p{number}", "key": a_line(number), "risk": "high", **changed}


def read(path: Path, document: Json) -> tuple[Signatories | None, str]:
    path.write_bytes(orjson.dumps(document))
    report = Report()
    return read_reviewers(path, HOME, report), "\n".join(said(report))


def test_what_a_key_may_approve_is_read(tmp_path: Path) -> None:
    one = entry(servers=["git"], paths=["~/work"], roles=["lead"], validUntil="2027-06-30")
    found, problems = read(tmp_path / "f", {"reviewers": [one]})
    assert problems == ""
    assert found is not None
    (key,) = found.keys.values()
    assert found.quorum == 1
    assert key.id == a_key(1).fingerprint
    assert [str(path) for path in key.paths or ()] == ["/home/ada/work"]
    assert key.until == datetime(2027, 6, 30, tzinfo=UTC)


MISTAKES: dict[str, Json] = {
    "$.reviewers[0].risk": {"reviewers": [entry(risk="huge")]},
    "$.reviewers[0].key": {"reviewers": [entry(key="ssh-rsa AAAA")]},
    "$.reviewers[0].validUntil": {"reviewers": [entry(validUntil="soon")]},
    "$.reviewers[0].servers": {"reviewers": [entry(servers=[])]},
    "$.reviewers[0].paths[1]": {"reviewers": [entry(paths=["/a", "b"])]},
    "$.reviewers[0].person": {"reviewers": [entry(person="a+b")]},
    "$.reviewers[0].role": {"reviewers": [entry(role=["lead"])]},
    "$.reviewers[1].key": {"reviewers": [entry(), entry(key=a_line(1), person="b")]},
    "$.quorum": {"quorum": 2, "reviewers": [entry(), entry(2, person="p1")]},
    "$.revoked[0]": {"reviewers": [entry()], "revoked": ["ada"]},
    "$.quorum: ": {"quorum": 2, "reviewers": [entry(), entry(2, person="P1")]},
    "$.reviewers[0].accounts": {"reviewers": [entry(accounts=["P2"]), entry(2, person="p2")]},
    "$.reviewers[0].accounts:": {
        "reviewers": [entry(accounts=["\uff30\uff12"]), entry(2, person="p2")]
    },
    # Another key under the number of a passkey would take its place.
    "$.reviewers[1].key:": {
        "reviewers": [
            entry(number, key=replace(SoftPasskey().passkey, credential=b"n" * 16).line)
            for number in range(2)
        ]
    },
}


@pytest.mark.parametrize("place", MISTAKES)
def test_a_mistake_is_reported_at_its_place_and_lets_nobody_approve(
    place: str, tmp_path: Path
) -> None:
    found, problems = read(tmp_path / "f", MISTAKES[place])
    assert found is None
    assert place in problems


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    wrong = entry(risk="huge", key="x", validUntil="soon", servers=[])
    _, problems = read(tmp_path / "f", {"reviewers": [wrong], "quorum": 99})
    for place in ("[0].risk", "[0].key", "[0].validUntil", "[0].servers", "$.quorum"):
        assert place in problems


def test_a_file_that_is_broken_or_removed_while_it_is_used_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "reviewers.json"
    file = ReviewersFile(path=path, home=HOME)
    assert file.now() == NO_SIGNATORIES
    path.write_bytes(orjson.dumps({"quorum": 0, "reviewers": [entry()]}))
    assert file.now().quorum == 0
    path.write_bytes(b"{")
    assert (len(file.now().keys), file.now().quorum) == (0, 1)
    path.write_bytes(orjson.dumps({"reviewers": [entry(), entry(2)]}))
    assert len(file.now().keys) == 2
    path.unlink()
    assert (len(file.now().keys), file.now().quorum) == (0, 1)


def test_a_link_that_leads_nowhere_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "reviewers.json"
    path.symlink_to(tmp_path / "a share that is away" / "reviewers.json")
    assert (ReviewersFile(path=path, home=HOME).now().quorum, in_force(path)().quorum) == (1, 1)


def test_a_file_that_is_removed_before_the_first_question_lets_nobody_approve(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reviewers.json"
    path.write_bytes(orjson.dumps({"reviewers": [entry()]}))
    path.chmod(0o600)
    judge = signed_answers(in_force(path), FakeClock(), {})
    path.unlink()
    assert (len(judge.signatories().keys), judge.signatories().quorum) == (0, 1)


def in_force(path: Path) -> SignatoriesInForce:
    files = SimpleNamespace(reviewers=path, managed=None)
    return SignatoriesInForce(cast("LoadedPolicy", SimpleNamespace(files=files)), path.parent)


def test_a_file_that_others_can_change_lets_nobody_approve(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()
    path.chmod(0o664)
    found, problems = read(path, {"reviewers": [entry()]})
    assert found is None
    assert "can be changed by others" in problems


SHORT: dict[str, tuple[str, str]] = {
    "a number": ("quorum: 2", ""),
    "a role": ("quorum: 2\n    signers: security", ""),
    "none": ("quorum: 0", "must be a number of persons"),
    "a word": ("quorum: two", "must be a number of persons"),
    "roles alone": ("signers: security", "needs quorum"),
}


@pytest.mark.parametrize("kind", SHORT)
def test_a_rule_in_short_says_how_many_must_sign(kind: str) -> None:
    text, problem = SHORT[kind]
    report = Report()
    reader = ShortReader(reader=PolicyReader(home=HOME, report=report))
    found = reader.read_bytes(f"ask git:\n  - tools: push\n    {text}\n".encode(), "policy.yaml")
    if problem:
        assert problem in "\n".join(said(report))
        return
    assert said(report) == []
    assert found is not None
    (rule,) = found.rules
    roles = frozenset({"security"}) if "signers" in text else frozenset[str]()
    assert rule.quorum == Quorum(2, roles)
    check_quorums(found.rules, NO_SIGNATORIES, report)
    assert "nobody could approve its calls" in "\n".join(said(report))


def test_only_a_rule_that_asks_can_demand_signatures() -> None:
    report = Report()
    reader = ShortReader(reader=PolicyReader(home=HOME, report=report))
    reader.read_bytes(b"deny git:\n  - tools: push\n    quorum: 2\n", "policy.yaml")
    assert "is for ask" in "\n".join(said(report))

"""`reviewers`: two commands that change the file at once."""

import base64
from argparse import Namespace
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from ironcurtain_proxy.cli import fleet
from ironcurtain_proxy.config.policy.reviewers_file import ReviewersFile
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.signing import KeyFile, read_public_key
from tests.signed_answers import SoftPasskey


def _options(place: Path, person: str, number: int) -> Namespace:
    key = KeyFile(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)).public
    line = place / f"{person}.pub"
    line.write_text(f"ssh-ed25519 {base64.b64encode(key.blob).decode()} {person}\n")
    words: dict[str, Json] = {
        "role": [],
        "server": [],
        "path": [],
        "account": [],
        "until": None,
        "quorum": None,
    }
    return Namespace(action="add", person=person, key=line, risk="high", **words)


def test_a_reviewer_added_beside_another_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(fleet, "_LOCK_SECONDS", 0.0)
    added, first = fleet._added, _options(tmp_path, "ada", 1)
    second, told = _options(tmp_path, "grace", 2), []

    def between(document: dict[str, Json], options: Namespace) -> str:
        # The first has read the file, and has not written it.
        monkeypatch.setattr(fleet, "_added", added)
        with pytest.raises(ConfigurationError, match="another command is changing it"):
            fleet.run_reviewers(second)
        told.append(added(document, options))
        return told[0]

    monkeypatch.setattr(fleet, "_added", between)
    assert fleet.run_reviewers(first) == 0
    assert told
    assert fleet.run_reviewers(second) == 0
    (path,) = tmp_path.rglob("reviewers.json")
    assert [one["person"] for one in orjson.loads(path.read_bytes())["reviewers"]] == [
        "ada",
        "grace",
    ]


def test_a_key_that_nobody_has_is_not_revoked_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    options = _options(tmp_path, "ada", 1)
    assert fleet.run_reviewers(options) == 0
    key = read_public_key(options.key).fingerprint
    for one, is_known in ((key, True), (f"{key[:-1]}{'A' if key[-1] != 'A' else 'E'}", False)):
        assert fleet.run_reviewers(Namespace(action="revoke", fingerprint=one)) == 0
        told = capsys.readouterr().out
        assert ("is it right?" in told) is not is_known


def test_a_revoked_passkey_does_not_come_back_under_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = SoftPasskey().passkey
    options = _options(tmp_path, "ada", 1)
    options.key.write_text(key.line)
    assert fleet.run_reviewers(options) == 0
    assert fleet.run_reviewers(Namespace(action="revoke", fingerprint=key.fingerprint)) == 0
    (path,) = tmp_path.rglob("reviewers.json")
    document = orjson.loads(path.read_bytes())
    document["reviewers"][0]["key"] = replace(key, credential=b"another number").line
    path.write_bytes(orjson.dumps(document))
    known = ReviewersFile(path=path, home=tmp_path).now()
    (one,) = known.keys.values()
    assert known.has_revoked(one)


def test_a_link_that_leads_nowhere_is_not_listed_as_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / ".ironcurtain"
    place.mkdir(mode=0o700)
    (place / "reviewers.json").symlink_to(tmp_path / "away" / "reviewers.json")
    assert fleet.run_reviewers(Namespace(action="list", json=False)) == 1
    assert "may approve it" not in capsys.readouterr().out

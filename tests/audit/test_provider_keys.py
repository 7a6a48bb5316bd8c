"""Keys of providers do not reach the log, wherever they stand; names and digests do."""

import random
import re
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha1, sha256
from typing import Final
from uuid import UUID

import orjson
import pytest

from ironcurtain_proxy.audit import secrets
from ironcurtain_proxy.audit.bounding import shape_arguments, shape_text
from ironcurtain_proxy.audit.commands import TELLING_ENDINGS, TELLING_NAMES
from ironcurtain_proxy.audit.redaction import is_suspicious, redact_text
from tests.audit.provider_specimens import SHAPES, generate
from tests.tables import table

SURROUNDINGS: Final = table("audit/redaction.surroundings", tuple[str, ...])
_WINDOW: Final = 13
"""As many characters of a key in a row are more than its ends and less than a guess."""


def _shown(secret: str, text: str) -> list[str]:
    """What of the random parts of a secret can still be read."""
    random_part = secret[6:-4]
    pieces = (random_part[i : i + _WINDOW] for i in range(len(random_part) - _WINDOW + 1))
    return [piece for piece in pieces if piece in text]


def _secret_part(key: str) -> str:
    for start in ("https://hooks.slack.com/services/", "AccountName=x;AccountKey="):
        key = key.removeprefix(start)
    return key.partition("&sig=")[2] or key


@pytest.mark.requirement("C-38", "C-39", "C-40")
@pytest.mark.parametrize("provider", SHAPES)
def test_a_key_of_each_provider_is_masked_wherever_it_stands(provider: str) -> None:
    source = random.Random(provider)  # noqa: S311  test data
    for around in SURROUNDINGS:
        for _ in range(5):
            key = generate(SHAPES[provider], source)
            text = around.format(key)
            written = shape_arguments({"command": text}, redaction=True).raw.decode()
            assert not _shown(_secret_part(key), orjson.loads(written)["command"]), text


@pytest.mark.parametrize("provider", SHAPES)
def test_a_key_as_the_name_of_a_property_or_in_a_message_is_masked(provider: str) -> None:
    key = generate(SHAPES[provider], random.Random(provider))  # noqa: S311  test data
    raw = shape_arguments({"a": [{f"x {key}": 1}]}, redaction=True).raw.decode()
    assert not _shown(_secret_part(key), raw)
    assert not _shown(_secret_part(key), shape_text(f"it said: {key}", redaction=True))


@pytest.mark.parametrize("provider", SHAPES)
def test_redacting_a_key_twice_changes_nothing_more(provider: str) -> None:
    source = random.Random(provider)  # noqa: S311  test data
    for around in SURROUNDINGS:
        once = redact_text(around.format(generate(SHAPES[provider], source)))
        assert redact_text(once) == once


NAMED: Final = (
    *("cookie", "Cookie", "Set-Cookie", "session_id", "sessionId"),
    *("PHPSESSID", "otp", "totp", "passcode", "mnemonic"),
    *("auth", "_auth", "dsn", "SENTRY_DSN", "jwt"),
    *("pin", "cvv", "AccountKey", "SharedAccessKey", "signing_key"),
    *("ENCRYPTION_KEY", "master-key", "connection_string", "webhook_url", "recovery_codes"),
    *("seed_phrase", "dbPass", "csrf", "creds", "verification_code"),
    *("licenseKey", "auth_code"),
)


@pytest.mark.parametrize("name", NAMED)
def test_a_value_under_a_name_that_says_so_is_masked(name: str) -> None:
    raw = shape_arguments({"options": {name: "hunter2"}}, redaction=True).raw
    assert orjson.loads(raw) == {"options": {name: "[redacted]"}}


def test_the_quick_look_knows_every_name_that_says_so() -> None:
    for name in (*TELLING_ENDINGS, *TELLING_NAMES):
        assert is_suspicious(orjson.dumps({name: "hunter2"})), name


_WORDS: Final = "legal winner thank year wave sausage worth useful legal winner thank yellow"
IN_TEXT: Final = {
    "Cookie: a=hunter2; b=hunter2; c": "hunter2",
    "curl -H 'Cookie: sid=hunter2; theme=hunter2' https://x": "hunter2",
    "Set-Cookie: id=hunter2; HttpOnly": "hunter2",
    "session_id=hunter2": "hunter2",
    "otp: 482913": "482913",
    "passcode=4711": "4711",
    "SENTRY_DSN=abc1def": "abc1def",
    f'mnemonic: "{_WORDS}"': "sausage",
    f"my seed phrase is {_WORDS}, ok?": "sausage",
    "//registry.npmjs.org/:_auth=aHVudGVyMg": "aHVudGVyMg",
    "https://discord.com/api/webhooks/1234567890/abc_DEF-ghi": "abc_DEF",
    "https://x/cb?code=4%2F0AbUR2VMeHxU1a2b3c4&state=x": "0AbUR2",
    "https://maps.example/json?key=abcdef0123456789abcdef": "abcdef0123",
    "https://s3.example/o?X-Amz-Signature=0123456789abcdef0123456789abcdef": "0123456789abcdef",
    "Authorization: SSWS 00abcdef": "00abcdef",
}


@pytest.mark.parametrize("text", IN_TEXT)
def test_what_a_text_gives_to_such_a_name_is_masked(text: str) -> None:
    assert is_suspicious(orjson.dumps(text))
    assert IN_TEXT[text] not in redact_text(text)


_SOURCE: Final = random.Random(11)  # noqa: S311  test data
_IMAGE: Final = b"\x89PNG\r\n\x1a\n" + _SOURCE.randbytes(4000)
HARMLESS: Final = {
    "a git SHA": sha1(b"x").hexdigest(),  # noqa: S324  as git does
    "a digest with its name": f"sha256:{sha256(b'x').hexdigest()}",
    "a digest in a name": f"commit-{sha1(b'y').hexdigest()}.patch",  # noqa: S324  as git does
    "an image": f"data:image/png;base64,{b64encode(_IMAGE).decode()}",
    "a lock file": f'"integrity": "sha512-{b64encode(_SOURCE.randbytes(64)).decode()}"',
    "a UUID": "75b32e3b-1234-4678-9012-123456789012",
    "a path": "/home/me/project/tests/approval/test_auto_confirm_session_settings_file.py",
    "a path with ids": "/srv/builds/2026-11-22T10-30-00Z/artifact-0123456789/index.html",
    "a package": "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
    "a class": "AbstractSingletonProxyFactoryBeanConfigurationTestCaseWithMocks2",
    "a kebab": "api-gateway-service-deployment-configuration-for-production-v2",
    "a constant": "ERROR_MAXIMUM_NUMBER_OF_CONNECTIONS_REACHED_FOR_USER_SESSION",
    "a branch": "feature/re_export_all_the_things_from_index_module_2026",
    "a Stripe id": "pi_3MtwBwLkdIwHu7ix28a3tqPa",
    "a message id": "msg_01XFDUDYJgAACzvnptvVoYEL",
    "a document": "https://docs.google.com/document/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2up",
    "a URL with a query": "https://host/search?query=how-to-write-good-tests&page=2&order=desc",
    "an author": "author: Joe, authors=3, authority: x",
    "code": "s.getConfigurationForProject(x); self.secret_manager_configuration_for_tests",
    "a secret's name": "secret-manager-configuration-for-the-staging-environment-v2",
    "a word": "footprint, helicopter, spinning, description, cookies are nice",
    "a key in code": "for key in mapping: print(key == other)",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_key_comes_through_unharmed(name: str) -> None:
    text = HARMLESS[name]
    assert redact_text(text) == text


def test_random_digests_ids_and_images_are_never_taken_for_a_key() -> None:
    source = random.Random(5)  # noqa: S311  test data
    for _ in range(400):
        blob = source.randbytes(300)
        texts = (
            sha1(blob).hexdigest(),  # noqa: S324  as git does
            sha256(blob).hexdigest(),
            str(UUID(bytes=blob[:16])),
            b64encode(blob).decode(),
            f"/objects/{blob.hex()[:2]}/{blob.hex()[2:40]}",
            urlsafe_b64encode(blob[:24]).decode(),
        )
        for text in texts:
            assert secrets.redact_keys(text) == text


# --- linear time ---------------------------------------------------------------------------------

_UNITS: Final = table("audit/provider_keys.units", tuple[str, ...])


class _Counted:
    """A regular expression that notes how far its searches and matches went."""

    def __init__(self, expression: re.Pattern[str]) -> None:
        self._expression = expression
        self.looked = 0

    def search(self, text: str, at: int = 0, end: int | None = None) -> re.Match[str] | None:
        stop = len(text) if end is None else end
        found = self._expression.search(text, at, stop)
        self.looked += (found.end() if found else stop) - at
        return found


@pytest.mark.parametrize("unit", _UNITS)
def test_no_part_of_a_hostile_text_is_looked_at_more_than_a_few_times(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters searched grow as the text does: twice the text, at most about twice the work."""
    work: list[int] = []
    for size in (20_000, 40_000):
        counted = [
            _Counted(secrets._STARTS),
            _Counted(secrets._SHAPES),
            _Counted(secrets._LONG_PIECE),
        ]
        monkeypatch.setattr(secrets, "_STARTS", counted[0])
        monkeypatch.setattr(secrets, "_SHAPES", counted[1])
        monkeypatch.setattr(secrets, "_LONG_PIECE", counted[2])
        secrets.redact_keys(unit * (size // len(unit)))
        monkeypatch.undo()
        work.append(sum(one.looked for one in counted))
    assert work[1] <= 2.2 * work[0] + 1000

"""Nobody logs in by a token that the provider did not give to this login at this page."""

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import httpx
import orjson
import pytest

pytest.importorskip("joserfc", reason="the extra desk is not installed: scripts/setup")

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from ironcurtain_proxy.fleet.desk import LoginError, LoginProvider, Logins, Words
from ironcurtain_proxy.mailbox.mailboxes import utc_now
from ironcurtain_proxy.signing.passkeys import text_of

ISSUER, CLIENT = "https://login.example.com", "page"
KEY = ECKey.generate_key("P-256", {"kid": "one"})
OTHER = ECKey.generate_key("P-256", {"kid": "one"})
PUBLIC = KeySet([KEY]).as_dict(private=False)


TIMES = ("exp", "iat", "nbf")


class Kept(Words):
    """Words in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], dict[str, str]] = {}

    def give(self, kind: str, said: Mapping[str, str], seconds: int) -> str:
        word = f"{kind}-{len(self.kept)}-{seconds}"
        self.kept[kind, word] = dict(said)
        return word

    def take(self, kind: str, word: str) -> dict[str, str] | None:
        return self.kept.pop((kind, word), None)


class Provider:
    """Gives tokens as a test wants them."""

    def __init__(self) -> None:
        self.token = ""
        self.keys: object = PUBLIC
        self.logins = Logins(Kept(), LoginProvider(
            issuer=ISSUER, client=CLIENT, secret="s",  # noqa: S106  nobody's
            callback="https://page.example.com/callback"
        ))  # fmt: skip
        self.logins._client = httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"id_token": self.token})
        if request.url.path == "/keys":
            return httpx.Response(200, json=self.keys)
        found = {
            "issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/login",
            "token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/keys",
        }  # fmt: skip
        return httpx.Response(200, json=found)

    def logs_in(
        self, change: Mapping[str, object], header: Mapping[str, object] | None = None,
        key: ECKey | bytes = KEY,
    ) -> str:  # fmt: skip
        """Log in with a token of changed claims. `None` leaves one out; a time is from now."""
        address, browser = self.logins.begin()
        asked = parse_qs(urlsplit(address).query)
        now = int(utc_now().timestamp())
        claims = {
            "iss": ISSUER, "aud": CLIENT, "sub": "ada", "nonce": asked["nonce"][0],
            "exp": 60, "iat": 0, **change,
        }  # fmt: skip
        for name in TIMES:
            if isinstance(one := claims.get(name), int):
                claims[name] = now + one
        said = {name: value for name, value in claims.items() if value is not None}
        how = {"alg": "ES256", "kid": "one", **(header or {})}
        if isinstance(key, bytes):
            plain = ".".join([text_of(orjson.dumps(one)) for one in (how, said)])
            mark = hmac.digest(key, plain.encode(), "sha256") if key else b""
            self.token = f"{plain}.{text_of(mark)}"
        else:
            self.token = jwt.encode(how, said, key)
        return self.logins.end(asked["state"][0], "code", browser)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"aud": [CLIENT]},
        {"aud": ["another", CLIENT], "azp": CLIENT},
        {"iat": 90, "nbf": 90},
        {"exp": -90},
    ],
    ids=["plain", "a list", "several", "a clock behind", "a clock ahead"],
)
def test_a_token_of_this_login_counts_also_where_clocks_differ_a_little(
    change: dict[str, object],
) -> None:
    provider = Provider()
    key = provider.logins.open_page(provider.logs_in(change))
    assert key is not None
    assert provider.logins._words.take("page", key) == {"person": "ada"}


REFUSED: dict[str, dict[str, object]] = {
    "another audience": {"aud": "another"},
    "other audiences": {"aud": ["another", "third"]},
    "no audience": {"aud": None},
    "given to another": {"aud": ["another", CLIENT], "azp": "another"},
    "another issuer": {"iss": f"{ISSUER}/"},
    "another login": {"nonce": "of an earlier login"},
    "no login": {"nonce": None},
    "ended": {"exp": -600},
    "without end": {"exp": None},
    "an end in words": {"exp": "tomorrow"},
    "of tomorrow": {"iat": 3600},
    "not yet": {"nbf": 3600},
    "nobody": {"sub": None},
    "an empty name": {"sub": ""},
    "a name that is a number": {"sub": 7},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_token_that_says_something_else_is_refused(kind: str) -> None:
    with pytest.raises(LoginError, match="does not confirm"):
        Provider().logs_in(REFUSED[kind])


FORGED: dict[str, tuple[dict[str, object], ECKey | bytes]] = {
    "signed by nobody": ({"alg": "none"}, b""),
    "signed with the public key as a password": (
        {"alg": "HS256"},
        KEY.as_pem(private=False),
    ),
    "another key under its name": ({}, OTHER),
    "another name": ({"kid": "two"}, OTHER),
    "a path in the name": ({"kid": "../../dev/null"}, OTHER),
    "a key of its own": ({"kid": "two", "jwk": OTHER.as_dict(private=False)}, OTHER),
    "an address of keys": ({"kid": "two", "jku": "https://evil.example.com/keys"}, OTHER),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_token_that_the_provider_did_not_sign_is_refused(kind: str) -> None:
    header, key = FORGED[kind]
    with pytest.raises(LoginError, match="does not confirm"):
        Provider().logs_in({}, header, key)


@pytest.mark.parametrize("keys", [[], "x", None, {}, {"keys": 5}, {"keys": [{"kty": "RSA"}]}])
def test_keys_that_cannot_be_read_let_nobody_in(keys: object) -> None:
    provider = Provider()
    provider.keys = keys
    with pytest.raises(LoginError, match="does not confirm"):
        provider.logs_in({})


def test_a_login_ends_once_and_in_its_own_browser() -> None:
    provider = Provider()
    ticket = provider.logs_in({})
    assert provider.logins.open_page(ticket)
    assert provider.logins.open_page(ticket) is None
    address, _ = provider.logins.begin()
    state = parse_qs(urlsplit(address).query)["state"][0]
    for _ in range(2):
        with pytest.raises(LoginError, match="not begun in this browser"):
            provider.logins.end(state, "code", "another browser")

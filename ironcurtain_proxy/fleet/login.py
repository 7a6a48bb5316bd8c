"""Who may see the questions: a login by OpenID Connect, kept in the database for all copies.

The code flow with PKCE, as RFC 9700 has it. The database holds the digest of each word that a
browser shows, never the word: whoever reads it cannot open a page. A login lets a person see; only
a key lets a person approve.
"""

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

import httpx
import orjson
import sqlalchemy as sa
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.fleet.database import FleetDatabase

_TICKET_SECONDS: Final = 60
_LOGIN_SECONDS: Final = 600
_PAGE_SECONDS: Final = 8 * 3600
_SECONDS: Final = 10.0
_ALGORITHMS: Final = ["RS256", "PS256", "ES256", "Ed25519", "EdDSA"]
_MOST_NAME: Final = 128


class LoginError(IronCurtainError):
    """A login that is refused; the message is for the person who tries."""


class Words:
    """Random words with an end, of which the database keeps the digests."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def give(self, kind: str, said: Mapping[str, str], seconds: int) -> str:
        """Return a new word that stands for what is said, for some seconds."""
        word = secrets.token_urlsafe(32)
        given = {
            "word": _digest(word),
            "kind": kind,
            "said": orjson.dumps(said).decode(),
            "seconds": seconds,
        }

        def write(connection: sa.Connection) -> None:
            connection.exec_driver_sql("DELETE FROM ironcurtain_logins WHERE ends < now()")
            connection.execute(_GIVE, given)

        self._database.run(write)
        return word

    def take(self, kind: str, word: str) -> dict[str, str] | None:
        """Return what a word stands for, once, or None if it stands for nothing."""
        return self._said(_TAKE, kind, word)

    def said(self, kind: str, word: str) -> dict[str, str] | None:
        """Return what a word stands for, or None."""
        return self._said(_READ, kind, word)

    def _said(self, statement: sa.TextClause, kind: str, word: str) -> dict[str, str] | None:
        given = {"kind": kind, "word": _digest(word)}
        found = self._database.run(lambda one: one.execute(statement, given).scalar())
        return dict(found) if isinstance(found, dict) else None


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()


_GIVE: Final = sa.text("""INSERT INTO ironcurtain_logins (word, kind, said, ends)
    VALUES (:word, :kind, CAST(:said AS jsonb), now() + make_interval(secs => :seconds))""")
_TAKE: Final = sa.text("""DELETE FROM ironcurtain_logins
    WHERE word = :word AND kind = :kind AND ends > now() RETURNING said""")
_READ: Final = sa.text("""SELECT said FROM ironcurtain_logins
    WHERE word = :word AND kind = :kind AND ends > now()""")


class LoginProvider(Struct, frozen=True, kw_only=True):
    """The provider, and what it knows this page by."""

    issuer: str
    client: str
    secret: str
    callback: str


class Logins:
    """The logins of persons to a page. Its calls block."""

    def __init__(self, words: Words, provider: LoginProvider) -> None:
        address = urlsplit(provider.issuer)
        is_here = address.scheme == "http" and address.hostname in {"localhost", "127.0.0.1"}
        if not is_here and (address.scheme != "https" or not address.hostname):
            raise ConfigurationError("--issuer must begin with https://")
        self._words = words
        self._provider = provider
        self._client = httpx.Client(timeout=_SECONDS, follow_redirects=False)
        self._found: Mapping[str, object] | None = None

    @property
    def is_by_tls(self) -> bool:
        """Whether browsers reach the page by TLS."""
        return self._provider.callback.startswith("https:")

    def begin(self) -> tuple[str, str]:
        """Return the provider's address for a login, and a word that only this browser keeps.

        Raises:
            LoginError: the provider cannot be reached.
        """
        verifier, nonce, browser = (secrets.token_urlsafe(32) for _ in range(3))
        said = {"verifier": verifier, "nonce": nonce, "browser": _digest(browser)}
        state = self._words.give("login", said, _LOGIN_SECONDS)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        asked = {
            "response_type": "code",
            "scope": "openid",
            "client_id": self._provider.client,
            "redirect_uri": self._provider.callback,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{self._address('authorization_endpoint')}?{urlencode(asked)}", browser

    def end(self, state: str, code: str, browser: str) -> str:
        """Return a ticket that opens the page once.

        Raises:
            LoginError: the login was begun elsewhere, or the provider does not confirm it.
        """
        said = self._words.take("login", state)
        if said is None or not secrets.compare_digest(said["browser"], _digest(browser)):
            raise LoginError("this login was not begun in this browser, or too long ago")
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._provider.callback,
            "code_verifier": said["verifier"],
        }
        try:
            answer = self._client.post(
                self._address("token_endpoint"),
                data=given,
                auth=(self._provider.client, self._provider.secret),
            )
            token = answer.json().get("id_token", "") if answer.is_success else ""
        except (httpx.HTTPError, ValueError, AttributeError):
            token = ""
        person = self._person(token, said["nonce"])
        return self._words.give("ticket", {"person": person}, _TICKET_SECONDS)

    def open_page(self, ticket: str) -> str | None:
        """Exchange a ticket for the key of a page, or return None if it is not valid."""
        said = self._words.take("ticket", ticket)
        return None if said is None else self._words.give("page", said, _PAGE_SECONDS)

    def person(self, key: str) -> str | None:
        """Return who opened the page with a key, or None if it is none."""
        said = self._words.said("page", key)
        return None if said is None else said.get("person", "")

    def _person(self, token: object, nonce: str) -> str:
        registry = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self._provider.issuer},
            aud={"essential": True, "value": self._provider.client},
            nonce={"essential": True, "value": nonce},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            keys = KeySet.import_key_set(self._client.get(self._address("jwks_uri")).json())
            claims = jwt.decode(str(token), keys, algorithms=_ALGORITHMS).claims
            registry.validate(claims)
        except (JoseError, httpx.HTTPError, ValueError, KeyError, TypeError):
            raise LoginError("the provider does not confirm this login: try again") from None
        return str(claims["sub"])[:_MOST_NAME]

    def _address(self, name: str) -> str:
        """Return one of the provider's addresses, as it publishes them."""
        if self._found is None:
            base = self._provider.issuer.rstrip("/")
            try:
                found = self._client.get(f"{base}/.well-known/openid-configuration").json()
            except (httpx.HTTPError, ValueError):
                raise LoginError("the login's provider cannot be reached: try again") from None
            if not isinstance(found, dict) or found.get("issuer") != self._provider.issuer:
                raise LoginError("the login's provider says that it is another one")
            self._found = found
        said = self._found.get(name)
        if not isinstance(said, str):
            raise LoginError("the login's provider does not say where to log in")
        return said

"""Logins to the page of all machines by OpenID Connect, and what each may see.

The code flow with PKCE, as RFC 9700 has it. The database keeps logins for all copies of the page:
the digest of each word that a browser shows, never the word, so that whoever reads it cannot open
a page. The provider's groups see the machines of some names. A login lets a person see; only a key
lets a person approve.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_plus, urlsplit

import httpx
import sqlalchemy as sa
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct, ValidationError, convert
from msgspec.json import encode

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.fleet.database import FleetDatabase
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.signing import base64_of

_TICKET_SECONDS: Final = 60
LOGIN_SECONDS: Final = 600
_PAGE_SECONDS: Final = 8 * 3600
_PROVIDER_SECONDS: Final = 10.0
_CLOCK_SECONDS: Final = 120
"""How far the clocks of a provider and of a page may differ."""
_ALGORITHMS: Final = ["RS256", "PS256", "ES256", "Ed25519", "EdDSA"]
_MOST_NAME: Final = 128
_MOST_WORDS: Final = 16
"""The most logins of one person at a time; a further one ends the oldest."""
_ALL: Final = "*"


class LoginError(IronCurtainError):
    """A login that is refused; the message is for the person who tries."""


class Account(Struct, frozen=True, kw_only=True):
    """What the provider says of a person."""

    id: str
    name: str
    """The name that the page shows to this person."""
    groups: tuple[str, ...] = ()


class Words:
    """Random words with an end that stand for persons. The database keeps their digests.

    Nobody has a row before the provider has confirmed who it is, so strangers fill no disk.
    """

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def give(self, kind: str, who: Account, seconds: int) -> str:
        """Return a new word that stands for a person, for some seconds."""
        word = secrets.token_urlsafe(32)
        given = {"kind": kind, "id": who.id, "said": encode(who).decode(), "seconds": seconds}

        def write(connection: sa.Connection) -> None:
            connection.execute(_FORGET, given)
            connection.execute(_GIVE, {"word": digest_of(word), **given})

        self._database.run(write)
        return word

    def take(self, kind: str, word: str) -> Account | None:
        """Return whom a word stands for, once, or None if it stands for nobody."""
        return self._said(_TAKE, kind, word)

    def said(self, kind: str, word: str) -> Account | None:
        """Return whom a word stands for, or None."""
        return self._said(_READ, kind, word)

    def pages(self) -> set[str]:
        """Return the digests of all words that open a page now."""
        return self._database.run(lambda one: set(one.execute(_PAGES).scalars()))

    def _said(self, statement: sa.TextClause, kind: str, word: str) -> Account | None:
        given = {"kind": kind, "word": digest_of(word)}
        found = self._database.run(lambda one: one.execute(statement, given).scalar())
        try:
            return convert(found, Account)
        except ValidationError:  # nobody, or a row of another version
            return None


def digest_of(word: str) -> str:
    """Return what the database keeps of a word."""
    return hashlib.sha256(word.encode("utf-8", "replace")).hexdigest()


_FORGET: Final = sa.text(f"""DELETE FROM ironcurtain_logins WHERE ends < now() OR word IN (
    SELECT word FROM ironcurtain_logins WHERE kind = :kind AND said->>'id' = :id
    ORDER BY ends DESC OFFSET {_MOST_WORDS - 1})""")  # noqa: S608  a number
_GIVE: Final = sa.text("""INSERT INTO ironcurtain_logins (word, kind, said, ends)
    VALUES (:word, :kind, CAST(:said AS jsonb), now() + make_interval(secs => :seconds))""")
_TAKE: Final = sa.text("""DELETE FROM ironcurtain_logins
    WHERE word = :word AND kind = :kind AND ends > now() RETURNING said""")
_READ: Final = sa.text("""SELECT said FROM ironcurtain_logins
    WHERE word = :word AND kind = :kind AND ends > now()""")
_PAGES: Final = sa.text("""SELECT word::text FROM ironcurtain_logins
    WHERE kind = 'page' AND ends > now()""")


class LoginProvider(Struct, frozen=True, kw_only=True):
    """The provider, what it knows this page by, and what its groups may see."""

    issuer: str
    client: str
    secret: str
    callback: str
    scope: str = "openid"
    claim: str = "groups"
    """The claim that holds a person's groups."""
    sees: tuple[tuple[str, str], ...] = ()
    """`("pay-*", "payments")`: a pattern of machines' names, and the group that sees them. Empty:
    everybody whom the provider lets in sees all machines."""


class Logins:
    """The logins of persons to a page. Its calls block."""

    def __init__(self, words: Words, provider: LoginProvider) -> None:
        address = urlsplit(provider.issuer)
        is_here = address.scheme == "http" and address.hostname in {"localhost", "127.0.0.1"}
        if not is_here and (address.scheme != "https" or not address.hostname):
            raise ConfigurationError("--issuer must begin with https://")
        self._words = words
        self._provider = provider
        self._client = httpx.Client(timeout=_PROVIDER_SECONDS, follow_redirects=False)
        self._found: Mapping[str, object] | None = None
        self.pages = words.pages

    def begin(self) -> tuple[str, str]:
        """Return the provider's address for a login, and a word that only this browser keeps.

        State, nonce and verifier are made of that word: a login that nobody ends leaves nothing.

        Raises:
            LoginError: the provider cannot be reached.
        """
        browser = secrets.token_urlsafe(32)
        challenge = hashlib.sha256(_part("verifier", browser).encode()).digest()
        asked = {
            "response_type": "code",
            "scope": self._provider.scope,
            "client_id": self._provider.client,
            "redirect_uri": self._provider.callback,
            "state": _part("state", browser),
            "nonce": _part("nonce", browser),
            "code_challenge": base64_of(challenge),
            "code_challenge_method": "S256",
        }
        return _with(self._address("authorization_endpoint"), asked), browser

    def end(self, state: str, code: str, browser: str) -> str:
        """Return a ticket that opens the page once.

        Raises:
            LoginError: the login was begun elsewhere, the provider does not confirm it, or the
                person is in no group that sees anything.
        """
        if not browser or not secrets.compare_digest(
            digest_of(state), digest_of(_part("state", browser))
        ):
            raise LoginError("this login was not begun in this browser, or too long ago")
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._provider.callback,
            "code_verifier": _part("verifier", browser),
        }
        try:
            answer = self._client.post(
                self._address("token_endpoint"),
                data=given,
                # As a form has them (RFC 6749, 2.3.1): a provider decodes the `+` of a secret.
                auth=(quote_plus(self._provider.client), quote_plus(self._provider.secret)),
            )
            token = answer.json().get("id_token", "") if answer.is_success else ""
        except (httpx.HTTPError, ValueError, AttributeError):
            token = ""
        who = self._account(token, _part("nonce", browser))
        if not self.machines(who):
            raise LoginError("your account is in no group that sees questions here: ask for one")
        return self._words.give("ticket", who, _TICKET_SECONDS)

    def open_page(self, ticket: str) -> tuple[str, Account] | None:
        """Exchange a ticket for the key of a page, or return None if it is not valid."""
        who = self._words.take("ticket", ticket)
        return None if who is None else (self._words.give("page", who, _PAGE_SECONDS), who)

    def close_page(self, key: str) -> None:
        """End a login."""
        self._words.take("page", key)

    def way_out(self) -> str:
        """Return where the provider ends its own logins.

        Raises:
            LoginError: it cannot be reached, or names no such place.
        """
        return _with(self._address("end_session_endpoint"), {"client_id": self._provider.client})

    def account(self, key: str) -> Account | None:
        """Return who opened the page with a key, or None if it is none."""
        return self._words.said("page", key)

    def machines(self, who: Account) -> tuple[str, ...]:
        """Return patterns of the names of the machines whose questions a person sees."""
        sees = self._provider.sees
        return tuple([names for names, group in sees if group in who.groups]) if sees else (_ALL,)

    def _account(self, token: object, nonce: str) -> Account:
        registry = jwt.JWTClaimsRegistry(
            leeway=_CLOCK_SECONDS,
            iss={"essential": True, "value": self._provider.issuer},
            aud={"essential": True, "value": self._provider.client},
            azp={"value": self._provider.client},
            nonce={"essential": True, "value": nonce},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            keys = KeySet.import_key_set(self._client.get(self._address("jwks_uri")).json())
            claims = jwt.decode(str(token), keys, algorithms=_ALGORITHMS).claims
            registry.validate(claims)
        except (JoseError, httpx.HTTPError, ValueError, KeyError, TypeError):
            why = "the provider does not confirm this login: try again (do the clocks differ?)"
            raise LoginError(why) from None
        names = [claims.get(one) for one in ("email", "preferred_username", "name", "sub")]
        name = next((one for one in names if isinstance(one, str) and one), "")
        said = claims.get(self._provider.claim)
        words = [one for one in said if isinstance(one, str)] if isinstance(said, list) else []
        # People choose their names, and the database takes no NUL and no half of a character.
        return Account(
            id=visible(str(claims["sub"]))[:_MOST_NAME],
            name=visible(name)[:_MOST_NAME],
            groups=tuple([one for one in words if one == visible(one)]),
        )

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


def _with(address: str, asked: dict[str, str]) -> str:
    """Return an address of the provider, which may have parameters of its own, with ours."""
    return str(httpx.URL(address).copy_merge_params(asked))


def _part(name: str, browser: str) -> str:
    """Return a word of a login, which only this browser and this page can make."""
    return base64_of(hashlib.sha256(f"{name} {browser}".encode("utf-8", "replace")).digest())

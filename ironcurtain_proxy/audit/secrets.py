"""Formats of keys, tokens and passwords.

Every pattern takes linear time on any text: it begins with a literal, and only a single class may
repeat without bound, which either matches or ends the attempt. Where a run could be entered at many
places, a look-behind permits only one.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.audit.keys import redact_keys
from ironcurtain_proxy.model.vocabulary import word_list, words

MASK: Final = "[redacted]"
MASKED_PRIVATE_KEY: Final = "[redacted private key]"

Replacement = Callable[[re.Match[str]], str]


class SecretFormat(Struct, frozen=True):
    """One kind of secret."""

    kind: str
    """The kind of secret, in words for people."""
    hints: tuple[str, ...]
    """Texts of which a match needs one; empty: the pattern is always tried."""
    pattern: re.Pattern[str]
    replacement: Replacement
    folded: bool = False
    """Hints are looked for in the text in lower case."""


def redact_secrets(text: str) -> str:
    """Mask every secret of a known format, and every value assigned to a telling name."""
    folded = text.lower()
    for secret in FORMATS:
        if _may_hold(secret, text, folded):
            text = secret.pattern.sub(secret.replacement, text)
    return redact_keys(_redact_assigned(text))


def kinds_of(text: str) -> Iterator[str]:
    """The kinds of the secrets that `redact_secrets` would mask."""
    folded = text.lower()
    for secret in FORMATS:
        if _may_hold(secret, text, folded) and secret.pattern.sub(secret.replacement, text) != text:
            yield secret.kind
    if _redact_assigned(text) != text:
        yield "password or key with its name"
    if redact_keys(text) != text:
        yield "key of a provider"


def without_unfinished(text: str) -> str:
    """A cut `text` without an unfinished token that only its end would identify."""
    unfinished = _UNFINISHED_JWT.search(text)
    return text if unfinished is None else text[: unfinished.start()]


def is_telling(name: str) -> bool:
    """Whether a key of this name holds a secret: `password`, `X-Api-Key`, `githubToken`.

    Also if more follows that does not change what it is: `password2`, `user[password]`,
    `password_confirmation`. `max_tokens`, `nextPageToken` and `password_file` do not.
    """
    plain = _squeezed(name)
    if plain in _WORKING_DIRECTORIES or plain.endswith(_HARMLESS_ENDINGS):
        return False
    if plain.endswith(TELLING_ENDINGS) or plain in TELLING_NAMES:
        return True
    bare = _MORE.sub("", _NO_LETTERS.sub("", plain))
    return bare.endswith(_WITH_MORE) and not bare.endswith(_HARMLESS_ENDINGS)


def is_ssn_name(name: str) -> bool:
    """Whether a key of this name holds a social security number."""
    plain = _squeezed(name)
    return plain.endswith("ssn") or "socialsecurity" in plain


def is_telling_option(text: str) -> bool:
    """Whether an element of an argument list says that the next one is a secret: `--password`."""
    return text.startswith("-") and is_telling(text)


def _squeezed(name: str) -> str:
    return name[-_NAME_TAIL:].lower().translate(_SEPARATORS)


_NAME_TAIL: Final = 128
_SEPARATORS: Final = str.maketrans("", "", " -_")
TELLING_ENDINGS: Final = (
    # What a person types.
    *word_list(
        """
        password passwords passwd passphrase passcode passcodes passkey pwd dbpass userpass smtppass
        mailpass redispass adminpass rootpass otp otpcode totpseed mfacode twofactorcode
        verificationcode pincode recoverycode recoverycodes backupcode backupcodes securitycode
        mnemonic mnemonicphrase seedphrase recoveryphrase seedwords
        """
    ),
    # What a service gives.
    *word_list(
        """
        secret secrets token apitokens accesstokens refreshtokens authtokens apikey apikeys
        secretkey secretkeys privatekey accesskey accesskeys accountkey sharedkey signingkey
        encryptionkey decryptionkey masterkey authkey licensekey servicekey subscriptionkey
        functionkey sshkey deploykey appkey applicationkey adminkey storagekey sessionkey writekey
        ingestkey integrationkey hmackey aeskey rootkey serverkey webhookkey secretkeybase
        authorization auth credential credentials creds jwt clientassertion cookie cookies sessionid
        sessid csrf xsrf authcode dsn connectionstring connstring connstr webhookurl samlresponse
        hmac
        """
    ),
)
TELLING_NAMES: Final = words(
    """
    pass pw pin cvv cvc cvv2 sid connect.sid pat cred bearer githubpat gitlabpat totp seedhex
    xprv wif xauth proxyauth tfa
    """
)
"""Names that say so as a whole; as an ending they are parts of other words."""
_HARMLESS_ENDINGS: Final = word_list(
    """
    pagetoken nexttoken continuationtoken progresstoken synctoken canceltoken
    """
)
_NO_LETTERS: Final = re.compile(r"[^a-z0-9]", re.ASCII)
_MORE: Final = re.compile(
    r"(?:[0-9]|confirmation|confirm|repeat|again|value|plaintext|plain|base64|b64|pem|raw)+\Z",
    re.ASCII,
)
_WITH_MORE: Final = (
    *("password", "passwords", "passwd", "passphrase", "passcode", "secret", "secrets", "token"),
    *("apikey", "accesskey", "secretkey", "privatekey", "credential", "credentials"),
)
"""Endings that say so whatever follows. `redaction.is_suspicious` sees each without a quote."""
_WORKING_DIRECTORIES: Final = frozenset({"pwd", "oldpwd"})
"""Shells and tools name a directory so; `db_pwd` is a password."""


def _may_hold(secret: SecretFormat, text: str, folded: str) -> bool:
    where = folded if secret.folded else text
    return any(hint in where for hint in secret.hints)


def _ends_only(match: re.Match[str]) -> str:
    secret = match[0]
    return f"{secret[:4]}...{secret[-4:]}"


def _private_key(_match: re.Match[str]) -> str:
    return MASKED_PRIVATE_KEY


def _second_group(match: re.Match[str]) -> str:
    """Mask the pattern's second group."""
    return f"{match[1]}{MASK}{match[3] or ''}"


def _bearer(match: re.Match[str]) -> str:
    """`Bearer of bad news` and `bearer authentication` are not tokens."""
    token = match[2]
    long_or_numbered = len(token) >= _SURELY_A_TOKEN or any(map(str.isdigit, token))
    return f"{match[1]}{MASK}" if long_or_numbered else match[0]


def _basic(match: re.Match[str]) -> str:
    """`Basic authentication` is not a pair of name and password; what decodes to `a:b` is."""
    token = match[2].rstrip("=")[:_BASIC_LOOK]
    try:
        decoded = b64decode(token + "=" * (-len(token) % 4)).decode("latin-1")
    except (Base64Error, ValueError):
        return match[0]
    return f"{match[1]}{MASK}" if ":" in decoded and decoded.isprintable() else match[0]


def _redact_assigned(text: str) -> str:
    """Mask values after `password=` and `"password": `.

    The search is for the sign, then for the name before it: there are few signs.
    """
    pieces: list[str] = []
    copied = 0
    sign = _SIGN.search(text)
    while sign is not None:
        end = sign.end()
        if _is_named(text, sign.start()):
            match = _VALUE.match(text, sign.start())
            start = None if match is None else _start_of_value(match)
            if match is not None and start is not None:
                end = match.end()
                pieces += [text[copied:start], MASK]
                copied = end
        sign = _SIGN.search(text, end)
    return "".join([*pieces, text[copied:]]) if pieces else text


def _is_named(text: str, at: int) -> bool:
    """Whether a telling name stands before the sign at `at`, in quotes or not."""
    before = text[max(0, at - _NAME_REACH) : at].rstrip(_AROUND_NAMES).lower()
    if before[-1:] not in _LAST_LETTERS:
        return False
    name = _NAME.search(before)
    return name is not None and is_telling(name[0])


def _start_of_value(match: re.Match[str]) -> int | None:
    """`password=x` and `"password": "x"` name a secret; `token: str` in a program does not."""
    group = "bare" if match["quote"] is None else "value"
    value = match[group]
    certain = (
        group == "value"
        or "=" in match["sign"]
        or any(map(str.isdigit, value))
        or not value.rstrip("();").replace(".", "").isidentifier()
    )
    return match.start(group) if certain else None


def _option(match: re.Match[str]) -> str:
    """`--password hunter2`; `--password-file x` and `-rf x` are no secrets."""
    return f"-{match[1]}{MASK}" if is_telling(match["name"]) else match[0]


_AROUND_NAMES: Final = " \t\"'\\[]?+!"
"""Characters between a name and the sign: `user[password]=`, `PASSWORD ?= `."""
_NAME_REACH: Final = 72
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_.-]| (?=[a-z0-9])){0,63}\Z", re.ASCII)


def _query(match: re.Match[str]) -> str:
    """`?code=` and `?key=` are also names: a value without a digit or a capital is one."""
    value = match[2]
    random = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return f"{match[1]}{MASK}" if random else match[0]


_SURELY_A_TOKEN: Final = 24
_BASIC_LOOK: Final = 1024

# --- the formats ---------------------------------------------------------------------------------
# Order matters: a private key or a header is masked whole before anything inside it is looked at.


def _pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | flags)


FORMATS: Final[tuple[SecretFormat, ...]] = (
    SecretFormat(
        "private key",
        ("-----BEGIN",),
        # Without an end it goes on to the end of the text: half a key is still a key.
        _pattern(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"[^-]*+(?:-(?!----END)[^-]*+)*+(?:-----END [A-Z0-9 ]{0,60}-----)?"
        ),
        _private_key,
    ),
    SecretFormat(
        "authorization header",
        ("authorization",),
        _pattern(
            r"(authorization[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"
            r"(?:(?:bearer|basic|digest|token|negotiate|ntlm|api-?key|aws4-hmac-sha256|ssws|key|bot)\s{1,4})?+)"
            r"([^\s\"'\\,;\[]+)()",
            re.IGNORECASE,
        ),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        "bearer token",
        ("bearer",),
        _pattern(r"(bearer\s{1,8})([a-z0-9._~+/-]{8,}={0,2})", re.IGNORECASE),
        _bearer,
        folded=True,
    ),
    SecretFormat(
        "name and password",
        ("basic",),
        _pattern(r"(basic\s{1,8})([a-z0-9+/]{4,}={0,2})", re.IGNORECASE),
        _basic,
        folded=True,
    ),
    SecretFormat(
        "password in a URL",
        ("://",),
        # User and password; a port and a query with `@` in it is not one.
        _pattern(r"(://[^\s/@:?#\"'<>]{0,256}:)(?!\d{1,5}[/?#])([^\s/\"'<>]{1,1024})(@)"),
        _second_group,
    ),
    SecretFormat(
        "token in a URL",
        ("://",),
        _pattern(r"(://)(?=[^\s/@:]{0,255}\d)([^\s/@:?#\"'<>]{20,256})(@)"),
        _second_group,
    ),
    SecretFormat(
        "JSON Web Token",
        ("eyJ",),
        _pattern(r"(?<![A-Za-z0-9_-])eyJ[\w-]{12,}\.[\w-]{4,}(?:\.[\w-]*)?"),
        _ends_only,
    ),
    SecretFormat(
        "webhook address",
        ("hooks.slack.com", "/webhooks/", "hooks.zapier.com", "webhook.office.com"),
        # Who knows such an address may write there: what follows the host is the key.
        _pattern(
            r"(hooks\.slack\.com/(?:services|workflows|triggers)/|/api/webhooks/"
            r"|hooks\.zapier\.com/hooks/catch/|webhook\.office\.com/webhookb2/)([^\s\"'\\<>]+)()"
        ),
        _second_group,
    ),
    SecretFormat(
        "signature or key in a URL",
        ("=",),
        # A query that is a signature, a code or a key: long, and no name.
        _pattern(
            r"([?&;](?:sig|signature|x-(?:amz|goog)-signature|hmac|code|key|auth|jwt|sid|pass|hash"
            r"|session|ticket|assertion|samlresponse)=)([\w%+/=.~-]{16,})()",
            re.IGNORECASE,
        ),
        _query,
    ),
    SecretFormat(
        "cookie",
        ("cookie",),
        _pattern(
            r"(cookies?[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4})"
            r"([^\r\n\"'\\=\[]{1,128}=(?:[^\r\n\"'\\]|\\(?=[^nr]))*+)()",
            re.IGNORECASE,
        ),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        "recovery phrase",
        ("mnemonic", "phrase", "seed"),
        _pattern(
            r"((?:mnemonic|phrase|seed|words)[\"'\\]{0,4}(?:\s{1,4}is)?\s{0,4}[:=]?\s{0,4}[\"'\\]{0,4})"
            r"((?:[a-z]{3,8}[ ,]{1,3}){11,23}[a-z]{3,8})()",
            re.IGNORECASE,
        ),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        "password of a command",
        ("curl",),
        _pattern(
            r"(\s(?:-u|--user|-U|--proxy-user)(?:\s{1,4}|=)?[\"'\\]{0,4}[^\s:\"'\\]{1,128}:)"
            r"([^\s\"'\\]+)()"
        ),
        _second_group,
    ),
    SecretFormat(
        "password of a command",
        ("sshpass",),
        _pattern(r"(sshpass\s{1,4}-p\s{0,4}[\"'\\]{0,4})([^\s\"'\\]+)()"),
        _second_group,
    ),
    SecretFormat(
        "password of a command",
        ("-",),
        _pattern(r"-(?<![^\s\"']-)(-?(?P<name>[A-Za-z][\w-]{1,60}+)\s{1,4})([^\s\"'-][^\s\"']*)"),
        _option,
    ),
)

_SIGN: Final = _pattern("[:=]")
_LAST_LETTERS: Final = frozenset(name[-1] for name in (*TELLING_ENDINGS, *TELLING_NAMES)) | set(
    "0123456789nmtew"
)
"""The last ones are those of `_MORE`."""
_VALUE: Final = _pattern(
    r"(?P<sign>:=|=>|={1,3}|:)[ \t]{0,4}"
    r"(?:(?P<quote>\\{1,3}[\"']|\"|')(?P<value>(?<=\\.)[^\"'\\\n]++"
    r"|(?<=\")(?:[^\"\\\n]++|\\.)++|(?<=')(?:[^'\\\n]++|\\.)++)"
    r"|(?P<bare>[^\s\"'\\,;&]++))"
)

_UNFINISHED_JWT: Final = _pattern(r"(?<![A-Za-z0-9_-])eyJ[\w-]*(?:\.[\w-]*){0,2}\Z")

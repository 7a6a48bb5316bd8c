"""What keys, tokens and passwords look like. Pure: no I/O, no clock, no log.

Knows the formats, not where in a record they stand. Every pattern takes linear time on any text: it
begins with a literal, and what may repeat without bound is a single class that either matches or
ends the attempt. Where a run could be entered at many places, a look-behind permits only one.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MASK: Final = "[redacted]"
MASKED_PRIVATE_KEY: Final = "[redacted private key]"

Replacement = Callable[[re.Match[str]], str]


@dataclass(frozen=True, slots=True)
class SecretFormat:
    """One kind of secret."""

    hints: tuple[str, ...]
    """The pattern cannot match a text with none of these; empty: always tried."""
    pattern: re.Pattern[str]
    replacement: Replacement
    folded: bool = False
    """Hints are looked for in the text in lower case."""


def redact_secrets(text: str) -> str:
    """Mask every secret of a known format, and what is assigned to a telling name."""
    folded = text.lower()
    for secret in FORMATS:
        if _may_hold(secret, text, folded):
            text = secret.pattern.sub(secret.replacement, text)
    return text


def without_unfinished(text: str) -> str:
    """`text`, which was cut off at its end, without a token that is recognised by its end only."""
    unfinished = _UNFINISHED_JWT.search(text)
    return text if unfinished is None else text[: unfinished.start()]


def is_telling(name: str) -> bool:
    """Whether a key of this name holds a secret: `password`, `X-Api-Key`, `githubToken`.

    `max_tokens`, `nextPageToken` and `password_file` do not.
    """
    plain = _squeezed(name)
    if plain in _WORKING_DIRECTORIES or plain.endswith(_HARMLESS_ENDINGS):
        return False
    return plain.endswith(_TELLING_ENDINGS)


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
_TELLING_ENDINGS: Final = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "token",
    "apikey",
    "secretkey",
    "privatekey",
    "accesskey",
    "authorization",
    "credential",
    "credentials",
)
_HARMLESS_ENDINGS: Final = (
    "pagetoken",
    "nexttoken",
    "continuationtoken",
    "progresstoken",
    "synctoken",
    "canceltoken",
)
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
    """The pattern's second group is the secret; the rest stays."""
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


def _assigned(match: re.Match[str]) -> str:
    """`password=x` and `"password": "x"` name a secret; `token: str` in a program does not."""
    group = "bare" if match["quote"] is None else "value"
    value = match[group]
    certain = (
        group == "value"
        or match["sign"] == "="
        or any(map(str.isdigit, value))
        or not value.rstrip("();").replace(".", "").isidentifier()
    )
    if not certain or not is_telling(match["name"]):
        return match[0]
    return match[0][: match.start(group) - match.start()] + MASK


_SURELY_A_TOKEN: Final = 24
_BASIC_LOOK: Final = 1024

# --- the formats ---------------------------------------------------------------------------------
# Order matters: a private key or a header is masked whole before anything inside it is looked at.

_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase)|(?:[a-z0-9][_-]?)pwd|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key"
    r"|(?:access|private)[_-]?key|(?:page|next|continuation|progress|sync|cancel)?[_-]?token"
    r"|authorization|credentials?)"
)
_WORD_HINTS: Final = (
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "api",
    "key",
    "token",
    "authorization",
    "credential",
)


def _pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | flags)


FORMATS: Final[tuple[SecretFormat, ...]] = (
    SecretFormat(
        ("-----BEGIN",),
        # Without an end it goes on to the end of the text: half a key is still a key.
        _pattern(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"[^-]*+(?:-(?!----END)[^-]*+)*+(?:-----END [A-Z0-9 ]{0,60}-----)?"
        ),
        _private_key,
    ),
    SecretFormat(
        ("authorization",),
        _pattern(
            r"(authorization[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"
            r"(?:(?:bearer|basic|digest|token|negotiate|ntlm|api-?key|aws4-hmac-sha256)\s{1,4})?+)"
            r"([^\s\"'\\,;\[]+)()",
            re.IGNORECASE,
        ),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        ("bearer",),
        _pattern(r"(bearer\s{1,8})([a-z0-9._~+/-]{8,}={0,2})", re.IGNORECASE),
        _bearer,
        folded=True,
    ),
    SecretFormat(
        ("basic",),
        _pattern(r"(basic\s{1,8})([a-z0-9+/]{4,}={0,2})", re.IGNORECASE),
        _basic,
        folded=True,
    ),
    SecretFormat(
        ("://",),
        # User and password; a port and a query with `@` in it is not one.
        _pattern(r"(://[^\s/@:?#\"'<>]{0,256}:)(?!\d{1,5}[/?#])([^\s/\"'<>]{1,1024})(@)"),
        _second_group,
    ),
    SecretFormat(
        ("://",),
        _pattern(r"(://)(?=[^\s/@:]{0,255}\d)([^\s/@:?#\"'<>]{20,256})(@)"),
        _second_group,
    ),
    SecretFormat(
        ("eyJ",),
        _pattern(r"(?<![A-Za-z0-9_-])eyJ[\w-]{12,}\.[\w-]{4,}(?:\.[\w-]*)?"),
        _ends_only,
    ),
    SecretFormat(
        ("sk-",),
        _pattern(r"sk-(?:ant|proj|svcacct|admin|or|lf)-[\w-]{12,}"),
        _ends_only,
    ),
    SecretFormat(("sk-",), _pattern(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9]{20,}"), _ends_only),
    SecretFormat(
        ("k_live_", "k_test_"), _pattern(r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"), _ends_only
    ),
    SecretFormat(
        ("ghp_", "gho_", "ghs_", "ghu_", "ghr_"),
        _pattern(r"gh[posur]_[A-Za-z0-9]{30,}"),
        _ends_only,
    ),
    SecretFormat(("github_pat_",), _pattern(r"github_pat_\w{20,}"), _ends_only),
    SecretFormat(("glpat-",), _pattern(r"glpat-[\w-]{16,}"), _ends_only),
    SecretFormat(("xox",), _pattern(r"xox[abeoprs]-[A-Za-z0-9-]{10,}"), _ends_only),
    SecretFormat(("AKIA", "ASIA"), _pattern(r"(?<![A-Za-z0-9])A[KS]IA[A-Z0-9]{16,}"), _ends_only),
    SecretFormat(("AIza",), _pattern(r"AIza[\w-]{30,}"), _ends_only),
    SecretFormat(
        _WORD_HINTS,
        _pattern(
            rf"(?P<name>{_WORDS})\\{{0,3}}[\"']?(?P<sign>[ \t]{{0,4}}[:=][ \t]{{0,4}})"
            r"(?:(?P<quote>\\{1,3}[\"']|\"|')(?P<value>(?<=\\.)[^\"'\\\n]++"
            r"|(?<=\")(?:[^\"\\\n]++|\\.)++|(?<=')(?:[^'\\\n]++|\\.)++)"
            r"|(?P<bare>[^\s\"'\\,;&]++))",
            re.IGNORECASE,
        ),
        _assigned,
        folded=True,
    ),
    SecretFormat(
        ("-",),
        _pattern(
            rf"(?<![^\s\"'])(--?(?:[a-z]+-){{0,3}}{_WORDS}\s{{1,4}})([^\s\"'-][^\s\"']*)()",
            re.IGNORECASE,
        ),
        _second_group,
    ),
)

_UNFINISHED_JWT: Final = _pattern(r"(?<![A-Za-z0-9_-])eyJ[\w-]*(?:\.[\w-]*){0,2}\Z")

"""Formats of keys, tokens and passwords.

Every pattern takes linear time on any text: it begins with a literal, and only a single class may
repeat without bound, which either matches or ends the attempt. Where a run could be entered at many
places, a look-behind permits only one.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.audit.commands import (
    TELLING_ENDINGS,
    TELLING_NAMES,
    is_telling,
    is_working_directory,
    secrets_of_commands,
)
from ironcurtain_proxy.audit.keys import redact_keys

MASK: Final = "[redacted]"
MASKED_PRIVATE_KEY: Final = "[redacted private key]"

Replacement = Callable[[re.Match[str]], str]


class Expression(Struct, frozen=True):
    """A regular expression that is compiled on first use: few texts need it."""

    text: str
    flags: int

    def sub(self, replacement: Replacement, text: str) -> str:
        """Replace all matches."""
        return _compiled(self.text, self.flags).sub(replacement, text)


@cache
def _compiled(text: str, flags: int) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | flags)


class SecretFormat(Struct, frozen=True):
    """One kind of secret."""

    kind: str
    """The kind of secret, in words for people."""
    hints: tuple[str, ...]
    """Texts of which a match needs one. Without any, the pattern is always tried."""
    pattern: Expression
    replacement: Replacement
    folded: bool = False
    """Hints are looked for in the text in lower case."""


def redact_secrets(text: str) -> str:
    """Mask every secret of a known format, and every value assigned to a telling name."""
    folded = text.lower()
    for secret in FORMATS:
        if _may_hold(secret, text, folded):
            text = secret.pattern.sub(secret.replacement, text)
    return redact_keys(_redact_assigned(_redact_commands(text)))


def kinds_of(text: str) -> Iterator[str]:
    """Yield the kinds of the secrets that `redact_secrets` would mask."""
    folded = text.lower()
    for secret in FORMATS:
        if _may_hold(secret, text, folded) and secret.pattern.sub(secret.replacement, text) != text:
            yield secret.kind
    if _redact_commands(text) != text:
        yield "password of a command"
    if _redact_assigned(text) != text:
        yield "password or key with its name"
    if redact_keys(text) != text:
        yield "key of a provider"


def without_unfinished(text: str) -> str:
    """Return a cut `text` without an unfinished token that only its end would identify."""
    unfinished = _UNFINISHED_JWT.search(text)
    return text if unfinished is None else text[: unfinished.start()]


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


def _telling_third(match: re.Match[str]) -> str:
    """Mask the third group, if the name in the first one tells of a secret."""
    value = match[3].rstrip()
    if not is_telling(match["name"]) or MASK in value:
        return match[0]
    return f"{match[1]}{MASK}{match[3][len(value) :]}{match[4]}"


def _numbered(match: re.Match[str]) -> str:
    """Mask what has a digit: prose goes on with a word."""
    return _second_group(match) if any(map(str.isdigit, match[2])) else match[0]


def _bearer(match: re.Match[str]) -> str:
    """Mask a token. `Bearer of bad news` and `bearer authentication` are none."""
    token = match[2]
    long_or_numbered = len(token) >= _SURELY_A_TOKEN or any(map(str.isdigit, token))
    return f"{match[1]}{MASK}" if long_or_numbered else match[0]


def _basic(match: re.Match[str]) -> str:
    """Mask a pair of name and password that decodes to `a:b`: `Basic authentication` is none."""
    token = match[2].rstrip("=")[:_BASIC_LOOK]
    try:
        decoded = b64decode(token + "=" * (-len(token) % 4)).decode("latin-1")
    except (Base64Error, ValueError):
        return match[0]
    return f"{match[1]}{MASK}" if ":" in decoded and decoded.isprintable() else match[0]


def _redact_commands(text: str) -> str:
    """Mask what programs take as a secret under a name that does not tell."""
    pieces: list[str] = []
    copied = 0
    for start, end in secrets_of_commands(text):
        if MASK not in text[start - 1 : end + 1]:
            pieces += [text[copied:start], MASK]
            copied = end
    return "".join([*pieces, text[copied:]]) if pieces else text


def _redact_assigned(text: str) -> str:
    """Mask values after `password=` and `"password": `.

    The search is for the sign, then for the name before it: there are few signs.
    """
    pieces: list[str] = []
    copied = 0
    sign = _SIGN.search(text)
    while sign is not None:
        end = sign.end()
        name = _name_before(text, sign.start())
        if name and (is_telling(name) or is_working_directory(name)):
            match = _VALUE.match(text, sign.start())
            if match is not None and is_working_directory(name) and _is_place(match):
                match = None
            start = None if match is None else _start_of_value(match)
            if match is not None and start is not None:
                end = match.end()
                pieces += [text[copied:start], MASK]
                copied = end
        sign = _SIGN.search(text, end)
    return "".join([*pieces, text[copied:]]) if pieces else text


def _name_before(text: str, at: int) -> str:
    """Return the name before the sign at `at`, in quotes or not, or "" if no name can tell."""
    before = text[max(0, at - _NAME_REACH) : at].rstrip(_AROUND_NAMES)
    if before[-1:].lower() not in _LAST_LETTERS:
        return ""
    name = _NAME.search(before)
    return "" if name is None else name[0]


def _is_place(match: re.Match[str]) -> bool:
    """Return whether a value is a path, or is made by a shell."""
    value = match["bare"] or match["value"]
    return value.startswith(("/", "~", "$", ".", "`", "(")) or value[1:3] == ":\\"


def _start_of_value(match: re.Match[str]) -> int | None:
    """Return where the secret of `password=x` begins, or None for `token: str` in a program."""
    group = "bare" if match["quote"] is None else "value"
    value = match[group]
    certain = (
        group == "value"
        or match["sign"][:1] in "=%"
        or any(map(str.isdigit, value))
        or not value.rstrip("();").replace(".", "").isidentifier()
    )
    return match.start(group) if certain else None


def _option(match: re.Match[str]) -> str:
    """Mask `--password hunter2`, but neither `--password-file x` nor `-rf x`."""
    return f"-{match[1]}{MASK}" if is_telling(match["name"]) else match[0]


_AROUND_NAMES: Final = " \t\"'\\[]?+!"
"""Characters between a name and the sign: `user[password]=`, `PASSWORD ?= `."""
_NAME_REACH: Final = 72
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[\w.-]| (?=[A-Za-z0-9])){0,63}\Z", re.ASCII)


def _query(match: re.Match[str]) -> str:
    """Mask a value with letters and digits: `?code=` and `?key=` are also other names."""
    value = match[2]
    random = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return f"{match[1]}{MASK}" if random else match[0]


_SURELY_A_TOKEN: Final = 24
_BASIC_LOOK: Final = 1024

# --- the formats ---------------------------------------------------------------------------------
# Order matters: a private key or a header is masked whole before anything inside it is looked at.


def _pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> Expression:
    return Expression(text, int(flags))


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
        # Whoever knows such an address may post to it: the path after the host is the key.
        _pattern(
            r"(hooks\.slack\.com/(?:services|workflows|triggers)/|/api/webhooks/"
            r"|hooks\.zapier\.com/hooks/catch/|webhook\.office\.com/webhookb2/)([^\s\"'\\<>]+)()"
        ),
        _second_group,
    ),
    SecretFormat(
        "signature or key in a URL",
        ("=",),
        # A parameter that is a signature, a code or a key: its value is long and is no name.
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
        "private key",
        ("Private-Lines:", "BEGIN SSH2", "Static key"),
        _pattern(
            r"(Private-Lines: \d{1,4}\r?\n|---- BEGIN SSH2 [A-Z ]{0,20}PRIVATE KEY ----"
            r"|-----BEGIN [\w ]{1,20}Static key V1-----)"
            r"([^-]++(?:-(?!---)[^-]*+)*+)()"
        ),
        _second_group,
    ),
    SecretFormat(
        "hash of a password",
        ("$", "{", "pbkdf2_", ":::"),
        _pattern(
            r"((?<![\w$])\$(?:2[abxy]?|apr1|[1567]|y|P|H|argon2(?:id|i|d)|scrypt|pbkdf2[\w-]{0,16})\$"
            r"|\{S?SHA(?:256|384|512)?\}|pbkdf2_sha\d{1,3}\$|SCRAM-SHA-\d{1,3}\$\d{1,7}:"
            r"|\b[0-9a-f]{32}:(?=[0-9a-f]{32}:::))([\w./+$,=:-]{12,}?)(?=:\d{0,6}:|:::|[^\w./+$,=:-]|\Z)()"
        ),
        _second_group,
    ),
    SecretFormat(
        "password in a document",
        ("</", "<?"),
        _pattern(
            r"(<(?:[\w.-]{1,40}:)?(?P<name>[\w.-]{1,64})(?:\s[^<>]{0,200})?>\s{0,8})([^<>\s][^<>]{0,4096})(</)"
        ),
        _telling_third,
    ),
    SecretFormat(
        "password in a document",
        ("value", "<entry"),
        _pattern(
            r"((?:\bname|\bkey)[\"'\\]{0,3}\s{0,4}[:=]\s{0,4}[\"'\\]{0,3}(?P<name>[\w.:-]{1,64})"
            r"(?:[\"'\\,\s]{1,40}value[\"'\\]{0,3}\s{0,4}[:=]\s{0,4}[\"'\\]{0,3}|[\"'\\]{1,3}>))"
            r"([^\"'\\<>\n]{1,4096})()",
            re.IGNORECASE,
        ),
        _telling_third,
    ),
    SecretFormat(
        "password on the next line",
        ("\n",),
        _pattern(
            r"(^[ \t-]{0,64}[\"']?(?P<name>[\w.-]{1,64})[\"']?[ \t]{0,4}[:=][ \t]{0,4}"
            r"(?:(?:[>|][+\-0-9]{0,2}|\"{3}|'{3})[ \t]{0,4}\r?\n[ \t]{0,64}"
            r"|\r?\n[ \t]{1,64}(?=[^\s:-][^\s:]{0,256}$)))"
            r"([^\n\"']{1,4096})()",
            re.MULTILINE,
        ),
        _telling_third,
    ),
    SecretFormat(
        "password of an account",
        ("identified", "password", "secret", "sym_"),
        _pattern(
            r"(\bidentified\s{1,4}(?:with\s{1,4}\S{1,64}\s{1,4})?(?:by|as)\s{1,4}(?:password\s{1,4})?'"
            r"|\bpassword(?:\s{1,4}|\s{0,4}[=(]\s{0,4})n?'|\bset\s{1,4}password\s{1,4}for\s{1,4}[^=\n]{1,80}=\s{0,4}'"
            r"|\bsecret\s{1,4}'|sym_(?:en|de)crypt\([^,\n]{1,200},\s{0,4}')([^'\n]{1,1024})()",
            re.IGNORECASE,
        ),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        "password in words",
        ("password", "requirepass", "masterauth", "rootpw"),
        _pattern(
            r"((?:\b(?:login|user|account)\s{1,8}\S{1,128}\s{1,8}password|\bpassword\s{1,4}(?:is|to)"
            r"|^\s{0,8}(?:requirepass|masterauth|rootpw|password))\s{1,8})([^\s\"'=:,.;()][^\s\"']{4,})()",
            re.IGNORECASE | re.MULTILINE,
        ),
        _numbered,
        folded=True,
    ),
    SecretFormat(
        "password in a pipe",
        ("stdin", "sudo", "chpasswd", "passwd", "with-token"),
        _pattern(
            r"(\b(?:echo|printf)\s{1,4}(?:-[neE]{1,3}\s{1,4}|['\"]%s(?:\\n)?['\"]\s{1,4})?['\"]?)"
            r"([^\s'\"|$-][^|\n'\"]{0,300}?)(['\"]?\s{0,4}\|\s{0,4}(?:sudo\s{1,4})?"
            r"(?:sudo\s[^|\n]{0,40}?-\w{0,3}S|(?:chpasswd|passwd)\b|[^|\n]{0,200}?--?(?:[a-z]{1,16}-)?(?:stdin|with-token)\b))"
        ),
        _second_group,
    ),
    SecretFormat(
        "code for one use",
        ("code", "otp", "pin"),
        _pattern(
            r"((?:\b(?:verification|one[- ]?time|security|login|sign[- ]?in|confirmation"
            r"|auth\w{0,12}|access|2fa|mfa|sms)\s{1,2}(?:pass)?(?:code|password|pin)|\botp)\b"
            r"(?:\s{1,2}(?:code|is))?[^\w\n]{1,6}(?:is\s{1,2})?"
            r"|\bcode\s{1,2}(?=\d{4,8}\s{1,2}to\s{1,2}(?:sign|log|verify|confirm))"
            r"|\b(?=(?:g-)?\d{4,8}\s{1,2}is\s{1,2}your\s[\w ]{0,40}code)(?:g-)?)(\d{4,8})\b()",
            re.IGNORECASE,
        ),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        "address that is a key",
        ("/bot", "/hook/", "hc-ping.com/", "/with/key/", "/integration/", "/live2/", "rtmp"),
        _pattern(
            r"(api\.telegram\.org/bot(?=\d)|/bot/v2/hook/|hc-ping\.com/|/with/key/|pagerduty\.com/integration/"
            r"|\brtmps?://[^\s/\"']{1,200}/(?:[^\s/\"']{1,40}/)?)([\w:-]{8,})()"
        ),
        _second_group,
    ),
    SecretFormat(
        "secret part of a JSON Web Key",
        ('"kty"',),
        _pattern(r'("(?:d|k|p|q|dp|dq|qi)"\s{0,4}:\s{0,4}")([\w-]{8,})(")'),
        _second_group,
    ),
    SecretFormat(
        "response to a challenge",
        ("digest", "signature="),
        _pattern(r"(\b(?:response|signature)=\"?)([0-9a-f]{32,128})()", re.IGNORECASE),
        _second_group,
        folded=True,
    ),
    SecretFormat(
        "password of a database",
        (":",),
        # A line of ~/.pgpass, and the login of Oracle's driver.
        _pattern(
            r"((?<![\w.:/-])(?:[\w.-]{1,80}|\*):\d{4,5}:(?:[\w.-]{1,64}|\*):[\w.-]{1,64}:"
            r"|\bjdbc:oracle:\w{2,8}:\w{1,64}/)([^\s:@/]{4,256})(?=@|\s|$)()"
        ),
        _second_group,
    ),
    SecretFormat(
        "password of a command",
        ("-",),
        _pattern(
            r"-(?<![^\s\"']-)(-?(?P<name>[A-Za-z][\w-]{1,60}+)\s{1,4}[\"']?)([^\s\"'-][^\s\"']*)"
        ),
        _option,
    ),
)

_SIGN: Final = re.compile("[:=]|%3[ADad]", re.ASCII)
_LAST_LETTERS: Final = frozenset(name[-1] for name in (*TELLING_ENDINGS, *TELLING_NAMES)) | set(
    "0123456789nmtew"
)
"""The last ones are those of `_MORE`."""
_VALUE: Final = re.compile(
    r"(?P<sign>:=|=>|={1,3}|:|%3[ADad])[ \t]{0,4}"
    r"(?:(?P<quote>\\{1,3}[\"']|\"|')(?P<value>(?<=\\.)[^\"'\\\n]++"
    r"|(?<=\")(?:[^\"\\\n]++|\\.)++|(?<=')(?:[^'\\\n]++|\\.)++)"
    r"|(?P<bare>[^\s\"'\\,;&]++))"
)

_UNFINISHED_JWT: Final = re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]*(?:\.[\w-]*){0,2}\Z")

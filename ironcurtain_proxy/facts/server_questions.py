"""The facts of a server's question to the user.

Every text that the user would read is searched for a request for credentials, including titles and
messages.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ironcurtain_proxy.facts.urls import canonical_url, is_unambiguous
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.request import (
    AccessRequest,
    Facts,
    Gathered,
    ServerQuestion,
    Unresolvable,
)

_CREDENTIALS: Final = re.compile(
    r"pass(?:word|wort|wd|phrase|code|key)|\bpwd\b|\bpin\b|secret|token|credential|api.?key"
    r"|\bkeys?\b|private.?key|access.?key|\botp\b|one.?time|2fa|mfa|two.?factor|verification.?code"
    r"|security.?code|\bcvv\b|\bcvc\b|\bcard\b|credit.?card|iban|\bssn\b|social.?security"
    r"|seed.?phrase|recovery.?(?:code|phrase)|mnemonic|auth(?:entication|orization)?.?code"
    r"|contraseña|mot.de.passe|kennwort|geheim",
)
_SEPARATORS: Final = re.compile(r"[\s_\-.:/\\]+")
_MAX_FIELDS: Final = 100
_MAX_TEXT: Final = 20_000
"""Characters of a message or a field; a longer one is refused."""
_MAX_DEPTH: Final = 8
_MAX_SHOWN: Final = 60
_HTTPS: Final = "https://"


def facts_of_question(operation: Operation, policy_server: Callable[[str], str | None]) -> Gathered:
    """The facts of a server's question."""
    server = policy_server(operation.server)
    asked = _read(operation)
    if server is None or isinstance(asked, str):
        why = asked if isinstance(asked, str) else "No such server"
        return Unresolvable(ground=Ground("invalid-arguments", why))
    return Facts(
        request=AccessRequest(
            server=server,
            tool=operation.tool,
            annotated=True,
            has_arguments=True,
            arguments=(),
            method=operation.method,
            question=asked,
        ),
        arguments=operation.arguments,
        context=(("Asked by the server", operation.server),),
    )


def _read(operation: Operation) -> ServerQuestion | str:
    asked = operation.arguments
    if operation.method == "sampling/createMessage":
        return _sampling(asked)
    if not isinstance(asked.get("message"), str):
        return "The question has no message"
    match asked.get("mode", "form"):
        case "form":
            return _form(asked)
        case "url":
            return ServerQuestion(kind="url", host=_host_of(asked.get("url")))
        case _:
            return "The question is neither a form nor a page"


def _form(asked: Mapping[str, Json]) -> ServerQuestion | str:
    schema = asked.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return "The form has no fields"
    if len(properties) > _MAX_FIELDS:
        return f"The form has more than {_MAX_FIELDS} fields"
    for name, field in properties.items():
        texts = [name, *_texts(field, _MAX_DEPTH)]
        found = next((text for text in texts if asks_for_credential(text)), None)
        if found is not None:
            return ServerQuestion(kind="form", asks_for=_shown(name))
    message = str(asked.get("message"))
    fault = asks_for_credential(message)
    return ServerQuestion(kind="form", asks_for=_shown(message) if fault else "")


def asks_for_credential(text: str) -> bool:
    """Whether the text asks for a password, a key, a card or a code.

    Compatibility forms, accents and characters without a shape are undone first.
    """
    if len(text) > _MAX_TEXT:
        return True
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join([one for one in plain if unicodedata.category(one) not in {"Cf", "Mn", "Cc"}])
    # Names are written in one word, too: `accessToken`.
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", plain)
    words = _SEPARATORS.sub(" ", apart).translate(_LOOK_ALIKES).lower()
    return _CREDENTIALS.search(words) is not None


_LOOK_ALIKES: Final = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0501\u051b\u0461"
    "\u03b1\u03b5\u03bf\u03c1\u0269\u03ba"
    "0134@$",
    "aeopcyxisdqwaeopikoleaas",
)
"""Letters of other scripts, and digits, that look like Latin letters."""


def _texts(value: Json, depth: int) -> Iterator[str]:
    """Every text of a field, its keys included."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, dict):
        for name, one in value.items():
            if name not in {"type", "required"}:
                yield from _texts(one, depth - 1)
    elif depth and isinstance(value, list):
        for one in value:
            yield from _texts(one, depth - 1)


def _host_of(url: Json) -> str:
    """The host of a plain https URL without user; empty if it is none."""
    if not isinstance(url, str) or not url.isascii() or not is_unambiguous(url):
        return ""
    spelled, host = canonical_url(url)
    authority = spelled.removeprefix(_HTTPS).partition("/")[0]
    is_plain = spelled.startswith(_HTTPS) and "@" not in authority
    # A look-alike of another host has such a label (IDNA).
    has_idn = any(label.startswith("xn--") for label in host.split("."))
    return host if is_plain and not has_idn else ""


def _sampling(asked: Mapping[str, Json]) -> ServerQuestion | str:
    tokens, messages = asked.get("maxTokens"), asked.get("messages")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not isinstance(messages, list):
        return "Sampling needs messages and maxTokens"
    with_tools = "tools" in asked or "toolChoice" in asked
    return ServerQuestion(kind="sampling", tokens=tokens, with_tools=with_tools)


def _shown(text: str) -> str:
    return "".join([one for one in text if one.isprintable()])[:_MAX_SHOWN]

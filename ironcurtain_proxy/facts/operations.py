"""The facts of operations other than tool calls, and of a server's questions.

A URI is read by its scheme: `file:` is a path, `http:` and `https:` are URLs, any other is itself.
A prompt has the roles that the operator gave its arguments. A completion is read as the resource or
prompt that it completes.

In a server's question, every text that the user would read is searched for a request for
credentials, including titles and messages.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.facts.arguments import (
    OperationSource,
    Refusal,
    ViewFinder,
    canonical_url,
    is_unambiguous,
)
from ironcurtain_proxy.model.annotation import ArgumentRole, RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import RESOURCE_METHODS, Operation, label, named_in
from ironcurtain_proxy.model.request import (
    AccessRequest,
    Facts,
    Gathered,
    ServerQuestion,
    Unresolvable,
)
from ironcurtain_proxy.model.values import Arguments, Json, file_uri, lazy, object_of, text_of

MAX_URI: Final = 4096
"""Characters."""
_SCHEME: Final = lazy(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Cn", "Co"})
_ROLES: Final[Mapping[str, ArgumentRole]] = {
    "file": "read-path",
    "http": "fetch-url",
    "https": "fetch-url",
}
_VARIABLE: Final = lazy(r"\{([^{}]*)\}")
_VIEW: Final = "ui"


class Named(Struct, frozen=True):
    """The arguments of an operation, with the annotation by which they are read."""

    annotation: ToolAnnotation
    arguments: Arguments


def named_by(
    operation: Operation, source: OperationSource, declares_view: ViewFinder
) -> Named | Unresolvable:
    """Return the arguments of an operation, or the reason why it has none."""
    server = source.policy_server(operation.server)
    if server is None:
        return _unresolvable("unknown-operation", f"Unknown: {operation.exposed_name[:200]}")
    if operation.method in RESOURCE_METHODS:
        return _resource(operation, server, operation.arguments.get("uri"), declares_view)
    template = _template_of(operation)
    if template is not None:
        return _resource(operation, server, _filled(template, operation.arguments), declares_view)
    return _prompt(operation, server, source)


def scheme_of(uri: str) -> str | Refusal:
    """Return the scheme of a URI in lower case."""
    found = _SCHEME.match(uri)
    if found is None:
        return Refusal("is no URI with a scheme")
    if len(uri) > MAX_URI:
        return Refusal(f"is longer than {MAX_URI} characters")
    if any(unicodedata.category(one) in _HIDDEN for one in uri):
        return Refusal("holds a blank, or a character that cannot be seen")
    return found[1].lower()


def as_sent(facts: Facts, operation: Operation) -> Facts:
    """Return the facts with the arguments to send: a path goes back into its URI.

    Of the completion of a template it is what the agent wrote: the URI so far was put together to
    be judged, and is sent to nobody.
    """
    if _template_of(operation) is not None:
        return replace(facts, arguments=operation.arguments)
    uri = facts.arguments.get("uri")
    is_path = any("read-path" in fact.roles for fact in facts.request.arguments)
    if operation.method in RESOURCE_METHODS and is_path and isinstance(uri, str):
        return replace(facts, arguments={"uri": file_uri(uri)})
    return facts


def _resource(
    operation: Operation, server: str, uri: Json, declares_view: ViewFinder
) -> Named | Unresolvable:
    if not isinstance(uri, str):
        return _unresolvable("invalid-arguments", 'Argument "uri" must be a string.')
    scheme = scheme_of(uri)
    if isinstance(scheme, Refusal):
        return _unresolvable("invalid-arguments", f'Argument "uri" {scheme.reason}.')
    if scheme == _VIEW and not declares_view(operation.server, uri):
        return _unresolvable(
            "undeclared-view", "No listed tool says that this view shows its results"
        )
    role = _ROLES.get(scheme, "resource-uri")
    # RFC 3986: schemes ignore case. Servers and rules get the usual spelling.
    spelled = f"{scheme}:{uri.partition(':')[2]}"
    annotation = ToolAnnotation(
        server=server,
        tool=label("resources/read"),
        arguments={"uri": RoleSpec(default=(role,))},
        method="resources/read",
        effect="reads",
    )
    return Named(annotation, {"uri": spelled})


def _prompt(operation: Operation, server: str, source: OperationSource) -> Named | Unresolvable:
    prompt = named_in(operation.tool)
    annotation = source.prompts.get((server, prompt))
    if annotation is None:
        return _unresolvable(
            "missing-annotation",
            f"Missing annotation for prompt: {operation.exposed_name[:200]}. Nobody has said what "
            "its arguments name, so it is denied. Tell the user: the operator has to annotate the "
            "prompt.",
        )
    for name, value in operation.arguments.items():
        if name not in annotation.arguments:
            return _unresolvable(
                "invalid-arguments",
                f'Argument "{name[:100]}" is not annotated: nobody has said what it names.',
            )
        if not isinstance(value, str):
            return _unresolvable("invalid-arguments", f'Argument "{name[:100]}" must be a string.')
    return Named(annotation, operation.arguments)


def _template_of(operation: Operation) -> str | None:
    """Return the template of the resource that a completion completes.

    It is None if it completes a prompt.
    """
    uri = object_of(operation.params.get("ref")).get("uri")
    return uri if isinstance(uri, str) else None


def _filled(template: str, arguments: Arguments) -> str:
    """Return the URI of a template. A variable without a value is empty."""

    def value(match: re.Match[str]) -> str:
        name = match[1].lstrip("+#./;?&").partition("*")[0].partition(":")[0]
        return text_of(arguments.get(name))

    return _VARIABLE.sub(value, template)


def _unresolvable(rule: str, reason: str) -> Unresolvable:
    return Unresolvable(ground=Ground(rule, reason))


# --- server questions


_CREDENTIALS: Final = lazy(
    r"pass(?:word|wort|wd|phrase|code|key)|\bpwd\b|\bpin\b|secret|token|credential|api.?key"
    r"|\bkeys?\b|private.?key|access.?key|\botp\b|one.?time|2fa|mfa|two.?factor|verification.?code"
    r"|security.?code|\bcvv\b|\bcvc\b|\bcard\b|credit.?card|iban|\bssn\b|social.?security"
    r"|seed.?phrase|recovery.?(?:code|phrase)|mnemonic|auth(?:entication|orization)?.?code"
    r"|contraseña|mot.de.passe|kennwort|geheim"
)
_SEPARATORS: Final = lazy(r"[\s_\-.:/\\]+")
_MAX_FIELDS: Final = 100
_MAX_TEXT: Final = 20_000
"""Characters of a message or a field; a longer one is refused."""
_MAX_DEPTH: Final = 8
_MAX_SHOWN: Final = 60
_HTTPS: Final = "https://"


def facts_of_question(operation: Operation, policy_server: Callable[[str], str | None]) -> Gathered:
    """Return the facts of a server's question."""
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
    properties = object_of(asked.get("requestedSchema")).get("properties")
    if not isinstance(properties, dict):
        return "The form has no fields"
    if len(properties) > _MAX_FIELDS:
        return f"The form has more than {_MAX_FIELDS} fields"
    for name, form_field in properties.items():
        texts = [name, *_texts(form_field, _MAX_DEPTH)]
        if any(map(asks_for_credential, texts)):
            return ServerQuestion(kind="form", asks_for=_shown(name))
    message = str(asked.get("message"))
    fault = asks_for_credential(message)
    return ServerQuestion(kind="form", asks_for=_shown(message) if fault else "")


def asks_for_credential(text: str) -> bool:
    """Return whether the text asks for a password, a key, a card or a code.

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
    """Yield every text of a field, its keys included."""
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
    """Return the host of a plain https URL without user; empty if it is none."""
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

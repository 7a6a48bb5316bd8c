"""The arguments and roles of operations other than tool calls.

A URI is read by its scheme: `file:` is a path, `http:` and `https:` are URLs, any other is itself.
A prompt has the roles that the operator gave its arguments. A completion is read as the resource or
prompt that it completes.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.facts.spelling import Refusal
from ironcurtain_proxy.model.annotation import ArgumentRole, RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.operation import RESOURCE_METHODS, Operation, label, named_in
from ironcurtain_proxy.model.path import file_uri
from ironcurtain_proxy.model.request import Facts, Unresolvable

MAX_URI: Final = 4096
"""Characters."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Cn", "Co"})
_ROLES: Final[Mapping[str, ArgumentRole]] = {
    "file": "read-path",
    "http": "fetch-url",
    "https": "fetch-url",
}
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
_VIEW: Final = "ui"


ViewFinder: TypeAlias = Callable[[str, str], bool]
"""Whether a listed tool of a server declares this `ui://` resource as its view."""


def no_view(_server: str, _uri: str) -> bool:
    """No tool declares a view."""
    return False


class OperationSource(Struct, frozen=True, kw_only=True):
    """The knowledge about prompts and servers."""

    prompts: Mapping[tuple[str, str], ToolAnnotation] = field(default_factory=dict)
    """The prompts by the server's name in the policy and the prompt's name."""
    policy_server: Callable[[str], str | None] = lambda server: server
    """The name of a server in policy and annotations; None: there is no such server."""


class Named(Struct, frozen=True):
    """The arguments of an operation, with the annotation by which they are read."""

    annotation: ToolAnnotation
    arguments: Arguments


def named_by(
    operation: Operation, source: OperationSource, declares_view: ViewFinder
) -> Named | Unresolvable:
    """The arguments of an operation, or the reason why it has none."""
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
    """The scheme of a URI in lower case."""
    found = _SCHEME.match(uri)
    if found is None:
        return Refusal("is no URI with a scheme")
    if len(uri) > MAX_URI:
        return Refusal(f"is longer than {MAX_URI} characters")
    if any(unicodedata.category(one) in _HIDDEN for one in uri):
        return Refusal("holds a blank, or a character that cannot be seen")
    return found[1].lower()


def as_sent(facts: Facts, operation: Operation) -> Facts:
    """The facts with the arguments to send: a path goes back into its URI.

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
    """The template of the resource that a completion completes; None: it completes a prompt."""
    reference = operation.params.get("ref")
    uri = reference.get("uri") if isinstance(reference, dict) else None
    return uri if isinstance(uri, str) else None


def _filled(template: str, arguments: Arguments) -> str:
    """The URI of a template. A variable without a value is empty."""

    def value(match: re.Match[str]) -> str:
        given = arguments.get(match[1].lstrip("+#./;?&").partition("*")[0].partition(":")[0])
        return given if isinstance(given, str) else ""

    return _VARIABLE.sub(value, template)


def _unresolvable(rule: str, reason: str) -> Unresolvable:
    return Unresolvable(ground=Ground(rule, reason))

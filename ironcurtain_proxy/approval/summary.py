"""A call in one line, for whoever is asked. Pure: no I/O, no clock, no log.

A summary is for the eye and proves nothing: the arguments stand in the question in full.
"""

from collections.abc import Callable
from typing import Final

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.request import AccessRequest

MAX_CHARACTERS: Final = 200
"""Of a command or a URL; not bytes, so that no character is cut in two."""

_CONTENT: Final = ("content", "contents", "text")
"""The arguments that hold what is written to a file."""


def summary(
    request: AccessRequest,
    arguments: Arguments,
    command: str | None,
    mask: Callable[[str], str],
) -> str:
    """What a call does, as far as its facts tell.

    Args:
        request: the facts.
        arguments: what would be sent.
        command: the shell command in them, if there is one.
        mask: takes secrets out of a text. It sees every text before it is cut.
    """
    if command is not None:
        return f"Execute: {_cut(mask(command))}"
    return (
        _of_write(request, arguments, mask)
        or _of_delete(request, mask)
        or _of_fetch(request, mask)
        or f"Tool: {visible(request.tool)}"
    )


def _of_write(
    request: AccessRequest, arguments: Arguments, mask: Callable[[str], str]
) -> str | None:
    path = _named(request, "write-path", mask)
    if path is None:
        return None
    if "edit" in request.tool.lower():
        return f"Edit file: {path}"
    content = next((c for c in map(arguments.get, _CONTENT) if isinstance(c, str)), None)
    if content is None:
        return None
    return f"Write to {path} ({len(content.encode('utf-8', 'surrogatepass'))} bytes)"


def _of_delete(request: AccessRequest, mask: Callable[[str], str]) -> str | None:
    # What is gone from one place and appears in another was moved.
    if any("write-path" in fact.roles for fact in request.arguments):
        return None
    path = _named(request, "delete-path", mask)
    return None if path is None else f"Delete: {path}"


def _of_fetch(request: AccessRequest, mask: Callable[[str], str]) -> str | None:
    texts = _texts(request, "fetch-url")
    return f"Navigate to: {_cut(mask(texts[0]))}{_more(texts)}" if texts else None


def _named(request: AccessRequest, role: ArgumentRole, mask: Callable[[str], str]) -> str | None:
    texts = _texts(request, role)
    return f"{visible(mask(texts[0]))}{_more(texts)}" if texts else None


def _texts(request: AccessRequest, role: ArgumentRole) -> list[str]:
    return [value.text for fact in request.arguments if role in fact.roles for value in fact.values]


def _more(texts: list[str]) -> str:
    return f" and {len(texts) - 1} more" if len(texts) > 1 else ""


def _cut(text: str) -> str:
    cut = text[:MAX_CHARACTERS]
    return visible(cut) + ("..." if len(text) > MAX_CHARACTERS else "")

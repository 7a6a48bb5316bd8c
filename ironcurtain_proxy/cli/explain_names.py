"""Names of tools in all their spellings. Not a command itself.

Agents and clients say `server__tool`, or the bare name where there is one server; the operator
writes `server/tool`.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ironcurtain_proxy.config.annotating.texts import words_of
from ironcurtain_proxy.config.policy.lint import of_same_verb
from ironcurtain_proxy.config.reading.problems import nearest, shown
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import Annotations

SEPARATOR: Final = "__"


def tool_meant(name: str, servers: Sequence[str], *, may_be_bare: bool) -> tuple[str, str]:
    """Return the server and the tool that a name stands for.

    Args:
        name: as it was written.
        servers: the names that a server may have here.
        may_be_bare: whether there is only one server, whose tools keep their own names.

    Raises:
        ConfigurationError: it is no name of a tool.
    """
    server, slash, tool = name.partition("/")
    if slash and server and tool:
        return server, tool
    # The longest name first: one server may be called `a`, another `a__b`.
    for known in sorted(servers, key=len, reverse=True):
        tool = name.removeprefix(known + SEPARATOR)
        if tool not in {name, ""}:
            return known, tool
    server, found, tool = name.partition(SEPARATOR)
    if server and found and tool:
        return server, tool
    if may_be_bare and name and not slash:
        return servers[0], name
    raise ConfigurationError(
        f"{name!r} is not SERVER/TOOL, such as filesystem/read_file, nor the agent's SERVER__TOOL"
    )


def refuse_unknown_server(
    server: str, configured: Iterable[str], known: Collection[str] = ()
) -> None:
    """Refuse a server that nobody configured or annotated.

    Raises:
        ConfigurationError: with the name that was probably meant.
    """
    names = [*configured]
    if server in names or server in known:
        return
    guess = nearest(server, names) or nearest(server, known)
    hint = f" (did you mean {shown(guess)}?)" if guess else ""
    listed = ", ".join(names) or "none"
    raise ConfigurationError(f"there is no server {shown(server)}{hint}; configured: {listed}")


def about_unknown_tool(server: str, tool: str, annotations: Annotations) -> list[str]:
    """Return a note if nobody annotated the tool."""
    if (server, tool) in annotations:
        return []
    known = [name for owner, name in annotations if owner == server]
    verbs = {words_of(name)[:1] for _, name in annotations}
    guess = nearest(tool, of_same_verb(tool, known) if words_of(tool)[:1] in verbs else known)
    if guess:
        return ["", f"tool {shown(tool)} has no annotation: did you mean {shown(guess)}?"]
    how = "no rule allows it until you describe it with `ironcurtain-proxy annotate`"
    return ["", f"tool {shown(tool)} has no annotation: {how}"]

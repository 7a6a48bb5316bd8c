"""The rule that would make a question unnecessary, and its insertion into `policy.yaml`.

Some kinds of calls are never general: what deletes, runs, pushes, publishes, merges or deploys is
asked about each time, so that no rule is proposed for it. The same holds for writing what programs
start or load by themselves, such as `~/.bashrc` or `~/.config/autostart`, and for paths with
characters that nobody sees: an agent asks as often as it likes, to have a rule proposed.

A rule is inserted before all others. Only its place in the text is changed: comments and order
stay. The caller that writes the result reads it again.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.policy_file import SECRETS
from ironcurtain_proxy.config.policy.short_form import EVERY, secret_names
from ironcurtain_proxy.control_places.rules import may_be_control
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import PATH_ROLES, URL_ROLES, ArgumentRole
from ironcurtain_proxy.model.conditions import DomainCondition, PathCondition
from ironcurtain_proxy.model.decision import Allow
from ironcurtain_proxy.model.escalation import is_invisible
from ironcurtain_proxy.model.operation import TOOL_CALL
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, Facts, PathValue, UrlValue
from ironcurtain_proxy.model.values import RealPath, SqlEffect

_NEVER_ROLES: Final[frozenset[ArgumentRole]] = frozenset(
    {
        *("delete-path", "delete-history", "write-history", "git-remote-url", "command"),
        *("unclear", "share-permission", "email-address", "resource-uri"),
    }
)
_NEVER_WORDS: Final = frozenset(
    {"delete", "remove", "drop", "destroy", "purge", "truncate", "reset", "revoke", "force", "hard"}
    | {"merge", "publish", "deploy", "release", "push", "prune", "mirror", "kill", "terminate"}
    | {"run", "exec", "execute", "eval", "evaluate", "shell", "sudo", "script", "scale", "rollback"}
)
_SYSTEM: Final = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "sys"}
    | {"usr", "var"}
)
"""Directories below the root that hold programs and what they are set up by."""
_HOST: Final = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")
_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class RuleProposal(Struct, frozen=True, kw_only=True):
    """A rule that allows a tool, perhaps below a directory, on hosts, or for SQL that reads."""

    server: str
    """The server's name in rules."""
    tool: str
    within: RealPath | None = None
    hosts: tuple[str, ...] = ()
    sql: SqlEffect | None = None
    has_paths: bool = False
    """Whether the tool names files. Files that usually hold secrets then stay denied."""

    @property
    def conditions(self) -> list[tuple[str, Sequence[str]]]:
        """The keys of its entry in `policy.yaml`."""
        found: list[tuple[str, Sequence[str]]] = []
        if self.within is not None:
            found.append(("within", [str(self.within)]))
        if self.has_paths:
            found.append(("except", [SECRETS]))
        if self.hosts:
            found.append(("hosts", self.hosts))
        if self.sql is not None:
            found.append(("sql", [self.sql]))
        return found

    @property
    def arguments(self) -> list[str]:
        """The arguments of `ironcurtain-proxy policy` that add the rule."""
        words = ["allow", f"{self.server}/{self.tool}"]
        if self.within is not None:
            words += ["--path", str(self.within)]
        for host in self.hosts:
            words += ["--host", host]
        return [*words, *([] if self.sql is None else ["--sql", self.sql])]

    @property
    def command(self) -> str:
        """The command that adds the rule."""
        return shlex.join(["ironcurtain-proxy", "policy", *self.arguments])

    def rule(self) -> Rule:
        """Return the proposal as a rule of the policy."""
        within = self.within
        return Rule(
            name=f"allow-{self.server}-{self.tool}",
            effect="allow",
            reason="proposed",
            servers=frozenset([self.server]),
            tools=frozenset([self.tool]),
            paths=None if within is None else PathCondition(roles=PATH_ROLES, within=within),
            excepting=secret_names(frozenset({"read-path"})) if self.has_paths else None,
            domains=DomainCondition(roles=URL_ROLES, allowed=frozenset(self.hosts))
            if self.hosts
            else None,
            sql=self.sql,
        )

    def first_in(self, policy: Policy) -> Policy:
        """Return the policy with this rule before all others."""
        return replace(policy, rules=(self.rule(), *policy.rules))


def is_never_general(facts: Facts, workspace: RealPath | None) -> bool:
    """Return whether a call is of a kind for which no rule is proposed."""
    request = facts.request
    for fact in request.arguments:
        for value in fact.values:
            if isinstance(value, PathValue) and (
                any(map(is_invisible, str(value.path)))
                or (fact.roles != ("read-path",) and _is_started(value.path, workspace))
            ):
                return True
    roles = {role for fact in request.arguments for role in fact.roles}
    names = [request.tool, *facts.arguments, *[fact.name for fact in request.arguments]]
    words = {part.lower() for name in names for part in _PARTS.findall(name)}
    return (
        request.method != TOOL_CALL
        or not request.annotated
        or facts.command is not None
        or facts.pushes
        or request.effect in {"destroys", "runs"}
        or not roles.isdisjoint(_NEVER_ROLES)
        or not words.isdisjoint(_NEVER_WORDS)
    )


def _is_started(path: RealPath, workspace: RealPath | None) -> bool:
    """Return whether programs may start or load a file by themselves, by its names."""
    names = path.parts
    if workspace is not None and path.is_within(workspace):
        names = names[len(workspace.parts) :]
    elif names and names[0] in _SYSTEM:
        return True
    pairs = zip(("", *names), names, strict=False)
    return any(name == "bin" or may_be_control(above, name) for above, name in pairs)


def proposal_for(
    facts: Facts, policy: Policy, is_directory: Callable[[RealPath], bool]
) -> RuleProposal | None:
    """Return the narrowest rule that allows a call.

    It is None if there is none, or it may not be general.
    """
    if isinstance(authorize(facts.request, policy), Allow):
        return None
    return next(
        (
            one
            for one in proposals(facts, policy, is_directory)
            if isinstance(authorize(facts.request, one.first_in(policy)), Allow)
        ),
        None,
    )


def proposals(
    facts: Facts, policy: Policy, is_directory: Callable[[RealPath], bool]
) -> Iterator[RuleProposal]:
    """Yield rules that may allow a call, narrow ones first; not all of them do."""
    request = facts.request
    if is_never_general(facts, policy.workspace):
        return
    values = [value for fact in request.arguments for value in fact.values]
    paths = [value.path for value in values if isinstance(value, PathValue)]
    urls = [value for value in values if isinstance(value, UrlValue)]
    hosts = sorted({domain for url in urls for domain in url.domains})
    base = RuleProposal(server=request.server, tool=request.tool, has_paths=bool(paths))
    if any("sql" in fact.roles for fact in request.arguments):
        yield replace(base, sql="reads")
    elif urls:
        # An agent may write `*.org` or `@news` for a host, which a rule reads as many.
        if all(url.ordinary for url in urls) and all(map(_HOST.fullmatch, hosts)):
            yield replace(base, hosts=tuple(hosts))
    elif paths:
        outside = [path for path in paths if not _is_own(path, policy.workspace)]
        for directory in _directories(outside or paths, policy, is_directory):
            yield replace(base, within=directory)
    elif not _names_paths(request):
        yield base


def _names_paths(request: AccessRequest) -> bool:
    return any(not PATH_ROLES.isdisjoint(fact.roles) for fact in request.arguments)


def _is_own(path: RealPath, workspace: RealPath | None) -> bool:
    return workspace is not None and path.is_within(workspace)


def _directories(
    paths: Sequence[RealPath], policy: Policy, is_directory: Callable[[RealPath], bool]
) -> Iterator[RealPath]:
    """Yield directories that hold all of the paths, the narrowest first; at least the path itself.

    Those of paths in the workspace end with it.
    """
    first, *rest = paths
    workspace = policy.workspace
    depth = len(first.parts) if not rest and is_directory(first) else len(first.parts) - 1
    held = [entry.path for entry in policy.protected_paths]
    # Two names below the root are the least: a home, or a system directory, is never opened.
    least = 2
    if workspace is not None and _is_own(first, workspace):
        least, depth = len(workspace.parts) - 1, max(depth, len(workspace.parts))
    elif workspace is not None:
        held.append(workspace)
    found = False
    for length in range(depth, least, -1):
        directory = RealPath(first.parts[:length])
        if any(path.is_within(directory) for path in held):
            break
        if all(path.is_within(directory) for path in rest):
            found = True
            yield directory
    if not found and not rest:
        yield first


def is_directory(path: RealPath) -> bool:
    """Return whether a path is a directory now."""
    try:
        return Path(str(path)).is_dir()
    except OSError:
        return False


# --- editing


_PLAIN: Final = re.compile(r"[A-Za-z_/~.][A-Za-z0-9_./~-]*")
_READ_OTHERWISE: Final = frozenset(
    {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "."}
)
_LINE: Final = re.compile(r"(allow|ask|deny) +(\S+): +(\S.*)$(?!\n[ \t]+\S)", re.MULTILINE)
"""A rule that stands in one line."""
_KEY: Final = re.compile(r"^(allow|ask|deny)(?:[ ]+(\S.*?))?[ ]*:", re.MULTILINE)


def with_rule(
    text: str, verb: str, server: str, tool: str, conditions: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """Return the text with a rule before all others.

    Args:
        text: the text of the file, or empty if there is no file.
        verb: `allow`, `ask` or `deny`.
        server: the server's name in rules.
        tool: its own name of the tool, or `*`.
        conditions: keys of an entry, such as `within`, with their values.

    Raises:
        ConfigurationError: the file has such a line already, which has to be edited by hand.
    """
    value = _scalar(tool)
    if conditions:
        inner = [f"tools: {value}", *[f"{key}: {_list(values)}" for key, values in conditions]]
        value = "{" + ", ".join(inner) + "}"
    merged = _merged(text, verb, server, value)
    if merged is not None:
        return merged
    keys = {match.group(1, 2) for match in _KEY.finditer(text)}
    name = _scalar(server)
    if (verb, name) not in keys and (verb, server) not in keys:
        line = f"{verb} {name}: {value}\n"
    elif (verb, None) not in keys:
        # YAML refuses two equal keys, so the rule is written in its other spelling.
        line = f"{verb}: {{{name}: {value}}}\n"
    else:
        raise ConfigurationError(
            f"the file has rules that {verb} {server} already: put this first among them: {value}"
        )
    place = _place(text)
    return text[:place] + line + text[place:]


def _merged(text: str, verb: str, server: str, value: str) -> str | None:
    """Return the text with the value added to its first rule about the server.

    None: that rule has another verb or several lines, or other such rules stand before it.
    """
    line = _LINE.match(text, _place(text))
    while line is not None and _about_others(line, server):
        line = _LINE.match(text, line.end() + _place(text[line.end() :]))
    if line is None or line[1] != verb or _server(line) != server:
        return None
    held = line[3].rstrip()
    inside = held[1:-1].strip() if held.startswith("[") and held.endswith("]") else held
    if not inside or "#" in held or held[0] in "&*!|>":
        return None
    return f"{text[: line.start(3)]}[{value}, {inside}]{text[line.end(3) :]}"


def _about_others(line: re.Match[str], server: str) -> bool:
    """Return whether the order of this rule and one about the server has no effect."""
    return EVERY not in {server, _server(line)} and _server(line) != server


def _server(line: re.Match[str]) -> str:
    return line[2].strip("\"'")


def _place(text: str) -> int:
    """Return the position behind the comments at the top, before the first rule."""
    place = 0
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.lstrip().startswith("#") and not line.startswith("base:"):
            break
        if not line.endswith("\n"):
            break
        place += len(line)
    return place


def _list(values: Sequence[str]) -> str:
    found = [_scalar(value) for value in values]
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def _scalar(text: str) -> str:
    if text != EVERY and _PLAIN.fullmatch(text) and text.lower() not in _READ_OTHERWISE:
        return text
    return orjson.dumps(text).decode()

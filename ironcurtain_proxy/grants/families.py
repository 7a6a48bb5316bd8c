"""Grants of shell commands, in this project and in other worktrees of its repository.

A command is covered when each of its parts that does more than read belongs to a family that was
approved for this project, or when it is the identical call. `shell.families` makes the families;
their meanings in files are part of the command's place, read with its facts.

All worktrees hold branches of one repository, between which a session in one of them may change
anyway. So a family means the same in each, if nothing in it names a place outside its project.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.grants.patterns import HISTORY, EscalatedCall, is_of, short_path
from ironcurtain_proxy.model.annotation import same_scalar
from ironcurtain_proxy.model.escalation import as_json, visible
from ironcurtain_proxy.model.grant import CallPattern, FamilyPattern, Grant, SameFlag
from ironcurtain_proxy.model.request import (
    FETCHES,
    ONLY_READS,
    OWN_BRANCH,
    READS_BELOW,
    SERVICES,
    CommandPlace,
    Family,
    PathValue,
)
from ironcurtain_proxy.model.values import Json, RealPath, lazy

# --- worktrees


def is_same_repository(pattern: FamilyPattern, place: CommandPlace) -> bool:
    """Return whether a pattern is of the workspace, or another worktree of its repository."""
    if str(pattern.workspace) == place.workspace:
        return True
    return pattern.repository is not None and str(pattern.repository) == place.repository


def holds_in_worktrees(family: Family, workspace: RealPath) -> bool:
    """Return whether a family that was approved in one worktree means the same in each.

    `--out=../x` is another file seen from another worktree, and the workspace of the approval is
    no longer the project.
    """
    words = (*family.program, *family.kept, *family.around)
    return not any(
        ".." in word.replace("...", "") or "~" in word or str(workspace) in word for word in words
    )


def in_worktree(family: Family, pattern: FamilyPattern, place: CommandPlace) -> Family | None:
    """Return a family of a pattern as it is in a place, or None if it does not hold there.

    The digest of its meaning says where files lie in the worktree, and stays as it is.
    """
    if family.is_of_remote:
        return family
    return moved(family, pattern.workspace, place) if is_same_repository(pattern, place) else None


def moved(family: Family, workspace: RealPath, place: CommandPlace) -> Family | None:
    """Return a family as it is in another worktree, or None if it does not hold there.

    Args:
        family: the approved one.
        workspace: of the approval.
        place: in a worktree of the same repository.
    """
    if str(workspace) == place.workspace:
        return family
    if place.workspace is None or not holds_in_worktrees(family, workspace):
        return None
    if family.directory is None:
        return family
    there = RealPath.from_text(family.directory)
    if not there.is_within(workspace):
        return family
    here = RealPath.from_text(place.workspace)
    return replace(
        family, directory=str(RealPath(here.parts + there.parts[len(workspace.parts) :]))
    )


# --- families


_MOST_PARTS = 6
"""The most parts of a command that are offered one by one."""


class CommandCandidates(Struct, frozen=True, kw_only=True):
    """The candidates for a command."""

    patterns: tuple[FamilyPattern | CallPattern, ...]
    """The most probable choice first: the families of all its parts, else the identical call."""
    is_general: bool
    """Whether the whole tool may be remembered: no part leaves, or is of a kind that never may."""


def command_candidates(
    call: EscalatedCall, home: RealPath | None = None, ending: str = ""
) -> CommandCandidates | None:
    """Return the candidates of a call's command, or None if it has none.

    Args:
        call: what is asked.
        home: is written `~`.
        ending: until when it holds, in words, or empty if that is not sure.
    """
    if call.command is None:
        return None
    if not call.definition:
        return CommandCandidates(patterns=(), is_general=False)
    needed = _needed(call)
    patterns: list[FamilyPattern | CallPattern] = []
    if needed is not None and call.place.workspace is not None and _is_about_the_project(call):
        general = tuple([one.widened() for one in needed if _may_be_general(one)])
        general = tuple(dict.fromkeys(general))
        workspace = RealPath.from_text(call.place.workspace)
        shared = call.place.repository
        chosen = [general] if general or not needed else []
        if 1 < len(general) <= _MOST_PARTS:
            chosen += [(one,) for one in general]
        patterns += [
            FamilyPattern(
                server=call.server,
                tool=call.tool,
                definition=call.definition,
                workspace=workspace,
                repository=None if shared is None else RealPath.from_text(shared),
                families=families,
                phrases=(
                    phrases := described(
                        families, workspace, home, has_worktrees=shared is not None
                    )
                ),
                beside=beside(call),
                description=" and ".join(phrases) + (f" {ending}" if ending else ""),
            )
            for families in chosen
        ]
    identical = identical_call(call)
    if identical is not None:
        # Without a family for each part, whoever chose the others would be asked the same again.
        is_whole = all(map(_may_be_general, needed or ()))
        patterns.insert(len(patterns) if is_whole else 0, identical)
    return CommandCandidates(
        patterns=tuple(patterns),
        is_general=not (is_never_general(call) or leaves(call)),
    )


def single_families(
    pattern: FamilyPattern | CallPattern,
) -> tuple[FamilyPattern | CallPattern, ...]:
    """Return the patterns to remember: a grant for each family."""
    if isinstance(pattern, CallPattern):
        return (pattern,)
    if not pattern.families:
        return (replace(pattern, description=pattern.phrases[0]),)
    listed = [
        replace(pattern, families=(one,), phrases=(said,), description=said)
        for one, said in zip(pattern.families, pattern.phrases, strict=True)
    ]
    return tuple(listed)


def is_never_general(call: EscalatedCall) -> bool:
    """Tell whether a part of the command is remembered as the identical call alone, or not read."""
    needed = _needed(call)
    return needed is None or not all(family.is_general for family in needed)


def leaves(call: EscalatedCall) -> bool:
    """Return whether the command of a call is known to leave this machine or its sandbox."""
    return _effect(call) in {"outward", "beyond"}


def only_reads(call: EscalatedCall) -> bool:
    """Return whether the command of a call is known to only read, and so needs no approval."""
    return _effect(call) == "reads"


def _effect(call: EscalatedCall) -> str | None:
    if call.command is None:
        return None
    # With the tables of programs, which only calls with a command need.
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415

    return effect_of(call.command, call.place).effect


def of_command(grant: Grant, call: EscalatedCall) -> bool:
    """Return whether a grant covers commands of this tool in its current definition."""
    pattern = grant.pattern
    return isinstance(pattern, FamilyPattern | CallPattern) and is_of(pattern, call)


def covering(grants: Sequence[Grant], call: EscalatedCall) -> tuple[Grant, ...] | None:
    """Return the grants that together cover a command, or None if a part of it is not covered.

    Args:
        grants: the grants for commands of this tool.
        call: one with a command.
    """
    if not grants:
        return None
    digest = digest_of(call)
    patterns = [(grant, grant.pattern) for grant in grants]
    for grant, pattern in patterns:
        if isinstance(pattern, CallPattern) and pattern.digest == digest:
            return (grant,)
    needed = _needed(call)
    if needed is None or not all(map(_may_be_general, needed)) or not _is_about_the_project(call):
        return None
    given = [(grant, one) for grant, one in patterns if isinstance(one, FamilyPattern)]
    given = [(grant, one) for grant, one in given if _is_called_alike(one, call)]
    if not needed:
        return next(
            (
                (grant,)
                for grant, one in given
                if not one.families and is_same_repository(one, call.place)
            ),
            None,
        )
    approved = {
        family: grant
        for grant, one in reversed(given)
        for said in one.families
        if (family := in_worktree(said, one, call.place)) is not None
    }
    used = [approved.get(one) or _by_a_wider(one, approved) for one in needed]
    found = {grant.id: grant for grant in used if grant is not None}
    return None if None in used else tuple(found.values())


def _by_a_wider(family: Family, approved: Mapping[Family, Grant]) -> Grant | None:
    """Return the grant of a wider family that covers this one."""
    # With the tables of families, as above.
    from ironcurtain_proxy.shell.kinds import wider  # noqa: PLC0415

    return next((approved[found] for found in wider(family) if found in approved), None)


def _may_be_general(family: Family) -> bool:
    """Return whether a family may cover another command, by its meaning on the disk."""
    return family.is_general and family.meaning is not None


def _is_called_alike(pattern: FamilyPattern, call: EscalatedCall) -> bool:
    """Return whether a pattern was given for the same arguments beside the command."""
    said = {flag.argument: flag.value for flag in pattern.beside}
    now = {flag.argument: flag.value for flag in beside(call)}
    return said.keys() == now.keys() and all(same_scalar(said[name], now[name]) for name in now)


def is_of_remote(pattern: FamilyPattern) -> bool:
    """Return whether a pattern is about remote repositories only, in any clone."""
    return bool(pattern.families) and all(one.is_of_remote for one in pattern.families)


def _needed(call: EscalatedCall) -> tuple[Family, ...] | None:
    """Return the families of a command.

    None if these are unknown, or a file of one was not read.
    """
    if call.command is None:
        return None
    # The tables of families, which only calls with a command need.
    from ironcurtain_proxy.shell.families import families_of  # noqa: PLC0415

    found = families_of(call.command, call.place, held=call.held)
    return found and tuple([replace(one, meaning=None) if one.defined_in else one for one in found])


def _is_about_the_project(call: EscalatedCall) -> bool:
    """Return whether the policy asks only about the project: the directory of the command.

    A grant of families covers no other argument.
    """
    workspace = call.place.workspace
    if workspace is None or not HISTORY.isdisjoint(call.open_roles):
        return False
    # The command is read by itself, and is what the families are of.
    roles = [role for role in call.open_roles if role != "command"]
    values = [value for role in roles for value in call.values(role)]
    inside = RealPath.from_text(workspace)
    return all(isinstance(one, PathValue) and one.path.is_within(inside) for one in values)


def beside(call: EscalatedCall) -> tuple[SameFlag, ...]:
    """Return the arguments that may change a command's effect, without time limits.

    Texts and lists are not among them: beside a working directory and prose for people, a command
    with such an argument is not read at all.
    """
    return tuple(
        SameFlag(name, value)
        for name, value in sorted(call.arguments.items())
        if isinstance(value, bool | int | float) and not _is_a_limit(name, value)
    )


def _is_a_limit(name: str, value: Json) -> bool:
    return not isinstance(value, bool) and bool(_LIMITS.search(name))


_LIMITS: Final = lazy(r"timeout|limit|max|yield|wait", re.IGNORECASE)


def identical_call(call: EscalatedCall) -> CallPattern | None:
    """Return the pattern of exactly this call, or None if its meaning is unknown."""
    if any(meaning is None for _, meaning in call.place.meanings or ()):
        return None
    return CallPattern(
        server=call.server,
        tool=call.tool,
        definition=call.definition,
        digest=digest_of(call),
        description=visible(
            f"exactly this call again, in this session ({call.server}/{call.tool})"
            + ("" if call.command is None else ", also with `| head` or `| tail`")
            + "".join([f"; what `{name}` unpacks is not listed here" for name in _unpacking(call)])
        ),
    )


def _unpacking(call: EscalatedCall) -> list[str]:
    """Return the programs of a command that write what an archive holds."""
    found = {name for one in _needed(call) or () for name in one.program[:1] if not one.is_general}
    return sorted(found & {"tar", "bsdtar", "gtar", "unzip"})


_SHOWS: Final = lazy(
    r"(?:[ \t]++2>&1)?[ \t]*+(?<![\\|&>])\|[ \t]*+(?:tail|head)"
    r"(?:[ \t]++(?:-n[ \t]*+)?-?[0-9]+)?\s*+\Z"
)
"""A filter at the end of a command that only shows less of what it prints."""


def digest_of(call: EscalatedCall) -> str:
    """SHA-256 of everything that determines a call's effect.

    How much of a command's output is shown is no part of it: `make deploy | tail -15` does what
    `make deploy` does.
    """
    given = call.arguments
    if _is_shortened(call):
        given = {
            name: _SHOWS.sub("", value) if isinstance(value, str) else value
            for name, value in given.items()
        }
    arguments = sorted(as_json(name) + as_json(value) for name, value in given.items())
    said = repr((call.server, call.tool, arguments, call.place))
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _is_shortened(call: EscalatedCall) -> bool:
    """Return whether the command ends in a filter: to the parser, not only by its text."""
    if call.command is None or call.command.unreadable is not None or not call.command.commands:
        return False
    last = call.command.commands[-1]
    return bool(last.words) and last.words[0].text in {"tail", "head"} and not last.redirections


# --- in words ------------------------------------------------------------------------------------


def described(
    families: Sequence[Family],
    workspace: RealPath,
    home: RealPath | None = None,
    *,
    has_worktrees: bool = False,
) -> tuple[str, ...]:
    """Return families in words, a line for each: "`go test` in ~/project".

    Args:
        families: those of one approval, or none if commands that only read.
        workspace: the project.
        home: is written `~`.
        has_worktrees: whether the approval also holds in other worktrees of its repository.
    """
    said = [
        _phrase(one, home, _place_phrase(one, workspace, home, has_worktrees=has_worktrees))
        for one in families
    ]
    where = f"{short_path(str(workspace), home)}{_WORKTREES if has_worktrees else ''}"
    return tuple(said or [f"commands that only read in {where}"])


_WORKTREES: Final = " and other worktrees of its repository"


def _phrase(family: Family, home: RealPath | None, place: str) -> str:
    words = [*family.program, *family.kept]
    target = ""
    if family.program == (SERVICES,):
        return f"{_plain(' at '.join(words))}, {_PORTS}, {place}"
    if family.program[-1:] == (READS_BELOW,):
        return f"{READS_BELOW} {_plain(short_path(family.kept[0], home))}"
    if family.program[-1:] == (ONLY_READS,):
        return _reading_phrase(family, place)
    if family.program[-1:] == (FETCHES,):
        remote = _plain(" ".join(family.kept))
        return f"`git fetch`, `git ls-remote` from {remote}, {_PULL} {place}{_reach_phrase(family)}"
    if words[:2] in (["git", "push"], ["git", "fetch"], ["git", "pull"]):
        named = [word for word in words[2:] if not word.startswith("-")]
        target = f" to {'/'.join(named)}" if words[1] == "push" else f" from {' '.join(named)}"
        if named[-1:] == [OWN_BRANCH]:
            target = f" to {OWN_BRANCH} at {named[0]}, never a shared, protected or temporary one,"
        target = target if named else ""
        words = [word for word in words if word not in named]
    return f"`{_plain(family.spelled(words))}`{_plain(target)} {place}{_reach_phrase(family)}"


_PULL: Final = "and `git pull` where a sandbox holds what it changes,"
_PORTS: Final = "any port but those of proxies and control services, also with files of the project"


def _reading_phrase(family: Family, place: str) -> str:
    """`gh` commands that only read other/app (reaches api.github.com)."""
    named = [one.removeprefix("--repo=") for one in family.kept]
    place = _plain(" ".join(named)) if named else place
    program = family.spelled(family.program[:-1])
    quoted = f"`{_plain(program)}` " if program else ""
    return f"{quoted}{ONLY_READS} {place}{_reach_phrase(family)}"


def _place_phrase(
    family: Family, workspace: RealPath, home: RealPath | None, *, has_worktrees: bool
) -> str:
    directory = family.directory or str(workspace)
    place = f"in {_plain(short_path(directory, home))}"
    if family.is_of_remote:
        return f"{place} and other clones of its remote"
    is_inside = RealPath.from_text(directory).is_within(workspace)
    is_shared = has_worktrees and is_inside and holds_in_worktrees(family, workspace)
    return f"{place}{_WORKTREES}" if is_shared else place


def _reach_phrase(family: Family) -> str:
    return _plain(f" (reaches {' and '.join(family.hosts)})" if family.hosts else "")


def _plain(text: str) -> str:
    """Return the agent's words, escaped so that they cannot end the quotation."""
    return visible(text).replace("`", "\\u0060")

"""Whether sandbox and timeline can replace the reviewer of a call.

A call that stays inside its sandbox and can be undone needs no reviewer. Calls that leave the
sandbox, that cannot be undone, or that show the agent data which is otherwise asked about, go to
a reviewer. Every condition is a fact about the process that serves the call. The text of a command
can add a question, and never take one away.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.annotation import CHANGES, ROLE_TRAITS, ArgumentRole, ToolEffect
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Escalate, Ground
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    Facts,
    PathValue,
    may_be_a_place,
    sql_of,
)
from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath, SqlEffect, words

CallEffect: TypeAlias = Literal["reads", "local", "unknown", "beyond", "outward"]
"""The effect of a call outside its sandbox, in the words of `shell.effects`."""

_LEAVES: Final[frozenset[ArgumentRole]] = frozenset(
    {"email-address", "email-body", "message", "share-permission"}
)
_HOST: Final = "host "
_INVARIANT: Final = "structural-"
_INSTALLERS: Final = words(
    """
    npm npx pnpm yarn bun pip pip3 uv uvx poetry pdm hatch conda mamba cargo gem bundle composer mvn
    mvnw gradle gradlew sbt cs dotnet nuget mix dart flutter cabal
    """
)
"""Programs that run what their packages bring."""
_PUBLISHES: Final = words(
    "publish login logout whoami owner access token dist-tag deprecate unpublish yank push upload"
)
_PUBLIC: Final = words(
    """
    registry.npmjs.org registry.yarnpkg.com pypi.org files.pythonhosted.org crates.io
    index.crates.io static.crates.io rubygems.org index.rubygems.org repo.packagist.org
    packagist.org repo.maven.apache.org repo1.maven.org plugins.gradle.org services.gradle.org
    api.nuget.org
    www.nuget.org hex.pm repo.hex.pm pub.dev proxy.golang.org sum.golang.org conda.anaconda.org
    repo.anaconda.com github.com codeload.github.com
    """
)
"""Registries that anyone reads without an account."""
_SHOWN: Final = frozenset({"secrets.access", "data.user"})
"""The reason for reads: data shown to the agent cannot be taken back."""


class EffectFound(Struct, frozen=True, kw_only=True):
    """The effect of a call, and the reason for it."""

    effect: CallEffect
    reason: str


_DECLARED: Final[Mapping[ToolEffect, EffectFound]] = MappingProxyType(
    {
        "reads": EffectFound(effect="reads", reason="its annotation says that it only reads"),
        "writes": EffectFound(effect="local", reason="its annotation says that it changes files"),
        "destroys": EffectFound(effect="local", reason="its annotation says that it deletes"),
        "sends": EffectFound(effect="outward", reason="its annotation says that it sends"),
        "runs": EffectFound(effect="unknown", reason="its annotation says that it runs programs"),
    }
)
_BY_ROLES: Final = EffectFound(effect="local", reason="it changes files of the workspace")


class ContainmentInput(Struct, frozen=True, kw_only=True):
    """The inputs of the decision on containment, except the timeline's."""

    facts: Facts
    judged: Judgement
    workspace: RealPath | None
    restrictions: SandboxRestrictions | None
    """The limits of the process that would serve the call, or None if it is not confined."""
    for_reviewers: Rule | None
    """The rule with `contained: false` that applies, or None if there is none."""
    asked_to_read: bool
    """Whether a rule keeps the reading of the call for reviewers."""
    tried: str
    """The host that an identical call tried to reach earlier, or empty if there is none."""


def why_asked(about: ContainmentInput) -> str | None:
    """Return why an escalated call needs a reviewer, or None if containment replaces one."""
    not_held = why_not_held(about)
    if not_held is not None or about.workspace is None:
        return not_held or "there is no workspace"
    return _why_not_local(about.facts, about.workspace)


def _why_for_people(about: ContainmentInput) -> str | None:
    """Return why a person is asked about a call, whatever the sandbox holds, or None."""
    if about.facts.secrets:
        return "what is sent holds a secret"
    if about.facts.client_asks:
        return "the agent's client asks its user"
    if about.facts.acts_by_itself:
        return "programs act by themselves on what it changes"
    if any(one.origin == "target" for one in about.judged.reasons):
        return "nobody whom you trust named its target"
    return None


def why_not_held(about: ContainmentInput) -> str | None:
    """Return why the sandbox does not hold the effects of a call, or None if it holds them.

    Parts of a command that leave the sandbox are another matter.
    """
    if not about.facts.request.annotated:
        return _undescribed(about.facts.request)
    if about.for_reviewers is not None:
        return f"the rule {about.for_reviewers.name} keeps such calls for reviewers"
    if about.workspace is None:
        return "there is no workspace"
    if why := _why_for_people(about):
        return why
    if about.tried:
        return f"the same call has tried to reach {about.tried}"
    return why_open(about.restrictions, about.workspace) or _why_shown(about)


def _undescribed(request: AccessRequest) -> str:
    what = "an argument of the tool" if request.undescribed else "the tool"
    return f"nobody has described {what}"


def why_open(restrictions: SandboxRestrictions | None, workspace: RealPath) -> str | None:
    """Return why a process is not confined enough, or None if it is confined enough.

    Args:
        restrictions: of the process, or None if it is not confined.
        workspace: what can be taken back.
    """
    if restrictions is None:
        return "the server does not run in a sandbox"
    return restrictions.unfit or _why_wide(restrictions, workspace)


def _why_wide(restrictions: SandboxRestrictions, workspace: RealPath) -> str | None:
    if not restrictions.is_offline:
        return "the sandbox of the server has a network"
    if not restrictions.writes_only_in(workspace):
        return "the sandbox of the server lets it write outside the workspace"
    if restrictions.shown:
        return f"a credential appeared after the sandbox started: {restrictions.shown[0]}"
    if restrictions.is_full:
        return "the server's own /tmp holds too much"
    return None


def _why_not_local(facts: Facts, workspace: RealPath) -> str | None:
    found = effect_of_call(facts, workspace)
    return found.reason if found.effect in {"outward", "beyond"} else None


def _why_shown(about: ContainmentInput) -> str | None:
    """Return why a reviewer must see data before the agent does, or None if there is none."""
    decision = about.judged.decision
    if isinstance(decision, Escalate):
        if any(_is_invariant(ground) for ground in (decision.ground, *decision.by_role)):
            return "no rule asks, but what no rule can override"
        if "read-path" in decision.roles and about.asked_to_read:
            return "what is read cannot be taken back"
    if not _SHOWN.isdisjoint((*about.judged.capabilities, *_needs(about.facts))):
        return "it names a secret or personal data, and what is shown cannot be taken back"
    return None


def _is_invariant(ground: Ground) -> bool:
    return ground.rule.startswith(_INVARIANT)


def _needs(facts: Facts) -> frozenset[str]:
    if facts.command is None:
        return frozenset()
    # These modules hold tables of programs; only tools that run commands need them.
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415
    from ironcurtain_proxy.shell.operations import needs_of  # noqa: PLC0415

    return needs_of(facts.command, effect_of(facts.command, facts.place), held=True)


def effect_of_call(facts: Facts, workspace: RealPath | None) -> EffectFound:
    """Return the effect of a call outside its sandbox.

    Args:
        facts: of the call.
        workspace: what can be taken back.
    """
    named = _by_values(facts.request, workspace)
    if named is not None or facts.pushes:
        return named or EffectFound(effect="outward", reason="it sends to a git remote")
    if facts.command is not None:
        from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415  as above

        found = effect_of(facts.command, facts.place)
        return EffectFound(effect=found.effect, reason=found.reason)
    by_sql = _by_sql(facts.request)
    if by_sql is not None:
        return by_sql
    declared = facts.request.effect
    if declared is not None:
        return _DECLARED[declared]
    if any(fact.values and CHANGES & {*fact.roles} for fact in facts.request.arguments):
        return _BY_ROLES
    return EffectFound(effect="beyond", reason="no annotation says what the tool does")


_BY_SQL: Final[Mapping[SqlEffect, CallEffect]] = MappingProxyType(
    {"reads": "reads", "writes": "local", "destroys": "local", "runs": "beyond"}
)


def _by_sql(request: AccessRequest) -> EffectFound | None:
    """Return the effect of the statements for a database, or None if there are none."""
    found = sql_of(request)
    if found is None:
        return None
    return EffectFound(
        effect=_BY_SQL[found.effect], reason=f"its SQL {found.effect}: {found.reason}"
    )


def _by_values(request: AccessRequest, workspace: RealPath | None) -> EffectFound | None:
    """Return the effect of arguments that name resources outside the workspace.

    It is None if there are none.
    """
    for fact in request.arguments:
        if not fact.values:
            continue
        if _is_odd(fact) or ("unclear" in fact.roles and request.effect is None):
            return EffectFound(
                effect="beyond", reason=f"it is not clear what {fact.name[:60]} names"
            )
        if any(_leads_outside(role) for role in fact.roles):
            return EffectFound(effect="outward", reason="it names a host or an account")
        if not _LEAVES.isdisjoint(fact.roles):
            return EffectFound(effect="outward", reason="it names people")
        for value in fact.values:
            inside = not isinstance(value, PathValue) or (
                workspace is not None and value.path.is_within(workspace)
            )
            if not inside:
                return EffectFound(effect="beyond", reason="it names a path outside the workspace")
    return None


def _is_odd(fact: ArgumentFact) -> bool:
    """Return whether what should name a thing of the server's own may name a file or a host.

    A server that nobody knows may open what it calls an identifier: `.env` would be shown.
    """
    if not {"identifier", "unclear"} & {*fact.roles}:
        return False
    from ironcurtain_proxy.shell.places import names_a_secret_file  # noqa: PLC0415  as above

    return any(may_be_a_place(value) or names_a_secret_file(value.text) for value in fact.values)


def _leads_outside(role: ArgumentRole) -> bool:
    # An identifier names a thing of the server's own: the effect of the tool says the rest.
    return role != "identifier" and ROLE_TRAITS[role].category in {"url", "uri", "identifier"}


def why_alone(facts: Facts, workspace: RealPath | None, *, held: bool) -> tuple[str, ...]:
    """Return why a call is approved by itself, never together with others; empty if it is harmless.

    Only what is known to be harmless goes together: reading what is no secret, and changes of the
    workspace that no program makes or that the sandbox holds.

    Args:
        facts: of the call.
        workspace: what can be taken back.
        held: whether the sandbox holds the command, and the timeline can undo it.
    """
    return tuple(dict.fromkeys(_why_alone(facts, workspace, held=held)))


def _why_alone(facts: Facts, workspace: RealPath | None, *, held: bool) -> Iterator[str]:
    from ironcurtain_proxy.shell.places import names_a_secret_file  # noqa: PLC0415  as above

    request = facts.request
    if not request.annotated:
        yield _undescribed(request)
    needs = _needs(facts)
    values = [value for fact in request.arguments for value in fact.values]
    secret = any(names_a_secret_file(one.text) for one in values if isinstance(one, PathValue))
    if facts.secrets or secret or not _SHOWN.isdisjoint(needs):
        yield "it uses a secret or personal data"
    roles = {role for fact in request.arguments if fact.values for role in fact.roles}
    if "fs.delete" in needs or "delete-path" in roles or request.effect == "destroys":
        yield "it deletes"
    if not roles.isdisjoint({"write-history", "delete-history"}):
        yield "it changes the history of a repository"
    if "unclear" in roles:
        yield "it is not clear what an argument names"
    found = effect_of_call(facts, workspace)
    is_harmless = found.effect == "reads" or _only_reads(facts)
    if found.effect == "local":
        sql = sql_of(request)
        is_harmless = held or (facts.command is None and (sql is None or sql.effect == "writes"))
    if not is_harmless:
        yield found.reason


def _only_reads(facts: Facts) -> bool:
    """Return whether a call names nothing but paths to read, wherever they are."""
    roles = {role for fact in facts.request.arguments if fact.values for role in fact.roles}
    is_plain = facts.command is None and facts.request.effect in {None, "reads"}
    return is_plain and "read-path" in roles and roles <= {"read-path", "none"}


def may_change(facts: Facts, workspace: RealPath) -> tuple[RealPath, ...]:
    """Return the paths of the workspace that a call may change or delete.

    A command or a program may delete the whole workspace.
    """
    found = effect_of_call(facts, workspace)
    if found.effect == "reads":
        return ()
    if facts.command is not None or sql_of(facts.request) is not None:
        return (workspace,)
    paths = [
        value.path
        for fact in facts.request.arguments
        if not CHANGES.isdisjoint(fact.roles)
        for value in fact.values
        if isinstance(value, PathValue)
    ]
    if facts.request.effect in {"runs", "writes", "destroys"} and not paths:
        return (workspace,)
    return _within(paths, workspace)


def _within(paths: Sequence[RealPath], workspace: RealPath) -> tuple[RealPath, ...]:
    """Return paths below the workspace; a path that contains the workspace stands for all of it."""
    inside = [workspace if workspace.is_within(path) else path for path in paths]
    return tuple(dict.fromkeys([path for path in inside if path.is_within(workspace)]))


def written_outside(facts: Facts) -> tuple[RealPath, ...]:
    """Return the paths that a call's shell command names and its sandbox does not let it write."""
    if facts.command is None:
        return ()
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415
    from ironcurtain_proxy.shell.outward import paths_beyond  # noqa: PLC0415  as above

    parts = effect_of(facts.command, facts.place).parts
    found = [path for part in parts for path in paths_beyond(part.command, part.place)]
    return tuple([RealPath.from_text(path) for path in dict.fromkeys(found)])


def written_to_act(facts: Facts, workspace: RealPath) -> tuple[RealPath, ...]:
    """Return the paths that a call's shell command names to write, and programs act on."""
    if facts.command is None:
        return ()
    from ironcurtain_proxy.control_places.rules import control_of  # noqa: PLC0415  as above
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415
    from ironcurtain_proxy.shell.outward import words_written  # noqa: PLC0415
    from ironcurtain_proxy.shell.places import path_of  # noqa: PLC0415

    found: dict[RealPath, None] = {}
    for part in effect_of(facts.command, facts.place).parts:
        for word in words_written(part.command):
            named = path_of(word, part.place)
            path = None if named is None else RealPath.from_text(named)
            if path is not None and path.is_within(workspace) and path != workspace:
                place = control_of(
                    path.parts[len(workspace.parts) :],
                    is_directory=False,
                    is_link=False,
                    is_repository=lambda _parts: False,
                    is_settled=lambda _parts: True,
                )
                # In the place of a pointer could come a whole repository.
                found |= {} if place is None or place.kind == "pointer" else {path: None}
    return tuple(found)


def programs_outside(facts: Facts) -> tuple[str, ...]:
    """Return the programs of a call's shell command that may need a credential.

    They do something outside the machine. A program that installs packages runs what they bring,
    so that it needs none but to publish, or for a registry of the user's own.
    """
    if facts.command is None:
        return ()
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415  as above
    from ironcurtain_proxy.shell.outward import sub_commands  # noqa: PLC0415

    is_public = _PUBLIC.issuperset((*hosts_of(facts), *facts.place.every_host()))
    found: dict[str, None] = {}
    for part in effect_of(facts.command, facts.place).parts:
        if part.effect == "outward" and part.program is not None:
            asks = _PUBLISHES.isdisjoint(sub_commands(part.command.words[1:])[:1])
            if not (part.program in _INSTALLERS and asks and is_public):
                found[part.program] = None
    return tuple(found)


def runs_nothing_else(facts: Facts) -> bool:
    """Return True if all that a call's shell command runs reads, or acts outside the machine.

    A script beside `gh` would read the credential that is opened for `gh`.
    """
    if facts.command is None:
        return True
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415  as above

    parts = effect_of(facts.command, facts.place).parts
    return all(part.effect in {"reads", "outward"} for part in parts)


def hosts_of(facts: Facts) -> tuple[str, ...]:
    """Return the hosts in those parts of a call's shell command that reach out."""
    if facts.command is None:
        return ()
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415  as above

    found = effect_of(facts.command, facts.place).targets
    return tuple([one.removeprefix(_HOST).lower() for one in found if one.startswith(_HOST)])

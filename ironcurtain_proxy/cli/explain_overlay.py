"""What asks about a call besides the policy, and the least that would spare the question."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ironcurtain_proxy.administration.settings import Settings
from ironcurtain_proxy.approval.capabilities import described
from ironcurtain_proxy.approval.judging import NamedTool, Overlay
from ironcurtain_proxy.approval.subject import tool_names
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.standing import standing_of
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.wiring.confinement import confined_servers
from ironcurtain_proxy.wiring.overlay import overlay_for


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool of the live configuration."""

    server: str
    """The operator's name."""
    tool: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Found:
    """What `serve` would decide, as far as files tell."""

    certain: Judged
    if_unique: Judged | None
    """Once every server has listed its tools and no other has one of this name: then lists that
    spare a question count for the bare name, too. None: that makes no difference."""


def judged(asked: Asked, facts: Facts, policy: Policy) -> Found:
    """What asks besides the policy. A server's own hints and tools are not known here."""
    overlay = _overlay(asked.settings)
    certain, unique = (
        _judged(
            asked, facts, policy, overlay, tool_names(asked.server, asked.tool, is_unique=is_it)
        )
        for is_it in (len(asked.settings.servers) == 1, True)
    )
    return Found(certain, None if unique == certain else unique)


def _judged(
    asked: Asked, facts: Facts, policy: Policy, overlay: Overlay, names: frozenset[str]
) -> Judged:
    kernel = authorize(facts.request, policy)
    declared = overlay.declared(names)
    if declared is not None and declared.command_argument is not None:
        from ironcurtain_proxy.information.shell import parse_command  # noqa: PLC0415  a parser

        command = facts.arguments.get(declared.command_argument)
        if isinstance(command, str):
            facts = replace(facts, command=parse_command(command))
    tool = NamedTool(asked.server, asked.tool, names)
    return overlay.judge(kernel, facts, tool, lambda: standing_of(facts.request, policy, kernel))


def _overlay(settings: Settings) -> Overlay:
    said: list[str] = []
    confined = confined_servers(settings, os.environ, said.append)
    return overlay_for(settings, {name for name, inside in confined.items() if inside})


def as_text(found: Found, asked: Asked) -> list[str]:
    """The lines of the report."""
    lines = ["", "besides the policy", *_lines(found.certain, asked)]
    if found.if_unique is not None:
        name = f'"{asked.tool}"'
        lines += ["", f"once every server has listed its tools, and no other has {name}"]
        lines += _lines(found.if_unique, asked)
        full = f'"{asked.server}/{asked.tool}"'
        lines.append(f"  for it to hold in any case, write {full} where you wrote {name}")
    return lines


def _lines(found: Judged, asked: Asked) -> list[str]:
    names = ", ".join([described(name) for name in sorted(found.capabilities)])
    lines = [f"  the call needs: {names or 'nothing that is known'}"]
    asking = [reason for reason in found.reasons if reason.origin != "policy"]
    if effect_of(found.decision) == "deny":
        ground = found.decision.ground
        return [*lines, f"  DENIED by {ground.rule}: {ground.reason}"]
    if not asking:
        return [*lines, "  nothing else asks"]
    for reason in asking:
        lines.append(f"  asks: {reason.ground.reason} ({reason.origin}, {reason.ground.rule})")
        lines += [f"    to be spared: {text}" for text in spared_by(reason, asked)]
    return lines


def spared_by(reason: OriginReason, asked: Asked) -> Sequence[str]:
    """The least that would spare a question, for the session and for good."""
    tool = f"{asked.server}/{asked.tool}"
    match reason.origin:
        case "policy":
            return ["approve with --remember: a pattern for this session"]
        case "tool-policy":
            return [
                f"approve with --remember: {tool} for this session",
                f'"exemptTools": ["{tool}"] in security.interceptor: for good',
            ]
        case "capability":
            names = ", ".join([f'"{name}": "allow"' for name in reason.capabilities])
            if not names:
                return [f'a declaration of "{tool}" in capabilities.tools']
            return [
                "approve it once: the capability is then allowed for this session",
                f"{names} in the rules of a profile of your own: for good",
            ]


def as_json(found: Found, asked: Asked) -> Mapping[str, Json]:
    """The same for programs."""
    fields = _fields(found.certain, asked)
    if found.if_unique is not None:
        fields["ifNameIsUnique"] = _fields(found.if_unique, asked)
    return fields


def _fields(found: Judged, asked: Asked) -> dict[str, Json]:
    return {
        "decision": effect_of(found.decision),
        "rule": found.decision.ground.rule,
        "capabilities": [*sorted(found.capabilities)],
        "origins": [
            {
                "origin": reason.origin,
                "rule": reason.ground.rule,
                "reason": reason.ground.reason,
                "capabilities": [described(name) for name in reason.capabilities],
                "sparedBy": [*spared_by(reason, asked)],
            }
            for reason in found.reasons
        ],
    }

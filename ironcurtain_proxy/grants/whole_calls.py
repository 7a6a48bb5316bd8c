"""Approvals of calls whose arguments no pattern describes: the identical call, or a whole tool.

A tool without an annotation, an argument without a role, and SQL have no pattern that is both
narrow and useful. Identifiers have one, but the next call names another thing: there the whole tool
is offered besides.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.grants.families import digest_of, identical_call
from ironcurtain_proxy.grants.patterns import HISTORY, EscalatedCall, is_of
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.grant import CallPattern, Grant
from ironcurtain_proxy.model.request import ArgumentFact, may_be_a_place, sql_of
from ironcurtain_proxy.shell.places import names_a_secret_file

_NO_PATTERN: Final[frozenset[ArgumentRole]] = frozenset({"sql", "unclear"})
_OWN: Final[frozenset[ArgumentRole]] = frozenset({"identifier", "unclear", "none"})
_GRAVE: Final = frozenset({"sends", "runs", "destroys"})
_DELETES: Final[frozenset[ArgumentRole]] = frozenset({"delete-path", "delete-history"})


def is_never_remembered(call: EscalatedCall) -> bool:
    """Whether a call is asked about each time, because it deletes things without a path.

    A path says what is deleted, and a pattern can be as narrow as that.
    """
    if call.command is not None:
        return False
    sql = sql_of(call.request)
    if sql is not None:
        return sql.effect in {"destroys", "runs"}
    roles = {role for fact in call.request.arguments for role in fact.roles}
    return call.request.effect == "destroys" and _DELETES.isdisjoint(roles)


def whole_call_candidates(call: EscalatedCall) -> tuple[CallPattern, ...]:
    """The candidates of a call that no pattern describes; empty: patterns describe it."""
    if not call.definition or call.command is not None or is_never_remembered(call):
        return ()
    return tuple(_candidates(call))


def _candidates(call: EscalatedCall) -> Iterator[CallPattern]:
    if call.request.annotated and (HISTORY & {*call.open_roles} or _has_pattern(call)):
        return
    identical = identical_call(call)
    if identical is None:
        return
    yield identical
    if not call.request.annotated or names_only_its_own(call):
        yield _whole_tool(call, identical)


def _has_pattern(call: EscalatedCall) -> bool:
    """Whether a pattern covers what the call names; omitted arguments are part of the pattern."""
    roles = frozenset(call.open_roles)
    named = frozenset([role for role in roles if call.values(role)])
    return not roles & _NO_PATTERN or (bool(named) and not named & _NO_PATTERN)


def whole_tool_candidate(call: EscalatedCall) -> CallPattern | None:
    """The candidate for every call of a described tool; None: there is none besides patterns."""
    if not call.definition or call.command is not None or is_never_remembered(call):
        return None
    identical = identical_call(call)
    is_own = identical is not None and names_only_its_own(call)
    return _whole_tool(call, identical) if identical is not None and is_own else None


def _whole_tool(call: EscalatedCall, identical: CallPattern) -> CallPattern:
    tool = visible(f"{call.server}/{call.tool}")
    which = "that names no path or URL" if call.request.annotated else "whatever its arguments are"
    said = f"every call of {tool} in this session, {which}"
    return replace(identical, digest=None, description=said)


def names_only_its_own(call: EscalatedCall) -> bool:
    """Whether a described call names nothing but things of its server's own.

    Nothing in it is, or looks like, a path, a URL, a person or a statement, no name is that of a
    secret file, and its tool is not known to send, to run or to delete.
    """
    request = call.request
    return (
        request.annotated
        and request.effect not in _GRAVE
        and all(_OWN.issuperset(fact.roles) for fact in request.arguments)
        and not any(map(_names_a_place, request.arguments))
    )


def _names_a_place(fact: ArgumentFact) -> bool:
    """Whether a server that nobody knows may open what it is given, and that is not its own."""
    if any(map(may_be_a_place, fact.values)):
        return True
    # A text without a role, such as the body of a note, may mention a secret's name.
    is_name = not {"identifier", "unclear"}.isdisjoint(fact.roles)
    return is_name and any(names_a_secret_file(value.text) for value in fact.values)


def is_granted_whole(grant: Grant, call: EscalatedCall) -> bool:
    """Whether a grant is of the identical call, or of its tool as a whole."""
    pattern = grant.pattern
    if not isinstance(pattern, CallPattern) or call.command is not None or not is_of(pattern, call):
        return False
    # INVARIANT: what the annotation says of a call counts, however the tool was remembered.
    if pattern.digest is None:
        return not call.request.annotated or names_only_its_own(call)
    return pattern.digest == digest_of(call)

"""Approvals of calls whose arguments no pattern describes: the identical call, or a whole tool.

A tool without an annotation, an argument without a role, and SQL have no pattern that is both
narrow and useful.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.grants.families import digest_of, identical_call
from ironcurtain_proxy.grants.matching import is_of
from ironcurtain_proxy.grants.patterns import HISTORY, EscalatedCall
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.grant import CallPattern, Grant
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.request import sql_of

_NO_PATTERN: Final[frozenset[ArgumentRole]] = frozenset({"sql", "unclear"})
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
    roles = frozenset(call.open_roles)
    annotated = call.request.annotated
    if annotated and (roles & HISTORY or not roles & _NO_PATTERN):
        return
    identical = identical_call(call)
    if identical is None:
        return
    yield identical
    if not annotated:
        tool = visible(f"{call.server}/{call.tool}")
        said = f"every call of {tool} in this session, whatever its arguments are"
        yield replace(identical, digest=None, description=said)


def is_granted_whole(grant: Grant, call: EscalatedCall) -> bool:
    """Whether a grant is of the identical call, or of its tool without annotation."""
    pattern = grant.pattern
    if not isinstance(pattern, CallPattern) or call.command is not None or not is_of(pattern, call):
        return False
    # INVARIANT: once a tool has an annotation, its annotation counts.
    if pattern.digest is None:
        return not call.request.annotated
    return pattern.digest == digest_of(call)

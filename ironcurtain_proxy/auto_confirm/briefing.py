"""The view of a question for a reviewer that is a program.

INVARIANT: the view holds only redacted text, cut to a length, with every character visible. The
arguments stand apart, marked as untrusted words of the agent.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from unicodedata import normalize

from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.model.escalation import (
    MAX_DEPTH,
    Approved,
    Escalation,
    Ruling,
    Unreachable,
    cut,
    visible,
)
from ironcurtain_proxy.model.grant import OPENS
from ironcurtain_proxy.model.values import Json, list_of, object_of


class Redacted(Struct, frozen=True):
    """An object without its secrets."""

    fields: Mapping[str, Json]
    complete: bool
    """Whether everything except the secrets is there."""


Redact: TypeAlias = Callable[[Mapping[str, Json]], Redacted]
"""Masks the secrets of an object, by value and by key, and bounds its size."""

MAX_SCOPE: Final = 2_000
"""Characters of the values that the arguments name, which stand there once more."""

MAX_ALL: Final = 16_000
"""Characters of all texts of the arguments together, and of all others. No single one is cut
before: what was not shown whole cannot be approved."""

MAX_VALUES: Final = 1_000
"""Values in the arguments."""

MAX_NAME: Final = 200

REVIEW_BY_REQUESTER: Final = "review by the requester is refused"


class PassedOn(Unreachable, frozen=True):
    """The reason why this reviewer gives no answer; the next one is asked."""

    reason: str = ""
    asked: bool = True
    """Whether it saw the question."""


class View(Struct, frozen=True, kw_only=True):
    """The view of a call. Every text is visible, on one line, and bounded."""

    scope: str
    reasons: tuple[str, ...]
    """The reasons for asking a reviewer: the engine's reason first, then the others."""
    context: Mapping[str, str]
    """The facts that a person sees beside the call. What an approval opens is never cut."""
    arguments: Mapping[str, Json]
    complete: bool
    """Whether nothing was cut."""


def view_of(escalation: Escalation, decision: EngineDecision, redact: Redact) -> View:
    """Return the view of a question.

    Raises:
        Exception: whatever `redact` raises. The question cannot be shown then.
    """
    grounds = [reason.ground.reason for reason in escalation.reasons]
    # What a person reads first, a program reads, too.
    asked = escalation.told + tuple(grounds or [escalation.ground.reason])
    reasons = dict.fromkeys([decision.reason, *asked])
    # Redacted apart from the arguments, so that these cannot change how the rest is redacted.
    words = redact(
        {
            "scope": _scope(escalation),
            "reasons": [text for text in reasons if text],
            "context": dict(escalation.context),
        }
    )
    redacted = redact(escalation.arguments)
    cutter = _Cutter()
    arguments = cutter.object(redacted.fields, MAX_DEPTH)
    around = _Cutter()
    shown = around.object({name: words.fields[name] for name in ("reasons", "context")}, MAX_DEPTH)
    context = {name: str(text) for name, text in object_of(shown.get("context")).items()}
    if escalation.opening is not None and escalation.opening.words():
        # INVARIANT: an approval opens what its view shows, so all of it is shown.
        context[OPENS] = visible(", ".join(escalation.opening.shown()))
    return View(
        scope=cut(str(words.fields["scope"]), MAX_SCOPE),
        reasons=tuple([str(text) for text in list_of(shown.get("reasons"))]),
        context=context,
        arguments=arguments,
        complete=redacted.complete and words.complete and not (cutter.has_cut or around.has_cut),
    )


def unless_cut(ruling: Ruling, view: View) -> Ruling:
    """Return a ruling; but who approves what the view has cut is passed over for the next one."""
    if isinstance(ruling, Approved) and not view.complete:
        return PassedOn("it approved a call that it did not see completely")
    return ruling


def is_same_party(one: str, other: str) -> bool:
    """Return whether two names mean one session, in any spelling."""
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    return "".join(normalize("NFKC", name).casefold().split())


def _scope(escalation: Escalation) -> str:
    values = [value.text for fact in escalation.request.arguments for value in fact.values]
    return " ".join(dict.fromkeys(values)) or f"{escalation.server}/{escalation.tool}"


class _Cutter:
    """Walks the arguments, and counts what may still be shown."""

    def __init__(self) -> None:
        self._left = MAX_ALL
        self._values = MAX_VALUES
        self.has_cut = False

    def object(self, mapping: Mapping[str, Json], depth: int) -> dict[str, Json]:
        shown: dict[str, Json] = {}
        for name, value in mapping.items():
            if self._is_used_up():
                break
            key = self._text(name, MAX_NAME)
            # Two keys can become equal when they are cut; both are shown.
            while key in shown:
                key += "'"
            shown[key] = self._value(value, depth - 1)
        return shown

    def _value(self, value: Json, depth: int) -> Json:
        match value:
            case str():
                return self._text(value, MAX_ALL)
            case list() | dict() if depth <= 0:
                self.has_cut = True
                return "[NESTED TOO DEEPLY TO BE SHOWN]"
            case list():
                return self._list(value, depth)
            case dict():
                return self.object(value, depth)
            case _:
                return value

    def _list(self, items: list[Json], depth: int) -> list[Json]:
        shown: list[Json] = []
        for item in items:
            if self._is_used_up():
                shown.append(f"[… {len(items) - len(shown)} VALUES ARE NOT SHOWN …]")
                break
            shown.append(self._value(item, depth - 1))
        return shown

    def _is_used_up(self) -> bool:
        self._values -= 1
        if self._values < 0:
            self.has_cut = True
        return self._values < 0

    def _text(self, text: str, limit: int) -> str:
        limit = min(limit, max(self._left, 0))
        self._left -= min(len(text), limit)
        if len(text) > limit:
            self.has_cut = True
        return cut(text, limit)

"""A rule as it stands in `compiled-policy.json`. Not a command itself."""

from collections.abc import Collection

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.policy import NameCondition, Rule


def rule_as_json(rule: Rule) -> dict[str, Json]:
    """The rule with all its conditions. A condition left out would widen it.

    The exception of the short form, `except`, has no key in the long form; it stands beside the
    conditions, where the reader of the file refuses it.
    """
    found: dict[str, Json] = {
        "name": rule.name,
        "description": rule.description or rule.reason,
        "principle": rule.principle or "Added by the operator",
        "if": _condition(rule),
        "then": rule.effect,
        "reason": rule.reason,
    }
    if not rule.contained:
        found["contained"] = False
    if rule.contained_reads:
        found["containedReads"] = True
    if rule.everywhere:
        found["everywhere"] = True
    if rule.excepting is not None:
        found["except"] = _names(rule.excepting)
    return found


def _condition(rule: Rule) -> dict[str, Json]:
    condition: dict[str, Json] = {
        key: _sorted(words)
        for key, words in (
            ("roles", rule.roles),
            ("server", rule.servers),
            ("tool", rule.tools),
            ("operations", rule.methods),
            ("prompt", rule.prompts),
        )
        if words is not None
    }
    if rule.paths is not None:
        condition["paths"] = {
            "roles": _sorted(rule.paths.roles),
            "within": str(rule.paths.within),
        }
    if rule.names is not None:
        condition["names"] = _names(rule.names)
    if rule.domains is not None:
        condition["domains"] = {
            "roles": _sorted(rule.domains.roles),
            "allowed": _sorted(rule.domains.allowed),
        }
    if rule.lists:
        condition["lists"] = [
            {
                "roles": _sorted(entry.roles),
                "allowed": _sorted(entry.allowed),
                "matchType": entry.kind,
            }
            for entry in rule.lists
        ]
    if rule.sql is not None:
        condition["sql"] = rule.sql
    if rule.uris is not None:
        condition["uris"] = {
            "schemes": _sorted(rule.uris.schemes),
            "patterns": _sorted(rule.uris.patterns),
        }
    return condition


def _names(condition: NameCondition) -> dict[str, Json]:
    return {
        "roles": _sorted(condition.roles),
        "matching": _sorted(condition.matching),
        "unless": _sorted(condition.unless),
    }


def _sorted(words: Collection[str]) -> list[Json]:
    return [*sorted(words)]

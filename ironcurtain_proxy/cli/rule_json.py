"""A rule as it stands in `compiled-policy.json`. Not a command itself."""

from ironcurtain_proxy.model.conditions import ListCondition
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.policy import Rule


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
        found[rule.excepting.key] = rule.excepting.as_json()
    return found


def _condition(rule: Rule) -> dict[str, Json]:
    condition: dict[str, Json] = {
        key: [*sorted(words)]
        for key, words in (
            ("roles", rule.roles),
            ("server", rule.servers),
            ("tool", rule.tools),
            ("operations", rule.methods),
            ("prompt", rule.prompts),
        )
        if words is not None
    }
    for one in rule.conditions:
        if one.narrows and not isinstance(one, ListCondition):
            condition[one.key] = one.as_json()
    if rule.lists:
        condition[ListCondition.key] = [one.as_json() for one in rule.lists]
    return condition

"""Explained decisions as JSON. Not a command itself."""

from ironcurtain_proxy.cli.rule_json import rule_as_json
from ironcurtain_proxy.decision.combining import gravest_first
from ironcurtain_proxy.decision.explanation import Explanation, shown
from ironcurtain_proxy.model.decision import Decision, Escalate, effect_of
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.request import Facts, Gathered


def as_json(
    decision: Decision, gathered: Gathered, explanation: Explanation | None
) -> dict[str, Json]:
    """A decision with the facts and the rules behind it.

    Args:
        decision: the answer.
        gathered: the facts of the call.
        explanation: the policy's part; None: it was not asked.
    """
    fields: dict[str, Json] = {
        "decision": effect_of(decision),
        "rule": decision.ground.rule,
        "reason": decision.ground.reason,
    }
    if not isinstance(gathered, Facts) or explanation is None:
        return fields
    policy = gravest_first(explanation.decision)
    return {
        **fields,
        "policyDecision": {
            "decision": effect_of(policy),
            "rule": policy.ground.rule,
            "reason": policy.ground.reason,
        },
        "escalatedRoles": [*policy.roles] if isinstance(policy, Escalate) else [],
        "arguments": [
            {
                "name": fact.name,
                "roles": [*fact.roles],
                "values": [shown(value) for value in fact.values],
            }
            for fact in gathered.request.arguments
        ],
        "invariants": [{"name": name, "said": said} for name, said in explanation.invariants],
        "roles": [
            {
                "role": trace.role,
                "contained": trace.contained,
                "rules": [
                    {
                        "rule": trial.rule,
                        "layer": trial.layer,
                        "holds": trial.holds,
                        "why": trial.why,
                    }
                    for trial in trace.trials
                ],
                "decision": effect_of(trace.answer),
                "rule": trace.answer.ground.rule,
            }
            for trace in explanation.roles
        ],
        "restrictions": [
            {"rule": trial.rule, "layer": trial.layer, "why": trial.why}
            for trial in explanation.restrictions
        ],
        "layer": explanation.layer,
        "change": [rule_as_json(rule) for rule in explanation.change],
        "advice": explanation.advice,
    }

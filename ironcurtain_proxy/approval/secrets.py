"""Calls that would send a secret to a server, where the operator wants to be asked about them."""

from msgspec.structs import replace

from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.judgement import Judgement
from ironcurtain_proxy.model.request import Facts


def with_secrets(judged: Judgement, facts: Facts) -> Judgement:
    """The judgement with the question about secrets added. A denial stays."""
    if not facts.secrets or isinstance(judged.decision, Deny):
        return judged
    said = ", ".join([f'"{one.argument}" ({one.kind})' for one in facts.secrets])
    ground = Ground("secret-in-arguments", f"What is sent holds a secret: {said}")
    reason = OriginReason(origin="secrets", ground=ground)
    decision = Escalate(ground) if isinstance(judged.decision, Allow) else judged.decision
    return replace(judged, decision=decision, reasons=(*judged.reasons, reason))

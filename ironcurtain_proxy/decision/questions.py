"""The decision on a server's own question to the user: a form, a page to open, a text of the model.

A server speaks to the user in the client's own window, so nothing is passed on that the operator
did not allow, and a credential is never asked for. What rules say comes first, then what the
server's entry allows; nothing else is passed on.
"""

from typing import Final, assert_never

from ironcurtain_proxy.decision.combining import DEFAULT_DENY
from ironcurtain_proxy.decision.rules import decide_without_roles
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.hosts import host_matches
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest, ServerQuestion

MAX_TOKENS: Final = 4096
"""The most tokens that a server may ask of the agent's model at once."""


def unsafe_question(request: AccessRequest, policy: Policy) -> Decision | None:
    """Deny questions that no setting allows: credentials, strange pages, too much of the model."""
    asked = request.question
    reason = None if asked is None else _fault(asked, request.server, policy)
    return None if reason is None else Deny(Ground("structural-server-question", reason))


def _fault(asked: ServerQuestion, server: str, policy: Policy) -> str | None:
    match asked.kind:
        case "form":
            credential = asked.asks_for
            return f'The form asks for a credential: "{credential}"' if credential else None
        case "url":
            return _fault_of_page(asked.host, server, policy)
        case "sampling":
            if asked.tokens > MAX_TOKENS:
                return f"The server asks for more than {MAX_TOKENS} tokens"
            may_use_tools = "sampling-tools" in policy.may_ask.get(server, ())
            strange = asked.with_tools and not may_use_tools
            return "The server wants to hand tools to the model" if strange else None
        case _:
            assert_never(asked.kind)


def _fault_of_page(host: str, server: str, policy: Policy) -> str | None:
    if not host:
        return "The page to open is no plain https URL"
    if host_matches(host, policy.domain_allowlists.get(server, frozenset())):
        return None
    return (
        f'The page to open is on "{host}", which is not among the allowed domains of server '
        f'"{server}"'
    )


def decide_question(request: AccessRequest, asked: ServerQuestion, policy: Policy) -> Decision:
    """The decision on a question that is not unsafe."""
    decision = decide_without_roles(request, policy)
    if decision == DEFAULT_DENY and asked.kind in policy.may_ask.get(request.server, ()):
        decision = Allow(
            Ground("server-may-ask", f'Server "{request.server}" may ask this ({asked.kind})')
        )
    if decision == DEFAULT_DENY:
        return Deny(
            Ground(
                "server-asks",
                f'Server "{request.server}" wants to ask something ({asked.kind}), which no '
                "setting allows",
            )
        )
    if isinstance(decision, Allow) and asked.kind == "sampling":
        # What the model is told, and what becomes of its answer, is for a person to see.
        return Escalate(Ground("server-sampling", f'Server "{request.server}" asks the model'))
    return decision

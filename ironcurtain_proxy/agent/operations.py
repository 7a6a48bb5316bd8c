"""The agent's requests besides tool calls: their methods, and their answers.

A denial has the error code of a missing resource or prompt, so that it does not reveal which exist.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.agent.messages import INTERNAL_ERROR, INVALID_PARAMS
from ironcurtain_proxy.agent.replies import refusal_blocks
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import ListKind, Method
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, Reply, Withheld

LISTS: Final[Mapping[str, ListKind]] = MappingProxyType(
    {
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
        "prompts/list": "prompts",
    }
)
"""The key of the list in a method's result, by method."""

REQUESTS: Final[frozenset[Method]] = frozenset(
    {
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/get",
        "completion/complete",
    }
)

NO_SUCH_RESOURCE: Final = -32002


def answer_to(method: str, reply: Reply, named: str) -> Mapping[str, object]:
    """The `result` or `error` of a request.

    Args:
        method: of the request.
        reply: the reply of `mediation`.
        named: the URI or the prompt, as the agent named it.
    """
    code = NO_SUCH_RESOURCE if method.startswith("resources/") else INVALID_PARAMS
    match reply:
        case Answered(result=answer):
            return {"result": answer.result} if answer.error is None else {"error": answer.error}
        case Refused():
            words = " ".join(refusal_blocks(reply, named, "operation"))
            return _error(code, words, {"rule": reply.ground.rule})
        case Withheld(ground=ground):
            return _error(INTERNAL_ERROR, f"DENIED: {ground.reason}", {"rule": ground.rule})
        case Failed(message=message):
            return _error(INTERNAL_ERROR, f"Error: {message}", None)


def _error(code: int, message: str, data: Json) -> Mapping[str, object]:
    error: dict[str, object] = {"code": code, "message": message}
    return {"error": error if data is None else {**error, "data": data}}

"""The `params` of an authorized operation, built from its judged arguments."""

from collections.abc import Mapping
from typing import assert_never

from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.json import Json


def wire_params(call: AuthorizedCall) -> dict[str, Json]:
    """The `params` of one request."""
    params, arguments = dict(call.params), dict(call.arguments)
    match call.method:
        case "tools/call":
            params["name"] = call.tool
            if arguments or "arguments" in params:
                params["arguments"] = arguments
        case "prompts/get":
            if arguments or "arguments" in params:
                params["arguments"] = arguments
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            params["uri"] = arguments["uri"]
        case "completion/complete":
            return _completion(params, arguments)
        case "elicitation/create" | "sampling/createMessage":
            params |= arguments
        case _:
            assert_never(call.method)
    return params


def _completion(params: dict[str, Json], arguments: dict[str, Json]) -> dict[str, Json]:
    argument = params.get("argument")
    name = str(argument.get("name")) if isinstance(argument, Mapping) else ""
    params["argument"] = {"name": name, "value": arguments.pop(name, "")}
    params.pop("context", None)
    if arguments:
        params["context"] = {"arguments": arguments}
    return params

"""The operation, other than a tool call, that `explain` explains. Not a command itself."""

import argparse
import os
from collections.abc import Mapping

import anyio
import orjson

from ironcurtain_proxy.cli.explain_names import refuse_unknown_server
from ironcurtain_proxy.cli.explain_overlay import ExplainedCall
from ironcurtain_proxy.cli.kernel import roots_answer
from ironcurtain_proxy.cli.output import say
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.servers.roots import roots_told
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.asked import on_the_wire, operation_of
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.operation import QUESTION_METHODS, Operation, RequestId
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.rehearsal import rehearsal_for


def add_operation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name an operation instead of a tool."""
    parser.add_argument("--read", metavar="URI", help="explain a read of this resource")
    parser.add_argument("--prompt", metavar="NAME", help="explain this prompt with --args")
    parser.add_argument(
        "--method",
        metavar="METHOD",
        help="explain any other request of MCP with --params: resources/subscribe, "
        "completion/complete, or a server's elicitation/create, sampling/createMessage, roots/list",
    )
    parser.add_argument("--params", default="{}", metavar="JSON", help="its params (default {})")


def arguments_given(text: str, option: str = "--args") -> Arguments:
    """The arguments of a tool or a prompt, or the params of a request.

    Raises:
        ConfigurationError: they are no JSON object.
    """
    try:
        arguments = orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ConfigurationError(f'{option} must be a JSON object, such as {{"path": "a.txt"}}')
    return arguments


def operation_meant(options: argparse.Namespace, arguments: Arguments) -> Operation | None:
    """The operation that the options name; None: they name a tool.

    Raises:
        ConfigurationError: they name two, one that is not decided on, or a policy without servers.
    """
    named = [one for one in (options.read, options.prompt, options.method) if one is not None]
    if not named:
        return None
    if len(named) > 1:
        raise ConfigurationError("--read, --prompt and --method are operations: name one")
    if options.dir is not None:
        raise ConfigurationError("operations need configured servers: leave out --dir")
    method, params = options.method, arguments_given(options.params, "--params")
    if options.read is not None:
        method, params = "resources/read", {"uri": options.read}
    elif options.prompt is not None:
        method, params = "prompts/get", {"name": options.prompt, "arguments": {**arguments}}
    asked = on_the_wire(options.tool, method, params)
    if isinstance(asked, Ground):
        raise ConfigurationError(f"{asked.reason} (rule: {asked.rule})")
    return operation_of(asked, RequestId("explained"))


def rehearsed_operation(
    operation: Operation, configured: Mapping[str, str], settings: Settings, loaded: LoadedPolicy
) -> ExplainedCall:
    """The decision of `serve` on the operation.

    Raises:
        ConfigurationError: no such server is configured.
    """
    refuse_unknown_server(operation.server, configured)
    sandbox = find_sandbox(settings, os.environ, lambda _: None)
    rehearsal = rehearsal_for(settings, loaded, os.environ, sandbox)
    return ExplainedCall(anyio.run(rehearsal.of_operation, operation), None)


def notes_on(operation: Operation) -> list[str]:
    """Notes on conditions of `serve` that only a running session knows."""
    if operation.method in QUESTION_METHODS:
        when = "while no request of the agent is under way, and where the client did not declare"
        return ["", f"it is refused {when} that it takes such questions"]
    if str(operation.arguments.get("uri", "")).startswith("ui://"):
        return ["", "a view is denied unless a listed tool declares it"]
    return []


def show_roots(options: argparse.Namespace) -> int:
    """Print the roots that a server is told.

    Raises:
        ConfigurationError: no such server is configured.
    """
    settings = load_settings(os.environ, options.config)
    servers = {spec.name: spec for spec in settings.servers}
    refuse_unknown_server(options.tool, servers)
    answer = roots_answer(roots_told(load_policy(settings).policy, servers[options.tool]))
    words = {"decision": "allow", "rule": answer.ground.rule, "reason": answer.ground.reason}
    line = f"{options.tool}/{options.method}: allow by {answer.ground.rule}"
    text = orjson.dumps(words).decode() if options.json else f"{line}\n  {answer.ground.reason}"
    say(text)
    return 0

"""The read or the prompt that `explain` is asked about, as an operation. Not a command itself."""

import argparse
import os
from collections.abc import Mapping

import anyio
import orjson

from ironcurtain_proxy.cli.explain_overlay import ExplainedCall
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.operation import Operation, RequestId, label
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.rehearsal import rehearsal_for


def add_operation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names an operation instead of a tool."""
    parser.add_argument("--read", metavar="URI", help="explain a read of this resource")
    parser.add_argument("--prompt", metavar="NAME", help="explain this prompt with --args")


def arguments_given(text: str) -> Arguments:
    """The arguments of a tool or a prompt.

    Raises:
        ConfigurationError: they are no JSON object.
    """
    try:
        arguments = orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--args is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ConfigurationError('--args must be a JSON object, such as {"path": "a.txt"}')
    return arguments


def operation_meant(options: argparse.Namespace, arguments: Arguments) -> Operation | None:
    """The operation that the options name; None: they name a tool.

    Raises:
        ConfigurationError: they name two, or a policy without servers.
    """
    if options.read is None and options.prompt is None:
        return None
    if options.read is not None and options.prompt is not None:
        raise ConfigurationError("--read and --prompt are two operations: name one")
    if options.dir is not None:
        raise ConfigurationError("--read and --prompt need configured servers: leave out --dir")
    named = options.read if options.read is not None else options.prompt
    method = "prompts/get" if options.read is None else "resources/read"
    return Operation(
        request_id=RequestId("explained"),
        exposed_name=named,
        server=options.tool,
        tool=label("prompts/get", named) if options.read is None else label("resources/read"),
        arguments=arguments if options.read is None else {"uri": named},
        params={"name": named} if options.read is None else {"uri": named},
        method="prompts/get" if method == "prompts/get" else "resources/read",
    )


def rehearsed_operation(
    operation: Operation, configured: Mapping[str, str], settings: Settings, loaded: LoadedPolicy
) -> ExplainedCall:
    """What `serve` would decide on it, here and now.

    Raises:
        ConfigurationError: no such server is configured.
    """
    if operation.server not in configured:
        known = ", ".join(sorted(configured)) or "none"
        raise ConfigurationError(f'no server "{operation.server}" is configured: there is {known}')
    sandbox = find_sandbox(settings, os.environ, lambda _: None)
    rehearsal = rehearsal_for(settings, loaded, os.environ, sandbox)
    return ExplainedCall(anyio.run(rehearsal.of_operation, operation), None)

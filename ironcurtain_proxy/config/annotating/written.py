"""The annotations of one server in a file that several servers share."""

from pathlib import Path

from ironcurtain_proxy.config.annotating.described import DescribedServer, DescribedTool, input_hash
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import is_there, read_document
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json


def with_server(path: Path, server: DescribedServer) -> dict[str, Json]:
    """The file with the server's old annotations replaced.

    Raises:
        ConfigurationError: the file cannot be read, and is unchanged.
        OSError: the file could not be opened.
    """
    document: Json = {}
    if is_there(path):
        report = Report()
        read = read_document(path, report)
        report.raise_errors()
        document = None if read is None else read[1].value
    servers = document.get("servers", {}) if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(servers, dict):
        raise ConfigurationError(f"{path}: is no file of annotations and is not changed")
    entry = _entry(server)
    old = servers.get(server.annotations)
    if server.prompts is None and isinstance(old, dict) and "prompts" in old:
        entry["prompts"] = old["prompts"]
    return {**document, "servers": {**servers, server.annotations: entry}}


def _entry(server: DescribedServer) -> dict[str, Json]:
    tools: list[Json] = []
    for tool in server.tools:
        schema = tool.raw.get("inputSchema")
        entry: dict[str, Json] = {
            "toolName": tool.name,
            "args": {name: one.as_json() for name, one in tool.proposal.arguments.items()},
            "inputSchema": schema if isinstance(schema, dict) else {},
        }
        if tool.proposal.effect is not None:
            entry["effect"] = tool.proposal.effect
        doubts = tool.proposal.uncertain()
        if doubts:
            entry["comment"] = f"Not certain: {', '.join(doubts)[:500]}"
        tools.append(entry)
    prompts: list[Json] = [_prompt(prompt) for prompt in server.prompts or ()]
    found: dict[str, Json] = {"inputHash": input_hash(server), "tools": tools}
    return {**found, "prompts": prompts} if prompts else found


def _prompt(prompt: DescribedTool) -> dict[str, Json]:
    roles = {name: one.as_json() for name, one in prompt.proposal.arguments.items()}
    entry: dict[str, Json] = {"promptName": prompt.name, "args": roles}
    doubts = prompt.proposal.uncertain()
    return {**entry, "comment": f"Not certain: {', '.join(doubts)[:500]}"} if doubts else entry

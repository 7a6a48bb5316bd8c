"""What running servers offer, compared with annotations, policy and clients. Not a command."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ironcurtain_proxy.cli.kernel import Kernel
from ironcurtain_proxy.config.policy.engine_file import LoadedEngine
from ironcurtain_proxy.config.policy.lint_annotations import LiveTools
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.reading.problems import Report, nearest, shown
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.facts.catalogue import SEPARATOR
from ironcurtain_proxy.facts.schema import compile_schema
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec

_MOST_NAME: Final = 64
"""Characters of a tool's name for the models of OpenAI and Anthropic."""

_MOST_TOOLS: Final = 128
"""The most tools that VS Code and the models of OpenAI take."""

_MOST_SAID: Final = 5
"""The most parts of one schema that are named."""

_MOST_ASKED: Final = 1_000
"""The most resources of one server that are decided."""


def lint_live_catalogue(settings: Settings, live: LiveTools, report: Report) -> None:
    """Report schemas that are checked in part, and what clients or models will not take."""
    has_prefix = settings.server_in_names or len(settings.servers) > 1
    for tool in live.definitions:
        place = f"{tool.server}/{tool.name}"
        left_out = compile_schema(tool.input_schema).left_out
        if left_out:
            several = "; ".join([shown(one) for one in left_out[:_MOST_SAID]])
            more = f"; and {len(left_out) - _MOST_SAID} more" if left_out[_MOST_SAID:] else ""
            report.warning(
                place, (), f"calls are not held to these parts of its input schema: {several}{more}"
            )
        name = f"{tool.server}{SEPARATOR}{tool.name}" if has_prefix else tool.name
        if len(name) > _MOST_NAME:
            message = (
                f"agents see it as {shown(name)}, which has {len(name)} characters: several "
                f"clients and models refuse all tools if one name has more than {_MOST_NAME}"
            )
            cure = ". Give the server a shorter name" if has_prefix else ""
            report.warning(place, (), f"{message}{cure}")
    if len(live.definitions) > _MOST_TOOLS:
        message = (
            f"{len(live.definitions)} tools together: several clients take at most {_MOST_TOOLS}. "
            "Leave servers out with `serverFilter`, or serve some of them to another client"
        )
        report.warning("tools", (), message)


def lint_live_operations(
    loaded: LoadedPolicy, settings: Settings, live: LiveTools, report: Report
) -> None:
    """Report prompts without an annotation, and resources that no rule covers."""
    engine = LoadedEngine(
        loaded=loaded,
        home=settings.home,
        container_workspace_dir=settings.container_workspace_dir,
    )
    kernel = Kernel.of(engine, check_schemas=True)
    for spec in settings.servers:
        if spec.name in live.prompts:
            known = {
                name: one
                for (server, name), one in loaded.prompts.items()
                if server == spec.annotations
            }
            _compare_prompts(spec, known, live.prompts[spec.name], report)
        _say_unspoken(spec, live.resources.get(spec.name, ()), kernel, report)


def _compare_prompts(
    spec: ServerSpec,
    known: Mapping[str, ToolAnnotation],
    offered: Iterable[Mapping[str, Json]],
    report: Report,
) -> None:
    prompts = {str(prompt["name"]): _arguments_of(prompt) for prompt in offered}
    for name, arguments in prompts.items():
        place, annotation = f"{spec.name} prompt {shown(name)}", known.get(name)
        if annotation is None:
            message = "has no annotation: it is denied. Run `ironcurtain-proxy annotate "
            report.warning(place, (), f"{message}{spec.name}`", nearest(name, known))
        else:
            _compare_arguments(place, [*annotation.arguments], arguments, report)
    for name in known.keys() - prompts.keys():
        place = f"{spec.name} prompt {shown(name)}"
        report.warning(place, (), "is annotated, but the server does not offer it")


def _compare_arguments(
    place: str, annotated: list[str], offered: list[str], report: Report
) -> None:
    for name in offered:
        if name not in annotated:
            report.warning(place, (), f"argument {shown(name)} is not annotated: it is denied")
    for name in annotated:
        if name not in offered:
            message = f"argument {shown(name)} is annotated, but the prompt no longer has it"
            report.warning(place, (), message, nearest(name, offered))


def _say_unspoken(spec: ServerSpec, uris: tuple[str, ...], kernel: Kernel, report: Report) -> None:
    """Report the resources that no rule covers, by scheme: there may be thousands."""
    denied: Counter[str] = Counter()
    for uri in uris[:_MOST_ASKED]:
        decision = kernel.decide_request(spec.annotations, "resources/read", {"uri": uri})
        if isinstance(decision, Deny) and decision.ground.rule == "default-deny":
            denied[uri.partition(":")[0]] += 1
    for scheme, count in denied.items():
        report.warning(
            f"{spec.name} resources {shown(scheme + ':')}",
            (),
            f"no rule covers {count} of them: they are denied, and not listed",
        )


def _arguments_of(prompt: Mapping[str, Json]) -> list[str]:
    """The names of the arguments of a prompt as its server lists it."""
    said = prompt.get("arguments")
    entries = said if isinstance(said, list) else []
    names = [one.get("name") for one in entries if isinstance(one, dict)]
    return [name for name in names if isinstance(name, str)]

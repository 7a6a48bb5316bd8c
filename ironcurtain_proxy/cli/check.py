"""`ironcurtain-proxy check`: all problems of the configuration at once."""

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import orjson
from msgspec.structs import replace

from ironcurtain_proxy.cli.decide import Kernel
from ironcurtain_proxy.cli.output import counted, encodable, picked, say
from ironcurtain_proxy.config.policy.engine_file import LoadedEngine, gather_engine
from ironcurtain_proxy.config.policy.lint import (
    LiveTools,
    lint_annotations,
    lint_live,
    lint_rules,
    lint_servers,
)
from ironcurtain_proxy.config.policy.policy_file import SHIPPED
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, gather_policy
from ironcurtain_proxy.config.reading.document import Problem, Report, nearest, shown
from ironcurtain_proxy.config.settings import Settings, gather_settings, home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import TOOLS
from ironcurtain_proxy.facts.live_catalogue import SEPARATOR
from ironcurtain_proxy.facts.schema import compile_schema
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, list_of
from ironcurtain_proxy.sandbox.profile import shown_limits

if TYPE_CHECKING:
    from ironcurtain_proxy.wiring.rehearsal import ContainmentReport


def run(options: argparse.Namespace) -> int:
    """Check the configuration. Return 1 if it has errors.

    Raises:
        ConfigurationError: the options do not go together.
    """
    if options.dir is not None and (options.live or options.config is not None):
        raise ConfigurationError("--dir is checked alone: leave out --config and --live")
    report = Report()
    if options.dir is not None:
        home = home_directory(os.environ)
        loaded = gather_engine(options.dir, home, report, "enforce").loaded
        settings = None
    else:
        settings = gather_settings(os.environ, options.config, report)
        loaded = gather_policy(settings, report)
        # Joins all folders: long to import, and `--dir` needs none of them.
        from ironcurtain_proxy.wiring.serving import look_at_the_start  # noqa: PLC0415

        look_at_the_start(settings, loaded, os.environ, report)
    _lint(loaded, settings, report)
    if options.live and settings is not None and not report.has_errors:
        # Slow to import, as above.
        from ironcurtain_proxy.wiring.rehearsal import list_live_tools  # noqa: PLC0415

        live = list_live_tools(settings, loaded.policy, options.seconds)
        trusted = loaded.policy.trusted_servers
        # Hooks judge a client's own tools by these, whatever server has the name besides.
        hooked = {(name, tool) for name, tools in TOOLS.items() for tool in tools}
        lint_live(loaded.annotations, live, settings.servers, report, trusted, hooked)
        lint_live_catalogue(settings, live, report)
        lint_live_operations(loaded, settings, live, report)
    held = None if settings is None or report.has_errors else _held(settings, loaded)
    show = _json if options.json else _text
    for line in show(loaded, settings, held, report):
        say(line)
    return int(report.has_errors)


def _lint(loaded: LoadedPolicy, settings: Settings | None, report: Report) -> None:
    lint_rules(loaded.policy.rules, loaded.annotations, loaded.rules.places, report)
    for narrowing in (loaded.rules.managed, loaded.rules.project):
        lint_rules(
            tuple([rule for rule, _ in narrowing]),
            loaded.annotations,
            [place for _, place in narrowing],
            report,
        )
    annotations = loaded.files.annotations or "the shipped annotations"
    lint_annotations(loaded.annotations, annotations, report)
    if settings is not None:
        lint_servers(loaded.annotations, settings.servers, annotations, report)


def layers(loaded: LoadedPolicy) -> Iterator[tuple[str, str, int]]:
    """Yield each layer that has rules: its name, its source and the number of its rules."""
    rules, files = loaded.rules, loaded.files
    if files.managed is not None:
        yield "managed", str(files.managed.directory), len(rules.managed)
        if files.managed.bundle is not None:
            yield "bundle", str(files.managed.bundle.directory), len(rules.bundle)
    if files.project is not None:
        yield "project", str(files.project.directory), len(rules.project)
    for file in (files.short, files.policy):
        if file is not None and file.parent != SHIPPED:
            own = [place for place in rules.places if place.source == str(file)]
            yield "user", str(file), len(own)
    if rules.base != "none":
        count = len(loaded.policy.rules) - len(rules.places) - len(rules.bundle)
        yield "shipped", "the shipped policy" if rules.base == "shipped" else rules.base, count


def _held(settings: Settings, loaded: LoadedPolicy) -> "ContainmentReport | None":
    if not settings.containment.undo:
        return None
    # Slow to import, as above.
    from ironcurtain_proxy.wiring.confinement import find_sandbox  # noqa: PLC0415
    from ironcurtain_proxy.wiring.rehearsal import containment_report  # noqa: PLC0415

    # The report names what is missing already.
    asking = replace(settings, sandbox_policy="warn")
    sandbox = find_sandbox(asking, os.environ, lambda _text: None)
    return containment_report(settings, loaded, os.environ, sandbox)


def _text(
    loaded: LoadedPolicy,
    settings: Settings | None,
    held: "ContainmentReport | None",
    report: Report,
) -> Iterator[str]:
    for layer, what, count in layers(loaded):
        yield f"policy       {layer}: {what} ({counted(count, 'rule')})"
    if loaded.files.alone and settings is not None:
        yield "policy       nothing is merged: generatedDir or GENERATED_DIR names a directory"
    own = loaded.files.annotations
    where = "shipped" if own is None else str(own)
    yield f"annotations  {where} ({len(loaded.annotations)} tools)"
    if settings is not None:
        yield f"config       {settings.config_file or 'none'}"
        yield f"workspace    {settings.workspace or 'none'}"
        for spec in settings.servers:
            known_as = "" if spec.annotations == spec.name else f", annotated as {spec.annotations}"
            yield f"server       {spec.name} ({spec.place}{known_as})"
        yield from [f"limits       {line}" for line in shown_limits(settings.servers)]
        yield from [f"containment  {line}" for line in (() if held is None else held.lines())]
        if not settings.containment.undo:
            yield "containment  off"
    for problem in report.problems:
        yield f"{problem.severity:<12} {problem}"
    yield counted_problems(report.problems) if report.problems else "no problems"


def counted_problems(problems: tuple[Problem, ...]) -> str:
    """Return the number of problems in words, such as `1 error, 2 warnings`."""
    errors = sum(problem.severity == "error" for problem in problems)
    return f"{counted(errors, 'error')}, {counted(len(problems) - errors, 'warning')}"


def _json(
    loaded: LoadedPolicy,
    settings: Settings | None,
    held: "ContainmentReport | None",
    report: Report,
) -> Iterator[str]:
    answer: dict[str, Json] = {
        "ok": not report.has_errors,
        "policy": str(loaded.files.policy),
        "policyVersion": loaded.version,
        "rules": len(loaded.policy.rules),
        "alone": loaded.files.alone,
        "layers": [
            {"layer": layer, "from": what, "rules": count} for layer, what, count in layers(loaded)
        ],
        "tools": len(loaded.annotations),
        "problems": [_problem(problem) for problem in report.problems],
    }
    if settings is not None:
        answer["config"] = None if settings.config_file is None else str(settings.config_file)
        answer["workspace"] = None if settings.workspace is None else str(settings.workspace)
        answer["servers"] = {spec.name: spec.annotations for spec in settings.servers}
        answer["limits"] = [*shown_limits(settings.servers)]
        answer["containment"] = None if held is None else held.as_json()
    yield orjson.dumps(answer).decode()


def _problem(problem: Problem) -> Json:
    return {
        **picked(problem, "severity jsonPath message"),
        "source": encodable(problem.source),
        "suggestion": problem.suggestion or None,
    }


# --- prompts, resources and completions -----------------------------------------------------------
# What running servers offer, compared with annotations, policy and clients. Not a command.


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
            cure = "Give the server a shorter name, or leave" if has_prefix else "Leave"
            report.warning(place, (), f"{message}. {cure} it out with `tools` in the entry")
    if len(live.definitions) > _MOST_TOOLS:
        message = (
            f"{len(live.definitions)} tools together: several clients take at most {_MOST_TOOLS}. "
            "Leave servers out with `serverFilter`, or tools with `tools` in a server's entry"
        )
        report.warning("tools", (), message)


def lint_live_operations(
    loaded: LoadedPolicy, settings: Settings, live: LiveTools, report: Report
) -> None:
    """Report prompts without an annotation, and resources that no rule covers."""
    engine = LoadedEngine(
        loaded=loaded, home=settings.home, container_workspace_dir=settings.container_workspace_dir
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
    """Return the names of the arguments of a prompt as its server lists it."""
    entries = list_of(prompt.get("arguments"))
    names = [one.get("name") for one in entries if isinstance(one, dict)]
    return [name for name in names if isinstance(name, str)]

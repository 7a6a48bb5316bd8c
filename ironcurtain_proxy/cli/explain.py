"""`ironcurtain-proxy explain`: why a call is allowed, escalated or denied, step by step.

A rule for a call that waits, and the explanation of its question, for a reviewer.

Both are answered by the configuration of the session that asks. A rule goes to the operator's own
layer of that session.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import orjson
from msgspec import Struct

from ironcurtain_proxy.cli.decide import ROOTS_LIST, Kernel, roots_answer
from ironcurtain_proxy.cli.explain_overlay import (
    ExplainedCall,
    NamedCall,
    about_unknown_tool,
    covering_kept,
    refuse_unknown_server,
    rehearsed,
    step_of,
    tool_meant,
)
from ironcurtain_proxy.cli.explain_overlay import as_json as overlay_as_json
from ironcurtain_proxy.cli.explain_overlay import as_text as overlay_as_text
from ironcurtain_proxy.cli.output import complain, decided, escalated_roles, picked, say, say_answer
from ironcurtain_proxy.cli.policy_change import (
    changed_lines,
    checked,
    consequences,
    own_file,
    rule_as_json,
    text_of,
    write_policy,
)
from ironcurtain_proxy.cli.review_screen.plain_review import OfferedRule
from ironcurtain_proxy.config.policy.engine_file import LoadedEngine, load_engine
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.policy.proposing import (
    RuleProposal,
    is_directory,
    proposal_for,
    with_rule,
)
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import Settings, home_directory, load_settings
from ironcurtain_proxy.decision.explanation import Explanation, Trial, explain, shown
from ironcurtain_proxy.decision.rules import gravest_first
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, sessions_directory
from ironcurtain_proxy.mailbox.messages import Request
from ironcurtain_proxy.model.crossing import on_the_wire, operation_of
from ironcurtain_proxy.model.decision import Decision, Deny, Ground, effect_of
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.operation import METHODS, QUESTION_METHODS, Operation, RequestId
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import roots_told
from ironcurtain_proxy.model.values import Arguments, Json
from ironcurtain_proxy.sessions import (
    SessionConfiguration,
    command_prefix,
    configuration_of,
)
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.rehearsal import rehearsal_for
from ironcurtain_proxy.wiring.serving import look_at_the_start
from ironcurtain_proxy.wiring.suggesting import Replaying


def run(options: argparse.Namespace) -> int:
    """Explain one call. Return 0 for any decision.

    Raises:
        ConfigurationError: the arguments or the files cannot be used.
    """
    if options.method == ROOTS_LIST:
        return show_roots(options)
    arguments = arguments_given(options.args)
    operation = operation_meant(options, arguments)
    if operation is not None:
        explained = _operation(options, operation)
    elif options.dir is not None:
        explained = _by_directory(options, arguments)
    else:
        settings = load_settings(os.environ, options.config)
        loaded = load_policy(settings)
        _say_what_stops_the_start(settings, loaded)
        explained = _by_settings(options.tool, arguments, settings, loaded, os.environ)
    say_answer(options, explained.as_json, explained.as_text)
    return 0


class _Explained(Struct, frozen=True, kw_only=True):
    """One call, decided and explained."""

    name: str
    gathered: Gathered
    explanation: Explanation | None
    """The policy's explanation, or None if the policy was not asked."""
    offer: str = ""
    """The command that adds a rule which allows such calls, or empty if no rule is offered."""
    notes: Sequence[str] = ()
    found: ExplainedCall | None = None
    asked: NamedCall | None = None
    """The tool, for the decisions besides the policy's, or None if no configuration was read."""

    @property
    def decision(self) -> Decision:
        """The decision that the agent would get."""
        if self.found is not None:
            return self.found.certain.decision
        if self.explanation is not None:
            return gravest_first(self.explanation.decision)
        return Deny(Ground("", "") if isinstance(self.gathered, Facts) else self.gathered.ground)

    def as_text(self) -> list[str]:
        """Return the lines of the report."""
        lines = _as_text(self.name, self.decision, self.gathered, self.explanation)
        if self.found is not None and self.asked is not None and self.explanation is not None:
            lines += overlay_as_text(self.found, self.asked)
        is_kept = self.found is not None and self.found.kept
        lines[0] += "; a kept approval covers the call" if is_kept else ""
        is_offered = self.offer and not is_kept
        offer = ["", "to allow such calls:", f"  {self.offer}"] if is_offered else []
        # A value with a line end must not write a line of its own.
        return [visible(line) for line in (*lines, *offer, *self.notes)]

    def as_json(self) -> dict[str, Json]:
        """Return the report as JSON."""
        fields = as_json(self.decision, self.gathered, self.explanation)
        if self.found is not None and self.asked is not None and self.explanation is not None:
            fields["overlay"] = dict(overlay_as_json(self.found, self.asked))
        fields["command"] = self.offer or None
        return {**fields, "notes": [note for note in self.notes if note]}


def _operation(options: argparse.Namespace, operation: Operation) -> _Explained:
    """Return an operation that is no tool call, as `serve` would decide it."""
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    _say_what_stops_the_start(settings, loaded)
    configured = {spec.name: spec.annotations for spec in settings.servers}
    found = rehearsed_operation(operation, configured, settings, loaded)
    gathered = found.certain.gathered
    return _Explained(
        name=f"{operation.server}/{operation.tool}",
        gathered=gathered,
        explanation=_explanation(gathered, loaded.policy),
        found=found,
        asked=NamedCall(operation.server, operation.tool, settings),
        notes=notes_on(operation),
    )


def _by_directory(options: argparse.Namespace, arguments: Arguments) -> _Explained:
    """Explain a call by the policy in a directory."""
    engine = load_engine(options.dir, Path(os.environ.get("HOME", "/")))
    annotations = engine.loaded.annotations
    servers = list(dict.fromkeys([server for server, _ in annotations]))
    server, tool = tool_meant(options.tool, servers, may_be_bare=False)
    gathered = Kernel.of(engine, check_schemas=True).gather(server, tool, arguments)
    return _Explained(
        name=f"{server}/{tool}",
        gathered=gathered,
        explanation=_explanation(gathered, engine.loaded.policy),
        notes=about_unknown_tool(server, tool, annotations),
    )


def explained_lines(
    name: str, arguments: Arguments, settings: Settings, environ: Mapping[str, str]
) -> list[str]:
    """Return the report on a call, for a screen. Blocks, and runs an event loop of its own.

    Args:
        name: the tool, as the command takes it.
        arguments: of the call.
        settings: of the session that asks, or of a new one.
        environ: variables.

    Raises:
        ConfigurationError: the policy or the name cannot be used.
    """
    return _by_settings(name, arguments, settings, load_policy(settings), environ).as_text()


def _by_settings(
    name: str,
    arguments: Arguments,
    settings: Settings,
    loaded: LoadedPolicy,
    environ: Mapping[str, str],
) -> _Explained:
    """Explain the decision that `serve` would make with these settings, here and now."""
    configured = {spec.name: spec.annotations for spec in settings.servers}
    annotated = list(dict.fromkeys([server for server, _ in loaded.annotations]))
    server, tool = tool_meant(name, [*configured] or annotated, may_be_bare=len(configured) == 1)
    refuse_unknown_server(server, configured, annotated)
    notes = about_unknown_tool(configured.get(server, server), tool, loaded.annotations)
    if server not in configured:
        engine = LoadedEngine(
            loaded=loaded,
            home=settings.home,
            container_workspace_dir=settings.container_workspace_dir,
        )
        gathered = Kernel.of(engine, check_schemas=True).gather(server, tool, arguments)
        alone = f'no server "{server}" is configured: this is what the policy alone says'
        return _Explained(
            name=f"{server}/{tool}",
            gathered=gathered,
            explanation=_explanation(gathered, loaded.policy),
            offer=_offer(gathered, loaded.policy),
            notes=["", alone, *notes],
        )
    asked = NamedCall(server, tool, settings)
    found = rehearsed(asked, arguments, loaded, environ)
    gathered = found.certain.gathered
    return _Explained(
        name=f"{server}/{tool}",
        gathered=gathered,
        explanation=_explanation(gathered, loaded.policy),
        offer=_offer(gathered, loaded.policy),
        notes=notes,
        found=found,
        asked=asked,
    )


def _offer(gathered: Gathered, policy: Policy) -> str:
    if not isinstance(gathered, Facts):
        return ""
    proposal = proposal_for(gathered, policy, is_directory)
    return "" if proposal is None else proposal.command


def _explanation(gathered: Gathered, policy: Policy) -> Explanation | None:
    return explain(gathered.request, policy) if isinstance(gathered, Facts) else None


def _say_what_stops_the_start(settings: Settings, loaded: LoadedPolicy) -> None:
    report = Report()
    look_at_the_start(settings, loaded, os.environ, report)
    for problem in report.problems:
        what = "serve refuses to start: " if problem.severity == "error" else ""
        complain(f"{what}{problem}")


def _as_text(
    tool: str, decision: Decision, gathered: Gathered, explanation: Explanation | None
) -> list[str]:
    layer = "" if explanation is None or explanation.layer is None else explanation.layer
    where = f" ({layer} layer)" if layer else ""
    head = f"{tool}: {effect_of(decision)} by {decision.ground.rule}{where}"
    if not isinstance(gathered, Facts) or explanation is None:
        return [head, f"  {decision.ground.reason}"]
    policy = gravest_first(explanation.decision)
    said = (
        ""
        if policy.ground.rule == decision.ground.rule
        else (f"  (the policy alone: {effect_of(policy)} by {policy.ground.rule})")
    )
    lines = [head, f"  {decision.ground.reason}", *([said] if said else []), "", "arguments"]
    for fact in gathered.request.arguments:
        values = ", ".join(shown(value) or '""' for value in fact.values) or "(not given)"
        lines.append(f"  {fact.name} [{', '.join(fact.roles)}]: {values}")
    if not gathered.request.arguments:
        lines.append("  none that names a resource")
    lines += ["", "invariants"]
    lines += [f"  {name}: {said}" for name, said in explanation.invariants]
    return [*lines, *_rules_as_text(explanation), *_remedy(explanation)]


def _rules_as_text(explanation: Explanation) -> list[str]:
    lines: list[str] = []
    for trace in explanation.roles:
        lines += ["", f"role {trace.role or '(none: the tool names no resource)'}"]
        if trace.contained:
            lines.append("  settled: every path lies in the workspace")
        about = [trial for trial in trace.trials if trial.is_about]
        for trial in about:
            lines.append(f"  {'+' if trial.holds else '-'} {_named(trial)}: {trial.why}")
        if left := len(trace.trials) - len(about):
            lines.append(f"  ({left} {'rule is' if left == 1 else 'rules are'} about other roles)")
        lines.append(f"  = {effect_of(trace.answer)} by {trace.answer.ground.rule}")
    if explanation.restrictions:
        lines += ["", "whatever other layers allow"]
        lines += [f"  + {_named(trial)}: {trial.why}" for trial in explanation.restrictions]
    if explanation.roles:
        lines += ["", f"({explanation.other_rules} rules are only about other tools)"]
    return lines


def _named(trial: Trial) -> str:
    return trial.rule if trial.layer == "user" else f"{trial.rule} ({trial.layer})"


def _remedy(explanation: Explanation) -> list[str]:
    if explanation.change:
        rules = orjson.dumps(
            [rule_as_json(rule) for rule in explanation.change], option=orjson.OPT_INDENT_2
        ).decode()
        return [
            "",
            "the narrowest rule that allows this, to put before all others:",
            *rules.split("\n"),
        ]
    return ["", explanation.advice] if explanation.advice else []


# --- as JSON --------------------------------------------------------------------------------------
# Explained decisions as JSON.
def as_json(
    decision: Decision, gathered: Gathered, explanation: Explanation | None
) -> dict[str, Json]:
    """Return a decision with the facts and the rules behind it.

    Args:
        decision: the answer.
        gathered: the facts of the call.
        explanation: the policy's part, or None if it was not asked.
    """
    fields = decided(decision)
    if not isinstance(gathered, Facts) or explanation is None:
        return fields
    policy = gravest_first(explanation.decision)
    return {
        **fields,
        "policyDecision": decided(policy),
        "escalatedRoles": escalated_roles(policy),
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
                **picked(trace, "role contained"),
                "rules": [picked(trial, "rule layer holds why") for trial in trace.trials],
                "decision": effect_of(trace.answer),
                "rule": trace.answer.ground.rule,
            }
            for trace in explanation.roles
        ],
        "restrictions": [picked(trial, "rule layer why") for trial in explanation.restrictions],
        **picked(explanation, "layer advice"),
        "change": [rule_as_json(rule) for rule in explanation.change],
    }


# --- prompts, resources and completions -----------------------------------------------------------
# The operation, other than a tool call, that `explain` explains.
def arguments_given(text: str, option: str = "--args") -> Arguments:
    """Return the arguments of a tool or a prompt, or the params of a request.

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
    """Return the operation that the options name, or None if they name a tool.

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
    """Return the decision of `serve` on the operation.

    Raises:
        ConfigurationError: no such server is configured.
    """
    refuse_unknown_server(operation.server, configured)
    sandbox = find_sandbox(settings, os.environ, lambda _: None)
    rehearsal = rehearsal_for(settings, loaded, os.environ, sandbox)
    found = anyio.run(rehearsal.of_operation, operation)
    named = NamedCall(operation.server, operation.tool, settings)
    step = step_of(found, named, operation.arguments, loaded)
    return ExplainedCall(found, None, () if step is None else covering_kept(step, settings, loaded))


def notes_on(operation: Operation) -> list[str]:
    """Return notes on conditions of `serve` that only a running session knows."""
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


# --- rule offer


def rule_for(one: PendingRequest) -> OfferedRule | None:
    """Return the rule for a call, or None if such calls always need an approval.

    Raises:
        ConfigurationError: the configuration of the session that asks is not known, or it or the
            policy cannot be read.
    """
    asking = _asking(one)
    proposal = offered_rule(one.request, asking)
    if proposal is None:
        return None
    settings = asking.settings
    file = own_file(settings)
    old = text_of(file)
    new = with_rule(old, "allow", proposal.server, proposal.tool, proposal.conditions)
    after = checked(settings, file, new)
    before = load_policy(settings)
    return OfferedRule(
        command=command_prefix(asking, os.environ) + proposal.command,
        change=[
            *changed_lines(file, old, new),
            *consequences(before, after, after.policy.rules[0]),
            *_what_holds(asking, before.version),
        ],
        write=partial(write_policy, file, old, new),
    )


def rule_command(one: PendingRequest) -> str:
    """Return the command that adds a rule for a call, or "" if there is none.

    Raises:
        ConfigurationError: as `rule_for`.
    """
    asking = _asking(one)
    found = offered_rule(one.request, asking)
    return "" if found is None else command_prefix(asking, os.environ) + found.command


def explanation_of(one: PendingRequest) -> list[str]:
    """Return the explanation of a question, step by step, as `explain` prints it.

    Raises:
        ConfigurationError: as `rule_for`.
    """
    request = one.request
    method, _, _ = request.tool.partition(" ")
    if method in METHODS:
        raise ConfigurationError(
            f"{method} is explained in a terminal: ironcurtain-proxy explain SERVER --read URI, "
            "or --prompt NAME"
        )
    asking = _asking(one)
    name = f"{request.server}/{request.tool}"
    lines = explained_lines(name, request.arguments, asking.settings, asking.environ)
    return [*lines, *_what_holds(asking, load_policy(asking.settings).version)]


def _asking(one: PendingRequest) -> SessionConfiguration:
    return configuration_of(one, sessions_directory(home_directory(os.environ)), os.environ)


def _what_holds(asking: SessionConfiguration, version: str) -> Iterator[str]:
    """Yield a note for a session that decides by another policy than its files have."""
    if asking.policy_problem:
        yield f"  the session keeps its policy, because of its files: {asking.policy_problem}"
    elif asking.policy_version and asking.policy_version != version:
        yield "  the session decides by an older policy than its files have now"


def offered_rule(request: Request, asking: SessionConfiguration) -> RuleProposal | None:
    """Return the narrowest rule that would allow a call, or None if such calls always ask.

    Blocks, and runs an event loop of its own: call it in a thread.

    Raises:
        ConfigurationError: the policy cannot be read.
    """
    loaded = load_policy(asking.settings)
    replaying = Replaying(asking.settings, loaded, asking.environ)
    if not replaying.knows(request.server):
        return None
    call = anyio.run(replaying.call, request.server, request.tool, request.arguments)
    if not isinstance(call.gathered, Facts):
        return None
    return proposal_for(call.gathered, loaded.policy, is_directory)

"""`policy show|export|allow|ask|deny`: the rules, and a new one with its effects."""

import argparse
import difflib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.check import layers
from ironcurtain_proxy.cli.explain_overlay import about_unknown_tool, tool_meant
from ironcurtain_proxy.cli.output import counted, say, say_json
from ironcurtain_proxy.config.migration import create, exchange
from ironcurtain_proxy.config.policy.policy_file import SECRETS, SHIPPED, SHORT_NAME, all_rules
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_candidate, load_policy
from ironcurtain_proxy.config.policy.proposing import with_rule
from ironcurtain_proxy.config.policy.short_form import EVERY, VERBS
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import PATH_ROLES, ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.conditions import ListCondition
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.values import Json


# --- a rule as JSON -------------------------------------------------------------------------------
# A rule as it stands in `compiled-policy.json`.
def rule_as_json(rule: Rule) -> dict[str, Json]:
    """Return the rule with all its conditions. A condition left out would widen it.

    The exception of the short form, `except`, has no key in the long form; it stands beside the
    conditions, where the reader of the file refuses it.
    """
    found: dict[str, Json] = {
        "name": rule.name,
        "description": rule.description or rule.reason,
        "principle": rule.principle or "Added by the operator",
        "if": _condition(rule),
        "then": rule.effect,
        "reason": rule.reason,
    }
    if not rule.contained:
        found["contained"] = False
    if rule.contained_reads:
        found["containedReads"] = True
    if rule.quorum is not None:
        found["quorum"] = rule.quorum.count
        if rule.quorum.roles:
            found["signers"] = [*sorted(rule.quorum.roles)]
    if rule.everywhere:
        found["everywhere"] = True
    if rule.excepting is not None:
        found[rule.excepting.key] = rule.excepting.as_json()
    return found


def _condition(rule: Rule) -> dict[str, Json]:
    condition: dict[str, Json] = {
        key: [*sorted(words)]
        for key, words in (
            ("roles", rule.roles),
            ("server", rule.servers),
            ("tool", rule.tools),
            ("operations", rule.methods),
            ("prompt", rule.prompts),
        )
        if words is not None
    }
    for one in rule.conditions:
        if one.narrows and not isinstance(one, ListCondition):
            condition[one.key] = one.as_json()
    if rule.lists:
        condition[ListCondition.key] = [one.as_json() for one in rule.lists]
    return condition


# --- policy show ----------------------------------------------------------------------------------
# `policy show` and `policy export`: the rules for people.


def show(options: argparse.Namespace) -> int:
    """Print the rules of all layers.

    Raises:
        ConfigurationError: the policy cannot be read.
    """
    loaded = load_policy(load_settings(os.environ, options.config))
    rules = all_rules(loaded.policy)
    if options.json:
        document = {
            "policyVersion": loaded.version,
            "alone": loaded.files.alone,
            "base": loaded.rules.base,
            "layers": [
                {"layer": name, "from": what, "rules": count}
                for name, what, count in layers(loaded)
            ],
            "rules": [{"layer": rule.layer, **rule_as_json(rule)} for rule in rules],
        }
        say_json(document)
        return 0
    for name, what, count in layers(loaded):
        say(f"{name} layer: {what} ({counted(count, 'rule')})")
    if loaded.files.alone:
        say("nothing is merged: generatedDir or GENERATED_DIR names a directory")
    say("")
    for rule in rules:
        say(f"{rule.layer:<8} {VERBS[rule.effect]:<6} {about(rule)}  ({visible(rule.name)})")
    say("         deny   whatever no rule covers  (default-deny)")
    return 0


def about(rule: Rule) -> str:
    """Return the conditions of a rule, in one line."""
    servers, tools = rule.servers or {"*"}, rule.tools or {"*"}
    said = [f"{'|'.join(sorted(servers))}/{'|'.join(sorted(tools))}"]
    if rule.roles is not None:
        said.append(f"[{', '.join(sorted(rule.roles))}]")
    needs = [] if rule.quorum is None else [f"needs {rule.quorum}"]
    words = [one.words() for one in rule.conditions]
    return visible(" ".join([*said, *_operations(rule), *words, *needs]))


def _operations(rule: Rule) -> Iterator[str]:
    if rule.methods is not None:
        yield f"operations {', '.join(sorted(rule.methods))}"
    if rule.prompts is not None:
        yield f"prompts {', '.join(sorted(rule.prompts))}"


def export(options: argparse.Namespace) -> int:
    """Copy the shipped files for reading.

    Raises:
        OSError: a file cannot be written, or exists already.
    """
    directory = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    for file in sorted(SHIPPED.glob("*.json")):
        with (directory / file.name).open("xb") as out:
            out.write(file.read_bytes())
        say(str(directory / file.name))
    say("for reading: put rules of your own into ~/.ironcurtain/policy.yaml")
    return 0


WRITTEN: Final = "written; running sessions take it within two seconds"

_CATEGORIES: Final[Mapping[str, str]] = {"path": "path", "host": "url", "sql": "sql"}
"""The options that limit a rule, each with the category of the arguments that it is about."""
_NOUNS: Final[Mapping[str, str]] = {"path": "a path", "url": "a URL", "sql": "SQL"}
_HOLDS_ANY: Final = frozenset({"command", "unclear"})


def change(verb: str, options: argparse.Namespace) -> int:
    """Add a rule to the user's layer.

    Raises:
        ConfigurationError: the policy or the arguments cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    before = load_policy(settings)
    configured = {spec.name: spec.annotations for spec in settings.servers}
    server, tool = tool_meant(options.tool, [*configured], may_be_bare=False)
    known_as = configured.get(server, server)
    if known_as != server:
        say(f"rules name server {server} {known_as}")
    for note in _warnings(known_as, tool, configured, before):
        say(f"warning: {note}")
    _refuse_what_never_holds(before, known_as, tool, options)
    places = [
        one if one[:1] in {"/", "~"} else str(Path(one).resolve()) for one in options.path or ()
    ]
    conditions = [("within", places), ("hosts", options.host)]
    conditions.append(("sql", [options.sql] if options.sql else []))
    if verb == "allow" and not options.secrets and _names_paths(before, known_as, tool):
        conditions.append(("except", [SECRETS]))
    file = own_file(settings)
    old = text_of(file)
    new = with_rule(old, verb, known_as, tool, [one for one in conditions if one[1]])
    after = checked(settings, file, new)
    if _is_first(before, after.policy.rules[0]):
        say("this is the first rule already: nothing was written")
        return 0
    show_change(file, old, new)
    for line in consequences(before, after, after.policy.rules[0]):
        say(line)
    if options.dry_run:
        say("nothing was written (--dry-run)")
        return 0
    write_policy(file, old, new)
    say(WRITTEN)
    return 0


def _warnings(
    known_as: str, tool: str, configured: Mapping[str, str], before: LoadedPolicy
) -> Iterator[str]:
    if configured and known_as not in {*configured, *configured.values(), EVERY}:
        there = ", ".join(map(visible, configured))
        yield f'there is no server "{visible(known_as)}"; there are: {there}'
    if tool != EVERY:
        yield from about_unknown_tool(known_as, tool, before.annotations)[1:]


def _is_first(loaded: LoadedPolicy, rule: Rule) -> bool:
    names = ("name", "description")
    first = [{**rule_as_json(one), **dict.fromkeys(names)} for one in loaded.policy.rules[:1]]
    return first == [{**rule_as_json(rule), **dict.fromkeys(names)}]


def _refuse_what_never_holds(
    loaded: LoadedPolicy, server: str, tool: str, options: argparse.Namespace
) -> None:
    """Refuse a condition on an argument that no such tool has: the rule would never hold.

    A tool that nobody annotated is let pass, with the warning about it.
    """
    roles = _roles_by_argument(loaded, server, tool)
    known = {role for found in roles.values() for role in found}
    is_known = any(name == server and tool in {one, EVERY} for name, one in loaded.annotations)
    takes = {ROLE_TRAITS[role].category for role in known}
    fitting = [option for option, category in _CATEGORIES.items() if category in takes]
    for option, category in _CATEGORIES.items():
        asked = getattr(options, option)
        # A command, and a value that nobody could explain, may hold paths, addresses and SQL.
        if not asked or not is_known or takes & {category, *_HOLDS_ANY}:
            continue
        of = f"{server}/{tool}" if tool != EVERY else f"a tool of {server}"
        shown_arguments = ", ".join(
            [
                name if found <= {"none"} else f"{name} ({', '.join(sorted(found))})"
                for name, found in sorted(roles.items())
            ]
        )
        use = f"; --{fitting[0]} limits them" if fitting else ""
        raise ConfigurationError(
            f"--{option}: no argument of {of} is {_NOUNS[category]}, so that the rule would never "
            f"hold. Its arguments: {shown_arguments or 'none'}{use}"
        )


def own_file(settings: Settings) -> Path:
    """Return the operator's own `policy.yaml`."""
    return (settings.generated_dir or settings.state_dir) / SHORT_NAME


def text_of(file: Path) -> str:
    """Return the text of a file, or "" if there is none."""
    return file.read_bytes().decode() if file.exists() else ""


def changed_lines(file: Path, old: str, new: str) -> Iterator[str]:
    """Return the change of the file, as the lines of a diff."""
    name = str(file)
    return difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="", n=2)


def show_change(file: Path, old: str, new: str) -> None:
    """Print the change of the file."""
    for line in changed_lines(file, old, new):
        say(line)


def consequences(before: LoadedPolicy, after: LoadedPolicy, rule: Rule) -> Iterator[str]:
    """Yield the effects of a new first rule, in lines for the operator."""
    server, tool = next(iter(rule.servers or {EVERY})), next(iter(rule.tools or {EVERY}))
    verb = VERBS[rule.effect]
    yield f"the new rule: {verb} {about(rule)}"
    rivals = _rivals(before, rule, server, tool)
    for other in rivals:
        left_to_it = rule.excepting is not None and other.names is not None
        if other.effect not in {rule.effect, "deny"} and not left_to_it:
            yield f"  takes precedence over: {VERBS[other.effect]} by {other.name}"
    opens = rule.effect == "allow" and rule.excepting is None
    if opens and any(other.names is not None and other.effect != "allow" for other in rivals):
        yield "  this opens files that usually hold secrets, too, where its conditions hold"
    if not rivals:
        yield "  until now: no rule"
    if rule.effect == "allow":
        yield from _still_restricting(after, server, tool)


def _rivals(loaded: LoadedPolicy, rule: Rule, server: str, tool: str) -> Sequence[Rule]:
    """Return the rules that may decide on the same arguments as a new one, in their order."""
    others = loaded.policy.book.for_tool(server, tool)
    roles = frozenset[ArgumentRole]().union(*_roles_by_argument(loaded, server, tool).values())
    if not roles:
        return others
    return [one for one in others if any(rule.is_about(r) and one.is_about(r) for r in roles)]


def _names_paths(loaded: LoadedPolicy, server: str, tool: str) -> bool:
    """Return whether the tool names files; without a tool: whether any tool does."""
    roles = _roles_by_argument(loaded, server, tool).values()
    return any(not PATH_ROLES.isdisjoint(found) for found in roles)


def _roles_by_argument(
    loaded: LoadedPolicy, server: str, tool: str
) -> dict[str, frozenset[ArgumentRole]]:
    """Return the arguments of a tool, or of all tools, each with every role that it may have."""
    found: dict[str, frozenset[ArgumentRole]] = {}
    for (name, one), annotation in loaded.annotations.items():
        if name == server and tool in {one, EVERY}:
            for argument, spec in annotation.arguments.items():
                found[argument] = found.get(argument, frozenset()) | spec.every_role()
    return found


def _still_restricting(after: LoadedPolicy, server: str, tool: str) -> Iterator[str]:
    for floor in after.policy.floors:
        for other in floor.book.for_tool(server, tool):
            if other.effect == "deny" or (floor.asks and other.effect == "escalate"):
                yield f"  but {other.name} of the {other.layer} layer still restricts it"


def checked(settings: Settings, file: Path, text: str) -> LoadedPolicy:
    """Return the policy with this text in the place of the file."""
    report = Report()
    with tempfile.TemporaryDirectory() as directory:
        candidate = Path(directory) / file.name
        candidate.write_text(text, "utf-8")
        after = load_candidate(settings, candidate, report)
    report.raise_errors()
    return after


def write_policy(file: Path, old: str, new: str) -> None:
    """Write the file in one step.

    Raises:
        ConfigurationError: it cannot be written, or no longer has its old text; it is as it was.
    """
    try:
        if file.exists():
            exchange(file, old.encode(), new.encode())
        else:
            create(file, new.encode())
    except OSError as error:
        why = f"cannot be written: {error.strerror}"
        raise ConfigurationError(f"{file}: {why}; nothing was written") from None

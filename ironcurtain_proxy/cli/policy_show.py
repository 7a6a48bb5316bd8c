"""`policy show` and `policy export`: the rules for people."""

import argparse
import os
from collections.abc import Iterator

from ironcurtain_proxy.cli.check import layers
from ironcurtain_proxy.cli.output import counted, say, say_json
from ironcurtain_proxy.cli.rule_json import rule_as_json
from ironcurtain_proxy.config.policy.difference import all_rules
from ironcurtain_proxy.config.policy.policy_files import SHIPPED
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.policy.short_form import VERBS
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.question import visible


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
    """The conditions of a rule, in one line."""
    servers, tools = rule.servers or {"*"}, rule.tools or {"*"}
    said = [f"{'|'.join(sorted(servers))}/{'|'.join(sorted(tools))}"]
    if rule.roles is not None:
        said.append(f"[{', '.join(sorted(rule.roles))}]")
    return visible(" ".join([*said, *_operations(rule), *[one.words() for one in rule.conditions]]))


def _operations(rule: Rule) -> Iterator[str]:
    if rule.methods is not None:
        yield f"operations {', '.join(sorted(rule.methods))}"
    if rule.prompts is not None:
        yield f"prompts {', '.join(sorted(rule.prompts))}"


def export(options: argparse.Namespace) -> int:
    """Copy the shipped files for reading.

    Raises:
        ConfigurationError: the files cannot be written, or exist already.
    """
    directory = options.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(SHIPPED.glob("*.json")):
            with (directory / file.name).open("xb") as out:
                out.write(file.read_bytes())
            say(str(directory / file.name))
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ConfigurationError(f"{error.filename}: cannot be written: {why}") from None
    say("for reading: put rules of your own into ~/.ironcurtain/policy.yaml")
    return 0

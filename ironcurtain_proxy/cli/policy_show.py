"""`policy show` and `policy export`: the policy for reading."""

import argparse
import os
import sys

import orjson

from ironcurtain_proxy.cli.check import layers
from ironcurtain_proxy.cli.explain import rule_as_json
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
        say(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return 0
    for name, what, count in layers(loaded):
        say(f"{name} layer: {what} ({count} rules)")
    if loaded.files.alone:
        say("nothing is merged: generatedDir or GENERATED_DIR names a directory")
    say("")
    for rule in rules:
        say(f"{rule.layer:<8} {VERBS[rule.effect]:<6} {about(rule)}  ({visible(rule.name)})")
    say("         deny   whatever no rule covers  (default-deny)")
    return 0


def about(rule: Rule) -> str:
    """What a rule is about, in one line."""
    servers, tools = rule.servers or {"*"}, rule.tools or {"*"}
    said = [f"{'|'.join(sorted(servers))}/{'|'.join(sorted(tools))}"]
    if rule.roles is not None:
        said.append(f"[{', '.join(sorted(rule.roles))}]")
    if rule.paths is not None:
        said.append(f"within {rule.paths.within}")
    if rule.names is not None:
        said.append(f"named like {len(rule.names.matching)} patterns")
    if rule.domains is not None:
        said.append(f"hosts {', '.join(sorted(rule.domains.allowed))}")
    return visible(" ".join(said))


def export(options: argparse.Namespace) -> int:
    """Copy the shipped files for reading.

    Raises:
        ConfigurationError: they cannot be written, or are there already.
    """
    directory = options.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(SHIPPED.glob("*.json")):
            with (directory / file.name).open("xb") as out:
                out.write(file.read_bytes())
            say(str(directory / file.name))
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {(error.strerror or '').lower()}") from None
    say("for reading: put rules of your own into ~/.ironcurtain/policy.yaml")
    return 0


def say(line: str) -> None:
    """Write one line, whatever it holds."""
    sys.stdout.write(line.encode("utf-8", "backslashreplace").decode() + "\n")

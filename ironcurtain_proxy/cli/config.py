"""`ironcurtain-proxy config`: migrate an older configuration, and print schemas for editors.

Other commands never write into a configuration; they only report what is outdated.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.arguments import add_config
from ironcurtain_proxy.cli.output import complain, say, say_json
from ironcurtain_proxy.config.migration import MigrationPlan, migrate, plan_of
from ironcurtain_proxy.config.schemas import FILES, DocumentKind, schema_of
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.own_process.clocks import SystemClock

DESCRIPTION: Final = """\
Bring the configuration file of an older version up to date, with the same meaning; or print the
JSON Schema of a file, by which an editor completes keys and marks mistakes.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy config migrate --dry-run      show the changes
  ironcurtain-proxy config migrate                change the file, and keep a copy of the old one
  ironcurtain-proxy config migrate --config config.json
  ironcurtain-proxy config schema                 list the files that have a schema
  ironcurtain-proxy config schema servers > servers.schema.json
      then, in the file itself: "$schema": "./servers.schema.json"

exit status: 0 if the file is up to date, or the schema was printed; 1 if the file is not up to
date: with --dry-run it would be changed, without it the change could not be written; 2 if the
configuration cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = actions.add_parser(
        "migrate",
        help="replace older settings by their present form",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    action.add_argument(
        "--dry-run", action="store_true", help="show the changes, and write nothing"
    )
    add_config(action)
    action = actions.add_parser(
        "schema", help="print the JSON Schema of a file", description=DESCRIPTION, epilog=EXAMPLES
    )
    action.add_argument(
        "file", nargs="?", metavar="FILE", choices=tuple(FILES), help=", ".join(FILES)
    )


def run(options: argparse.Namespace) -> int:
    """Migrate the file or show the changes, or print a schema.

    Raises:
        ConfigurationError: the configuration cannot be used as it is.
    """
    return _schema(options.file) if options.action == "schema" else _migrate(options)


def _schema(kind: DocumentKind | None) -> int:
    if kind is None:
        for name, file in FILES.items():
            say(f"{name:14}{file}")
        return 0
    say_json(schema_of(kind))
    return 0


def _migrate(options: argparse.Namespace) -> int:
    settings = load_settings(os.environ, options.config)
    file = settings.config_file
    if file is None:
        say("there is no configuration file: nothing to do")
        return 0
    plan = plan_of(file)
    if plan is None:
        return _without_plan(settings, file)
    for line in _difference(file, plan):
        sys.stdout.write(f"{line}\n")
    if options.dry_run and plan.after is not None:
        for change in plan.words:
            say(f"would add {change}")
        return 1
    done = migrate(plan, SystemClock().now())
    for line in done.lines:
        (say if done.was_written else complain)(f"{visible(str(file))}: {visible(line)}")
    return int(not done.was_written)


def _without_plan(settings: Settings, file: Path) -> int:
    outdated = [w for w in settings.warnings if w.message.startswith("deprecated: read as")]
    for warning in outdated:
        complain(f"{warning}: this file is not JSON: add the setting by hand")
    if not outdated:
        say(f"{visible(str(file))}: up to date")
    return int(bool(outdated))


def _difference(file: Path, plan: MigrationPlan) -> Iterator[str]:
    # Only the changed lines: a configuration holds secrets, and a screen can be seen by others.
    after = plan.before if plan.after is None else plan.after
    old, new = [text.decode("utf-8", "replace").splitlines() for text in (plan.before, after)]
    name = str(file)
    for line in difflib.unified_diff(old, new, name, f"{name} (migrated)", n=0, lineterm=""):
        yield "\t".join([visible(part) for part in line.split("\t")])

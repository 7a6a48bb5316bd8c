"""`config`: the migration of a configuration, and schemas for editors; `completion`, for shells.

Other commands never write into a configuration; they only report what is outdated.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ironcurtain_proxy.cli.arguments import COMMANDS
from ironcurtain_proxy.cli.output import complain, say, say_json
from ironcurtain_proxy.config.migration import MigrationPlan, migrate, plan_of
from ironcurtain_proxy.config.schemas import FILES, DocumentKind, schema_of
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.own_process import SystemClock


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


# --- completion


def run_completion(options: argparse.Namespace) -> int:
    """Print the completion script."""
    import shtab  # noqa: PLC0415  only here, and it needs every command

    from ironcurtain_proxy.cli import parser_of  # noqa: PLC0415  it imports this module

    parser = parser_of(COMMANDS)
    _name_files(parser, shtab.FILE, shtab.DIRECTORY)
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")
    return 0


def _name_files(
    parser: argparse.ArgumentParser, file: Mapping[str, object], directory: Mapping[str, object]
) -> None:
    """Complete arguments of type `Path` with paths."""
    for action in parser._actions:  # noqa: SLF001  as shtab itself does: there is no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  the same
            for inner in action.choices.values():
                _name_files(inner, file, directory)
        elif action.type is Path:
            action.complete = directory if action.metavar == "DIR" else file  # type: ignore[attr-defined]

"""The rules of every layer, read and joined.

The user's rules come first, then those of the fleet's bundle, then those of the base. The denials
of the base, and the questions and denials of the administrator's and the project's layer, hold
whatever the user allows: they are floors. The project's layer is a stranger's file: its rules are
marked with its name, its reasons are cut, and what it allows is left out. The administrator's rules
are marked in the same way.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from ironcurtain_proxy.config.policy.bundled import MAXIMUM_NAME, Bundle
from ironcurtain_proxy.config.policy.managed import ManagedFiles
from ironcurtain_proxy.config.policy.policy_file import (
    BaseName,
    DynamicLists,
    ListsFile,
    PolicyFile,
    PolicyReader,
    read_lists_file,
)
from ironcurtain_proxy.config.policy.policy_files import (
    LISTS_NAME,
    POLICY_NAME,
    SHIPPED,
    PolicyFiles,
    ProjectFiles,
)
from ironcurtain_proxy.config.policy.short_form import SHORT_NAME, ShortReader
from ironcurtain_proxy.config.reading.document import RulePlace
from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Floor, Rule

PROJECT_PREFIX: Final = "project:"
"""The prefix of the project's rules, which could otherwise take the name of another rule."""
MANAGED_PREFIX: Final = "managed:"
BUNDLE_PREFIX: Final = "bundle:"
_REASON: Final = 200
_SHIPPED_FILE: Final = SHIPPED / POLICY_NAME


_Narrowing: TypeAlias = tuple[tuple[tuple[Rule, RulePlace], ...], tuple[bytes, ...]]


class ReadRules(Struct, frozen=True, kw_only=True):
    """The rules of all layers."""

    rules: tuple[Rule, ...]
    """The user's rules, then those of the base."""
    floors: tuple[Floor, ...]
    places: tuple[RulePlace, ...]
    """The places of the user's rules; rules of the base have no place."""
    bundle: tuple[Rule, ...] = ()
    """The fleet's rules, which are asked after the user's."""
    project: tuple[tuple[Rule, RulePlace], ...]
    managed: tuple[tuple[Rule, RulePlace], ...] = ()
    base: BaseName
    data: tuple[bytes, ...]
    """The bytes of all files, for the version."""


class LayerReader(Struct, frozen=True, kw_only=True):
    """Reads the layers of one policy."""

    reader: PolicyReader
    report: Report

    def read(self, files: PolicyFiles) -> ReadRules:
        """Return the rules of all layers. Never raises; what cannot be read is in the report."""
        short = None if files.short is None else ShortReader(reader=self.reader).read(files.short)
        full = None
        if files.policy.parent != SHIPPED and files.policy not in files.absent:
            full = self.reader.read(files.policy)
        own = _joined(short, full)
        bundle = None if files.managed is None or files.alone else files.managed.bundle
        fleet = self._bundle(bundle)
        base = self._base(files, (short, full), fleet.base)
        # A preset has rules about commands; the operator says which servers run them.
        below = self._base_rules(base, () if full is None else full.command_servers)
        lower = tuple([replace(rule, layer="shipped") for rule in below.rules])
        project, more = ((), ()) if files.project is None else self._project(files.project)
        managed = [] if files.managed is None else self._managed(files.managed)
        # A floor of its own each: within one, the first rule that holds is the answer.
        layers = [*[rules for rules, _ in managed], project]
        narrowing = [tuple([rule for rule, _ in layer]) for layer in layers]
        most = [one for _, data in managed for one in data]
        floors = [Floor(rules=rules, asks=True) for rules in narrowing if rules]
        if (own.rules or fleet.rules) and any(rule.effect == "deny" for rule in lower):
            floors.append(Floor(rules=lower, asks=False))
        own_data = [b"" if file is None else file.data for file in (short, full)]
        return ReadRules(
            rules=(*own.rules, *fleet.rules, *lower),
            bundle=fleet.rules,
            floors=tuple(floors),
            places=own.places,
            project=project,
            managed=tuple([one for rules, _ in managed for one in rules]),
            base=base,
            data=(*own_data, base.encode(), below.data, fleet.data, *more, *most),
        )

    def _base(
        self,
        files: PolicyFiles,
        own: tuple[PolicyFile | None, ...],
        of_fleet: BaseName | None,
    ) -> BaseName:
        said = [file.base for file in own if file is not None and file.base is not None]
        if len(set(said)) > 1:
            self.report.error(
                files.short, ("base",), f"{files.policy} names another base: {shown(said[1])}"
            )
        return said[0] if said else "none" if files.alone else of_fleet or "shipped"

    def _base_rules(self, base: BaseName, command_servers: tuple[str, ...]) -> PolicyFile:
        # The package's own files need no report of the operator's.
        reader = replace(self.reader, lists=None)
        match base:
            case "none":
                return PolicyFile(b"", ())
            case "shipped":
                return reader.read(_SHIPPED_FILE) or PolicyFile(b"", ())
            case "coding" | "supervised" | "read-only":
                # Read only where it is the base.
                from ironcurtain_proxy.config.presets.preset import base_document  # noqa: PLC0415

                data, rules = base_document(base, command_servers)
                return PolicyFile(data, reader.rules_of(rules, f"preset {base}"))
            case _:
                assert_never(base)

    def _managed(self, files: ManagedFiles) -> list[_Narrowing]:
        rules, data = self._narrowing(files, None, "the administrator's layer")
        own = tuple([(_of_managed(rule), place) for rule, place in rules])
        found: list[_Narrowing] = [(own, (*data, files.data))]
        bundle = files.bundle
        if bundle is None:
            return found
        here = ManagedFiles(
            directory=bundle.directory,
            short=bundle.file(MAXIMUM_NAME),
            lists=bundle.file(LISTS_NAME),
        )
        rules, data = self._narrowing(here, None, "the fleet's maximum")
        maximum = tuple([(_of_managed(rule), place) for rule, place in rules])
        place = RulePlace(str(bundle.directory), ())
        named = [replace(rule, name=MANAGED_PREFIX + rule.name) for rule in bundle.rules()]
        # First, so that a stop is the reason that is told.
        above = [((rule, place),) for rule in named]
        return [*[(one, ()) for one in above], *found, (maximum, (*data, bundle.data))]

    def _bundle(self, bundle: Bundle | None) -> PolicyFile:
        """Return the fleet's rules, which are asked where the user's say nothing."""
        if bundle is None:
            return PolicyFile(b"", ())
        lists = bundle.file(LISTS_NAME)
        known = None if lists is None else read_lists_file(lists, self.report)
        reader = replace(self.reader, lists={} if known is None else known.lists)
        short, full = bundle.file(SHORT_NAME), bundle.file(POLICY_NAME)
        read = [
            None if short is None else ShortReader(reader=reader).read(short),
            None if full is None else reader.read(full),
        ]
        found = _joined(*read)
        said = [one.base for one in read if one is not None and one.base is not None]
        return PolicyFile(
            b"".join([one.data for one in read if one is not None]),
            tuple(
                [
                    replace(rule, layer="bundle", name=BUNDLE_PREFIX + rule.name)
                    for rule in found.rules
                ]
            ),
            base=said[0] if said else None,
        )

    def _project(self, files: ProjectFiles) -> _Narrowing:
        rules, data = self._narrowing(files, real(files.directory.parent), "a project")
        return tuple([(_of_project(rule), place) for rule, place in rules]), data

    def _narrowing(
        self, files: ManagedFiles | ProjectFiles, relative_to: RealPath | None, whose: str
    ) -> _Narrowing:
        """Read the rules of a layer that may ask and deny, and the bytes of its files."""
        lists = None if files.lists is None else read_lists_file(files.lists, self.report)
        own: DynamicLists = {} if lists is None else lists.lists
        reader = replace(self.reader, lists={**(self.reader.lists or {}), **own})
        short = None
        if files.short is not None:
            short = ShortReader(reader=reader, relative_to=relative_to, may_have_base=False).read(
                files.short
            )
        full = None if files.policy is None else reader.read(files.policy)
        found = _joined(short, full)
        kept: list[tuple[Rule, RulePlace]] = []
        for rule, place in zip(found.rules, found.places, strict=True):
            if rule.effect == "allow":
                message = f"{place.text}rule {shown(rule.name)} allows: it has no effect here, "
                message += f"{whose} may only ask and deny"
                self.report.warning(place.source, place.path, message)
            else:
                kept.append((rule, place))
        data = tuple([b"" if file is None else file.data for file in (short, full, lists)])
        return tuple(kept), data


def read_lists(file: Path | None, report: Report) -> ListsFile | None:
    """Return the operator's lists, or None if there are none, or they cannot be read."""
    return None if file is None else read_lists_file(file, report)


def _joined(short: PolicyFile | None, full: PolicyFile | None) -> PolicyFile:
    """Return the rules of one layer. Rules of the short form are asked first."""
    files = [file for file in (short, full) if file is not None]
    return PolicyFile(
        b"",
        tuple([rule for file in files for rule in file.rules]),
        tuple([place for file in files for place in file.places]),
    )


def _of_managed(rule: Rule) -> Rule:
    return replace(
        rule,
        layer="managed",
        name=MANAGED_PREFIX + rule.name,
        reason=f"The administrator of this machine says: {rule.reason}",
    )


def _of_project(rule: Rule) -> Rule:
    # These words are shown to reviewers, and may be a stranger's.
    said = " ".join("".join(c if c.isprintable() else " " for c in rule.reason).split())
    reason = said if len(said) <= _REASON else said[:_REASON] + " …"
    return replace(
        rule,
        layer="project",
        name=PROJECT_PREFIX + rule.name[:_REASON],
        reason=f"The project's policy says: {reason}",
    )

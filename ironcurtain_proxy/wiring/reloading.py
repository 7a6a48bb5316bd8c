"""The effect of a changed policy in a running session: as a whole or not at all.

Theory of operation:

    look ── same as before ──▶ nothing
      │ changed, and still as at the last look
      ▼
    load in a thread ── cannot be read, or a file is gone ──▶ the policy stays; it is said once
      │
      ▼
    record ── cannot be written ──▶ the policy stays
      │
      ▼
    replace policy and annotations; withdraw the questions of the old one; void grants

The administrator's layer takes effect by itself where the other files cannot be used: nobody keeps
a stop of the fleet away by a mistake in a file of his own. The same where `policy.reload` is off.
A bundle that expires is a change of the policy, too, although no file changes.

A file counts once two looks in a row found it unchanged, so that a file in the middle of its
writing is not read: the first lines of a policy may be a policy that lacks its denials. A file that
is gone is no permission to go on without it. The files are looked at instead of watched: a handful
of `stat` calls costs less than a watch, sees links and permissions, and needs no directory.
Loading takes at most a quarter of the time, however often the files change.

Protected paths, the workspace, the servers' hosts and their sandboxes stay as at the start. Servers
are told of their new roots; what they may ask the user they are told when they start.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.managed import managed_paths
from ironcurtain_proxy.config.policy.policy_file import Basis, rule_changes
from ironcurtain_proxy.config.policy.policy_files import (
    FileStamps,
    file_states,
    gone,
    possible_files,
)
from ironcurtain_proxy.config.policy.policy_loading import (
    LoadedPolicy,
    gather_managed,
    gather_policy,
    load_candidate,
)
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.facts.live_catalogue import LiveCatalogue
from ironcurtain_proxy.grants.session_grants import SessionGrants
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.grant import CallPattern, FamilyPattern, GrantPattern, Pattern
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.own_process import say
from ironcurtain_proxy.review.open_questions import OpenQuestions
from ironcurtain_proxy.wiring.reviewers import basis_in

_log = logging.getLogger(__name__)

T = TypeVar("T")

_EVERY: Final = 0.5
"""Seconds between two looks."""
_SHARE: Final = 3.0
"""The pause after a load, as a multiple of its duration."""


class Reloading(Struct, kw_only=True):
    """Takes changed policies over into one session."""

    settings: Settings
    loaded: LoadedPolicy
    in_force: PolicyInForce
    catalogue: LiveCatalogue
    journal: Journal
    questions: OpenQuestions
    grants: SessionGrants
    annotate_prompts: Callable[[Annotations], None] = lambda _prompts: None
    """Replaces the annotations of prompts for later requests."""
    name_reviewers: Callable[[LoadedPolicy], None] = lambda _loaded: None
    """Takes over who may approve by keys, and which keys the fleet revoked."""
    tell: Callable[[str, str], None] = lambda _version, _problem: None
    """Publishes the version in force and the problem of the files, for `status`."""
    on_change: Callable[[], Awaitable[None]] | None = None
    """Called after another policy took effect."""
    managed_only: bool = False
    """Whether only the administrator's layer is taken over: the setting `policy.reload` is off."""
    problem: str = ""
    """The reason why the files are not in force, or empty if they are."""
    _paths: tuple[Path, ...] = ()
    """Where files of the layers are, or may come."""
    _seen: FileStamps = ()
    """The states of the files at the last look."""
    _taken: FileStamps = ()
    """The states of the files at the last load, successful or not."""
    _good: FileStamps = ()
    """The states of the files of the policy in force."""

    def __post_init__(self) -> None:
        self._paths = managed_paths() if self.managed_only else possible_files(self.settings)
        self._seen = self._taken = self._good = file_states(self._paths)

    async def run(self) -> None:
        """Check the files until cancelled."""
        while True:
            started = self.journal.clock.monotonic()
            has_loaded = await self.look()
            took = self.journal.clock.monotonic() - started
            await anyio.sleep(_EVERY + (took * _SHARE if has_loaded else 0))

    async def look(self) -> bool:
        """Check the files once. Return True if they were read again."""
        now = await _in_thread(partial(file_states, self._paths))
        is_settled, self._seen = now == self._seen, now
        if not is_settled or (now == self._taken and not self._has_expired()):
            return False
        self._taken = now
        if self.managed_only:
            await self._take_managed(now)
            return True
        if missing := gone(self._paths, self._good, now):
            await self._refuse_all_but_managed(f"{missing[0]} is gone", now)
            return True
        report = Report()
        found = await _in_thread(partial(gather_policy, self.settings, report))
        if await _in_thread(partial(file_states, self._paths)) != now:
            # Changed while it was read: the next looks decide.
            self._taken = ()
            return True
        errors = [str(one) for one in report.problems if one.severity == "error"]
        if errors:
            await self._refuse_all_but_managed(errors[0], now)
        elif found.version == self.in_force.policy.version:
            self._good = now
            self._adopt(found)
        else:
            await self._take(found, now)
        return True

    def _has_expired(self) -> bool:
        """Return whether the bundle has expired since it was read."""
        managed, now = self.loaded.files.managed, self.journal.clock.now()
        bundle = None if managed is None else managed.bundle
        return bundle is not None and not bundle.expired and bundle.current.has_ended(now)

    async def _refuse_all_but_managed(self, why: str, now: FileStamps) -> None:
        await self._take_managed(now)
        self._refuse(why)

    async def _take_managed(self, now: FileStamps) -> None:
        """Put the administrator's layer as it is now above the policy in force."""
        report = Report()
        found = await _in_thread(partial(gather_managed, self.settings, report))
        errors = [str(one) for one in report.problems if one.severity == "error"]
        if errors:
            self._refuse(errors[0])
            return
        old = self.in_force.policy
        above, before = (
            [one for one in policy.floors if any(rule.layer == "managed" for rule in one.rules)]
            for policy in (found.policy, old)
        )
        managed, reviewers = found.files.managed, self.loaded.files.reviewers
        if managed is not None and managed.reviewers is not None:
            reviewers = managed.reviewers
        files = replace(self.loaded.files, managed=managed, reviewers=reviewers)
        merged = replace(self.loaded, files=files)
        self.grants.approvals.grants.ban(merged.revoked_grants)
        if [one.rules for one in above] == [one.rules for one in before]:
            self._adopt(merged)
            return
        digest = sha256(f"{old.version} {found.version}".encode()).hexdigest()
        floors = (*above, *[one for one in old.floors if one not in before])
        policy = replace(old, floors=floors, version=digest)
        await self._take(replace(merged, policy=policy), now)

    def _refuse(self, why: str) -> None:
        """Keep the policy, and report each reason once."""
        if why != self.problem:
            self.problem = why
            text = (
                f"the policy stays as it was, because a change of its files cannot be used: {why}"
            )
            say(text)
            _log.warning("%s", text)
            self.tell(self.in_force.policy.version, why)

    def _adopt(self, found: LoadedPolicy) -> None:
        self.loaded = found
        self.name_reviewers(found)
        if self.problem:
            self.problem = ""
            say("the files of the policy can be used again")
            self.tell(self.in_force.policy.version, "")

    async def _take(self, found: LoadedPolicy, now: FileStamps) -> None:
        old = self.in_force.policy
        new = replace(
            found.policy,
            workspace=old.workspace,
            protected_paths=old.protected_paths,
            protected_names=old.protected_names,
            domain_allowlists=old.domain_allowlists,
            may_ask=old.may_ask,
        )
        changes = rule_changes(old, new)
        ground = Ground("policy-change", f"Another policy takes effect ({changes})")
        about = {"before": old.version, "after": new.version, **changes.as_json()}
        if not await self.journal.note_own("policy_change", ground, about):
            self._refuse("the change cannot be recorded")
            self._taken = ()
            return
        self.grants.take_back()
        before = Basis(old, self.loaded.annotations)
        after = Basis(new, found.annotations)
        # INVARIANT: nothing waits from here on until all of it is replaced.
        self.in_force.policy = new
        self.catalogue.annotate(found.annotations)
        self.annotate_prompts(found.prompts)
        voided = self._void(before, after)
        self.grants.approvals.grants.ban(found.revoked_grants)
        asked = self.questions.supersede(new.version)
        self.grants.under(new.version, basis_in(self.settings, after))
        self._good = now
        self._adopt(found)
        _log.info("%s; %d questions and %d grants ended", ground.reason, asked, voided)
        self.tell(new.version, "")
        if self.on_change is not None:
            await self.on_change()

    def _void(self, before: Basis, after: Basis) -> int:
        """Forget grants whose rules changed. Returns their number."""
        names = {spec.name: spec.annotations for spec in self.settings.servers}
        book = self.grants.approvals.grants
        gone_ones = [
            one.grant.id
            for one in book.list()
            if (about := _about(one.grant.pattern)) is not None
            and before.of(names.get(about[0], ""), about[1])
            != after.of(names.get(about[0], ""), about[1])
        ]
        for identifier in gone_ones:
            book.revoke(identifier)
        return len(gone_ones)


def _about(pattern: Pattern) -> tuple[str, str] | None:
    """Return the server and tool of a grant that ends with a change of the policy.

    It is None if it does not.
    """
    if isinstance(pattern, GrantPattern | FamilyPattern | CallPattern):
        return pattern.server, pattern.tool
    return None


def candidate_of(settings: Settings) -> Policy | None:
    """Return the policy that is judged beside the one in force, or None if there is none."""
    if settings.shadow_policy is None:
        return None
    report = Report()
    found = load_candidate(settings, settings.shadow_policy, report)
    if report.has_errors:
        error = next(one for one in report.problems if one.severity == "error")
        say(f"warning: policy.shadow is not judged: {error}")
        return None
    return found.policy


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

"""`reviewers.json`: the keys of the persons who may approve, and what each may approve.

    {
      "quorum": 1,
      "reviewers": [
        {"person": "ada", "key": "ssh-ed25519 AAAA… ada@laptop", "risk": "high",
         "servers": ["git"], "paths": ["~/work"], "validUntil": "2027-06-30"}
      ],
      "revoked": ["SHA256:…"]
    }

Where the file exists, no approval counts without a signature by a key in it, unless `quorum` is 0
and no rule demands one. A file that cannot be read, or is gone while a proxy runs, lets nobody
approve.
"""

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, field

from ironcurtain_proxy.config.policy.managed import FINGERPRINT, REVIEWERS_NAME
from ironcurtain_proxy.config.policy.policy_file import (
    MOST_SIGNERS,
)
from ironcurtain_proxy.config.reading.document import Report, shown
from ironcurtain_proxy.config.reading.forms import (
    SCHEMA_KEY,
    CheckedForm,
    FormMistake,
    Maybe,
    NameText,
    given,
    read_form,
    says,
)
from ironcurtain_proxy.config.reading.layers import real, rooted
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.signing import (
    NO_SIGNATORIES,
    CallRisk,
    ReviewerKey,
    Signatories,
    folded,
)
from ironcurtain_proxy.private_files import Stamp, stamp_of
from ironcurtain_proxy.signing import Passkey, PublicKey, passkey, public_key

_log: Final = logging.getLogger(__name__)


NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"


_NOBODY: Final = Signatories(keys={})
"""What holds where the file cannot be read."""


_Name = Annotated[str, says(NAME, "must be letters, digits, `.`, `_`, `@` or `-`", 1)]


_NO_KEY: Final = (
    "is no line such as ssh-ed25519 AAAA…, of a file ending in .pub, or of a passkey; or it is a "
    "key for which anybody can sign, or nobody"
)


class SignatoryForm(CheckedForm, frozen=True, kw_only=True):
    """One key of a person, and what it may approve."""

    person: _Name
    """Who has the key. Two keys of one person count as one."""
    key: NameText
    """The public key, as `ssh-keygen -t ed25519` writes it into a file ending in `.pub`, or the
    line of a passkey, as the page of all machines shows it."""
    risk: CallRisk
    """The greatest risk that the key may approve."""
    servers: Maybe[frozenset[NameText]] = UNSET
    """The servers whose calls it may approve; absent: all."""
    paths: Maybe[tuple[NameText, ...]] = UNSET
    """The directories that all paths of a call must lie in; absent: all."""
    roles: frozenset[_Name] = frozenset()
    """The roles that rules name in `signers`."""
    accounts: frozenset[NameText] = frozenset()
    """Other names of the person: users of machines, and names of agents' tokens."""
    valid_until: Maybe[NameText] = UNSET
    """A date, or a moment with its zone, from which on the key does not count."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield what no type expresses."""
        if self.public() is None:
            yield ("key",), _NO_KEY, ""
        if given(self.valid_until) is not None and self.until() is None:
            message = "is no date such as 2027-06-30, or moment such as 2027-06-30T12:00:00Z"
            yield ("validUntil",), message, ""
        for name, said in (("servers", given(self.servers)), ("paths", given(self.paths))):
            if said is not None and not said:
                yield (name,), "is empty: nothing could be approved; leave it out for all", ""
        for index, path in enumerate(given(self.paths) or ()):
            if not path.startswith(("/", "~/")):
                yield ("paths", index), "must be an absolute path, or begin with ~/", ""

    def public(self) -> PublicKey | Passkey | None:
        """Return the key, or None if the line has none."""
        return public_key(self.key) or passkey(self.key)

    def until(self) -> datetime | None:
        """Return the moment from which on the key does not count; `None` means none."""
        try:
            moment = datetime.fromisoformat(given(self.valid_until) or "")
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)

    def reviewer(self, home: Path) -> ReviewerKey | None:
        """Return the key, or None if its line holds none."""
        key = self.public()
        if key is None:
            return None
        paths = [rooted(one, home) for one in given(self.paths) or ()]
        return ReviewerKey(
            id=key.fingerprint,
            names=key.names,
            public=key.raw,
            origin=key.origin if isinstance(key, Passkey) else "",
            person=self.person,
            risk=self.risk,
            servers=given(self.servers),
            paths=None
            if self.paths is UNSET
            else tuple([real(one) for one in paths if one is not None]),
            roles=self.roles,
            accounts=self.accounts,
            until=self.until(),
        )


class ReviewersForm(CheckedForm, frozen=True, kw_only=True):
    """The persons who may approve."""

    schema: str = field(name=SCHEMA_KEY, default="")
    quorum: Annotated[int, Meta(ge=0, le=MOST_SIGNERS)] = 1
    """The persons who must sign any approval; 0: only where a rule demands it."""
    reviewers: tuple[SignatoryForm, ...]
    revoked: tuple[Annotated[str, says(FINGERPRINT, "is no fingerprint SHA256:…")], ...] = ()
    """Fingerprints of keys that do not count any more, as `ssh-keygen -l` prints them."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield keys or persons that stand there twice, and a quorum that nobody can reach."""
        seen: dict[bytes | str, int] = {}
        names = {folded(one.person) for one in self.reviewers}
        for index, one in enumerate(self.reviewers):
            key = one.public()
            # Two passkeys of one number would have one name, and the later one take its place.
            both = () if key is None else (key.shared, key.fingerprint)
            first = min([seen.setdefault(part, index) for part in both], default=index)
            if first != index:
                message = f"is the key of $.reviewers[{first}], too: one key has one entry"
                yield ("reviewers", index, "key"), message, ""
            if {folded(name) for name in one.accounts} & (names - {folded(one.person)}):
                message = "has the name of another person here: who is one person has one name"
                yield ("reviewers", index, "accounts"), message, ""
        if self.quorum > len(names):
            yield ("quorum",), f"is more than the persons that reviewers names ({len(names)})", ""


def read_reviewers(path: Path, home: Path, report: Report) -> Signatories | None:
    """Read the file, or return None with the reason in the report."""
    own = Report()
    _check_owner(path, own)
    read = read_form(path, ReviewersForm, own)
    report.extend(own.problems)
    if read is None or own.has_errors:
        return None
    found = [one.reviewer(home) for one in read[1].reviewers]
    return Signatories(
        keys={one.id: one for one in found if one is not None},
        revoked=frozenset(read[1].revoked),
        quorum=read[1].quorum,
    )


def _check_owner(path: Path, report: Report) -> None:
    """Report a file that others can change: they could add a key of their own."""
    with suppress(OSError):
        found = path.stat()
        if found.st_uid not in {0, os.geteuid()} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            report.error(path, (), "can be changed by others: run chmod go-w on it, as its owner")


def check_quorums(rules: Iterable[Rule], known: Signatories, report: Report) -> None:
    """Report each rule that demands more signatures than there are persons."""
    for rule in rules:
        need = rule.quorum
        if need is None:
            continue
        able = {
            key.identity
            for key in known.keys.values()
            if not known.has_revoked(key)
            and (not need.roles or not need.roles.isdisjoint(key.roles))
        }
        if len(able) < need.count:
            message = f"rule {shown(rule.name)} demands {need}, and {REVIEWERS_NAME} names "
            message += f"{len(able)} who may sign: nobody could approve its calls"
            report.warning(REVIEWERS_NAME, (), message)


class ReviewersFile(Struct, kw_only=True):
    """The file of a running proxy, read again when it changes: a revoked key must not wait."""

    path: Path
    home: Path
    revoked: frozenset[str] = frozenset()
    """The keys that the fleet has revoked, wherever the file comes from."""
    _stamp: Stamp = ()
    _read: Signatories = NO_SIGNATORIES

    def now(self) -> Signatories:
        """Return what the file says at this moment. Never raises."""
        try:
            stamp = stamp_of(self.path.stat())
        except OSError:
            stamp = ()
        if not stamp:
            # Whoever removes the file of a running proxy must not open it by that. Nor does a link
            # that leads nowhere, of which nothing was ever read.
            self._read = _NOBODY if self._stamp or is_there(self.path) else NO_SIGNATORIES
        elif stamp != self._stamp:
            report = Report()
            found = read_reviewers(self.path, self.home, report)
            for problem in report.problems:
                _log.error("%s", problem)
            self._stamp, self._read = stamp, found or _NOBODY
        return self._read.without(self.revoked)

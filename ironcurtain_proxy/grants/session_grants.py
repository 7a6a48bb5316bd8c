"""The remembered approvals of one session, with the file that keeps them where one does."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.values import Json

if TYPE_CHECKING:
    from ironcurtain_proxy.grants.kept import PersistedGrants


class SessionGrants(Struct, frozen=True):
    """The grants of one session."""

    approvals: Approvals
    persisted: "PersistedGrants | None" = None
    """The storage of kept grants; None: grants end with the session."""

    def restore(self) -> None:
        """Load the grants kept by earlier sessions."""
        for remembered in () if self.persisted is None else self.persisted.load():
            self.approvals.grants.restore(remembered)

    def take_back(self) -> None:
        """Remove grants that were removed from the file meanwhile."""
        if self.persisted is not None:
            for identifier in self.persisted.withdrawn():
                self.approvals.grants.revoke(identifier)

    def under(self, policy_version: str, basis: Callable[[str, str], str]) -> None:
        """Keep grants under another policy from now on."""
        if self.persisted is not None:
            self.persisted.under(policy_version, basis)

    async def keep(self, *, at_once: bool = False) -> None:
        """Write changes to the file, if there is one; `at_once`: uses, too."""
        if self.persisted is not None:
            grants = self.approvals.grants
            for gone in await self.persisted.keep(grants.list(), at_once=at_once):
                grants.revoke(gone)

    async def revoke(self, identifier: str) -> None:
        """Remove one grant, here and in the file."""
        self.approvals.grants.revoke(GrantId(identifier))
        await self.keep(at_once=True)

    async def clear(self) -> None:
        """Remove all grants, and end the runs of approved plans."""
        self.approvals.grants.clear()
        self.approvals.budgets.clear()
        await self.keep(at_once=True)

    def listing(self) -> list[Mapping[str, Json]]:
        """Return the grants, for `grants list`."""
        return [
            {
                "id": remembered.grant.id,
                "description": remembered.grant.pattern.description,
                "createdAt": remembered.grant.created.isoformat(),
                "uses": remembered.uses,
                "lastUsed": _text(remembered.last_used),
                "expiresAt": _text(remembered.grant.expires),
                "source": remembered.grant.source,
            }
            for remembered in self.approvals.grants.list()
        ]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()

"""The locks on git repositories: exclusive for a push, shared for other calls.

The target of a push is in the repository's configuration, which another call may rewrite. So from
the last check of its remotes until its answer, a push is the only call on its repository. Other
calls run concurrently.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.errors import BusyError
from ironcurtain_proxy.model.path import RealPath


class _Traffic(Struct):
    """The calls on one repository."""

    working: int = 0
    pushing: bool = False
    pushes_waiting: int = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def admits(self, *, push: bool) -> bool:
        if self.pushing:
            return False
        # Later calls wait behind a waiting push, so that it is not starved.
        return self.working == 0 if push else self.pushes_waiting == 0

    @property
    def is_idle(self) -> bool:
        return self.working == 0 and not self.pushing and self.pushes_waiting == 0

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class _NoRepository(AbstractAsyncContextManager[bool]):
    """No lock, for most calls; a generator would cost each 2 µs."""

    async def __aenter__(self) -> bool:
        return False

    async def __aexit__(self, *_: object) -> None:
        return None


_NO_REPOSITORY: Final = _NoRepository()


class Repositories:
    """The repositories on which calls of one proxy work."""

    def __init__(self, *, deadline: float = 60.0) -> None:
        self._deadline = deadline
        self._traffic: dict[RealPath, _Traffic] = {}

    def undisturbed(
        self, repository: RealPath | None, *, push: bool
    ) -> AbstractAsyncContextManager[bool]:
        """Lock the repository: exclusively for a push, shared for any other call.

        Gives whether the call waited: earlier facts may no longer hold.

        Raises:
            BusyError: other calls on it did not end in time.
        """
        return _NO_REPOSITORY if repository is None else self._hold(repository, push=push)

    @asynccontextmanager
    async def _hold(self, repository: RealPath, *, push: bool) -> AsyncIterator[bool]:
        traffic = self._traffic.setdefault(repository, _Traffic())
        waited = not traffic.admits(push=push)
        await self._enter(repository, traffic, push=push)
        try:
            yield waited
        finally:
            self._leave(repository, traffic, push=push)

    async def _enter(self, repository: RealPath, traffic: _Traffic, *, push: bool) -> None:
        traffic.pushes_waiting += push
        try:
            with anyio.fail_after(self._deadline):
                while not traffic.admits(push=push):
                    await traffic.changed.wait()
        except TimeoutError:
            raise BusyError("another call on the same repository has not ended yet") from None
        else:
            if push:
                traffic.pushing = True
            else:
                traffic.working += 1
        finally:
            traffic.pushes_waiting -= push
            self._tidy(repository, traffic)

    def _leave(self, repository: RealPath, traffic: _Traffic, *, push: bool) -> None:
        if push:
            traffic.pushing = False
        else:
            traffic.working -= 1
        self._tidy(repository, traffic)

    def _tidy(self, repository: RealPath, traffic: _Traffic) -> None:
        traffic.notify()
        if traffic.is_idle and self._traffic.get(repository) is traffic:
            del self._traffic[repository]

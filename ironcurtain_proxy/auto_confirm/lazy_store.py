"""The store, opened when it is first needed, and again after it was lost."""

from collections.abc import Callable
from threading import Lock

from ironcurtain_proxy.auto_confirm.store.faults import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store


class LazyStore:
    """A store that is opened when it is first needed, in the thread that needs it."""

    def __init__(self, open_it: Callable[[], Store]) -> None:
        self._open = open_it
        self._lock = Lock()
        self._store: Store | None = None
        self._is_lost = self._is_closed = False

    def get(self) -> Store:
        """The store.

        Raises:
            StoreError: it cannot be opened. The next one who asks tries again.
        """
        with self._lock:
            if self._is_closed:
                raise StoreError("the store was closed")
            if self._store is None:
                self._store = self._open()
            elif self._is_lost:
                self._store = self._store.reopened()
            self._is_lost = False
            return self._store

    def current(self) -> Store | None:
        """Return the store if it is open and was not lost. Waits for nobody."""
        return None if self._is_lost else self._store

    def lose(self) -> None:
        """Note that the open store was lost: the next caller opens it anew."""
        self._is_lost = True

    def close(self) -> None:
        """Close it for good: a late thread does not open it again."""
        with self._lock:
            self._is_closed = True
            if self._store is not None:
                self._store.close()
                self._store = None

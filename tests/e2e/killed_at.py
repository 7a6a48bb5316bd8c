"""The proxy and its own shell, which end everything of the proxy at one moment of a call.

    python -m tests.e2e.killed_at                the proxy
    python -I -m tests.e2e.killed_at NUMBER      its own shell, started by that proxy

The moment stands in a file beside the proxy's state, and is taken from there when it is reached.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.config.servers import servers_file
from ironcurtain_proxy.model.reply import AuditRecord
from ironcurtain_proxy.own_shell import program
from ironcurtain_proxy.own_shell.running import Runner
from ironcurtain_proxy.transactions import files, journal
from ironcurtain_proxy.transactions.transaction import CommandView
from tests.e2e.process_tree import descendants

MODULE: Final = "tests.e2e.killed_at"
SHELL_MOMENTS: Final = ("view made", "running", "ended", "compared")
MOMENTS: Final = (
    *SHELL_MOMENTS,
    *("point made", "journal written", "step 2 done", "step 4 done"),
    *("commit ended", "outcome due", "outcome written"),
)


def moment_file(state: Path) -> Path:
    """Where the moment stands."""
    return state / "kill-at"


def _proxy_file(state: Path) -> Path:
    """Where the number of the proxy's process stands."""
    return state / "killed-proxy"


def _reached(moment: str, state: Path) -> None:
    """End the proxy and all that it started, if this is the moment. Alone, where it says so."""
    file = moment_file(state)
    words = file.read_text().splitlines() if file.exists() else []
    if words[:1] != [moment]:
        return
    file.unlink()
    proxy = int(_proxy_file(state).read_text())
    everything = descendants(proxy) - {os.getpid()} if words[1:] == ["all"] else set()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (proxy, *everything):
            if pid != os.getpid():
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, number)
    if os.getpid() == proxy or everything:
        os.kill(os.getpid(), signal.SIGKILL)


def _around(owner: object, name: str, before: str, after: str, state: Callable[..., Path]) -> None:
    real = getattr(owner, name)

    def called(*args: object, **more: object) -> object:
        if before:
            _reached(before, state(*args))
        found = real(*args, **more)
        if after:
            _reached(after, state(*args))
        return found

    setattr(owner, name, called)


def _shell() -> None:
    def of_view(view: CommandView, *_: object) -> Path:
        return view.directory.parents[2]

    _around(CommandView, "__init__", "", "view made", of_view)
    _around(CommandView, "prepare", "ended", "compared", of_view)
    real = Runner._followed

    async def followed(self: Runner, *args: object) -> int | None:
        _reached("running", Path(self._setup.views.directory).parents[1])
        return await real(self, *args)  # type: ignore[arg-type]  # as they came

    Runner._followed = followed  # type: ignore[method-assign, assignment]  # counts
    sys.exit(program.main(sys.argv[1:]))


def _serve() -> None:
    from ironcurtain_proxy.cli import main  # noqa: PLC0415  the shell does not need it
    from ironcurtain_proxy.snapshots.keeper import Keeper  # noqa: PLC0415
    from ironcurtain_proxy.wiring.views import ShellViews  # noqa: PLC0415

    state = Path(os.environ["HOME"], ".ironcurtain")
    _proxy_file(state).write_text(str(os.getpid()))
    servers_file.SHELL_MODULE = MODULE  # type: ignore[misc]  # this program
    steps = [0]

    def begun(*_: object) -> Path:
        # A start that takes a commit back renames, too.
        steps[0] = 0
        return state

    _around(journal, "begin", "", "journal written", begun)
    for owner, name, before, after in (
        (ShellViews, "commit", "point made", ""),
        (journal, "end", "", "commit ended"),
        (Keeper, "transact", "", "outcome due"),
    ):
        _around(owner, name, before, after, lambda *_: state)
    rename = files._rename

    def counted(*args: object) -> None:
        rename(*args)  # type: ignore[arg-type]  # as they came
        steps[0] += 1
        _reached(f"step {steps[0]} done", state)

    files._rename = counted  # type: ignore[assignment]  # counts, and does it
    record = AuditLog.record

    def recorded(self: AuditLog, given: AuditRecord) -> Awaitable[None]:
        written = record(self, given)

        async def wait() -> None:
            await written
            if given.result is not None:
                _reached("outcome written", state)

        return wait()

    AuditLog.record = recorded  # type: ignore[method-assign, assignment]  # writes
    sys.exit(main())


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        _shell()
    else:
        _serve()

"""`init --undo`: clients' files as they were before `init`. Not a command itself."""

from pathlib import Path
from typing import Final, assert_never

from ironcurtain_proxy.cli.init_showing import short
from ironcurtain_proxy.cli.init_talk import Talk, clean
from ironcurtain_proxy.config.clients.journal import Undone, only_one, read_journal, undo

_NEVER: Final = "nothing to undo: `init` has changed no client's file, or everything is put back"


def put_back(talk: Talk, home: Path, state: Path) -> int:
    """Restore all clients' files. 1 if a file could not be restored.

    Raises:
        ConfigurationError: the record cannot be read, or another `init` is running.
    """
    if not read_journal(state).entries:
        talk.say(_NEVER)
        talk.answer["undone"] = []
        return talk.end(0)
    with only_one(state):
        results, _ = undo(state, read_journal(state))
    for result in results:
        talk.say(_line(result, home))
    talk.answer["undone"] = [
        {"file": str(one.entry.file), "state": one.state, "why": one.why} for one in results
    ]
    clients = sorted({one.entry.client for one in results if one.state != "refused"})
    if clients:
        talk.say(f"Restart {', '.join(clients)}. Policy, record and servers stay in "
                 f"{short(state, home)}.")  # fmt: skip
    return talk.end(int(any(one.state == "refused" for one in results)))


def _line(result: Undone, home: Path) -> str:
    file = short(result.entry.file, home)
    match result.state:
        case "restored":
            return f"{file}: as it was, byte for byte"
        case "same":
            return f"{file}: was as it was already"
        case "merged":
            return (
                f"{file}: was changed since: its servers are back, and your changes are kept; "
                f"as it was before: {result.backup}"
            )
        case "refused":
            return (
                f"{file}: left as it is: {clean(result.why)}; put its servers back by hand, "
                f"from {result.backup}"
            )
        case _:
            assert_never(result.state)

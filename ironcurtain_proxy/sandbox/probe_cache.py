"""The cached result that a sandbox works on this machine, until something of it changes.

Only success is cached, because a missing program may be installed later. A wrong entry prevents a
server's start, and never removes its sandbox.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.private_files import write_whole
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sandbox.wrapper import WRAPPER

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PROGRAMS: Final = ("node", "srt", "bwrap", "socat", "rg")


def recall(file: Path, environ: Mapping[str, str]) -> Available | None:
    """The cached result, if nothing has changed since."""
    with suppress(OSError, orjson.JSONDecodeError):
        said = orjson.loads(file.read_bytes())
        if isinstance(said, dict) and said.get("machine") == _machine(environ):
            found = shutil.which("srt", path=environ.get("PATH", os.defpath))
            return None if found is None else Available((os.path.abspath(found),))  # noqa: PTH100
    return None


def remember(file: Path, environ: Mapping[str, str], _found: Available) -> None:
    """Cache a result; a failed write only costs another probe."""
    content = orjson.dumps({"machine": _machine(environ)})
    with suppress(OSError):
        if file.exists() and file.read_bytes() == content:
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, content)


def _machine(environ: Mapping[str, str]) -> list[str]:
    """The state that a sandbox depends on: this boot, this user, and each program."""
    with suppress(OSError):
        found = [_BOOT.read_text(encoding="ascii").strip(), str(os.getuid())]
        places = [shutil.which(one, path=environ.get("PATH", os.defpath)) for one in _PROGRAMS]
        for path in (*places, str(WRAPPER)):
            if path is None:
                return [os.urandom(8).hex()]
            status = os.stat(path)  # noqa: PTH116  the numbers of the file behind a link
            found.append(f"{os.path.realpath(path)} {status.st_mtime_ns} {status.st_size}")
        return found
    return [os.urandom(8).hex()]

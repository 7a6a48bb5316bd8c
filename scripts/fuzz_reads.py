"""Calls that are judged to only read, run by the real programs while something watches them.

For each program of the table that is installed, calls are made up from its grammar, its own help
and a list of hostile words. Those that are judged to only read run in a sandbox that can neither
write nor connect, traced: an attempt to write, connect or run a file of the workspace, an open of a
file with a secret, and a secret that is shown, is a fault.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.shell.made_calls import (  # noqa: E402  the path is set above
    BUILTIN,
    MARK,
    Entry,
    laid_out,
    place_of,
    reading_calls,
    table,
    with_help,
)

_CALLS: Final = (
    "open,openat,creat,connect,sendto,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,"
    "rmdir,symlink,symlinkat,link,linkat,truncate,chmod,fchmodat,chown,fchownat,utimensat,"
    "execve,mknod,mknodat,setxattr,clock_settime,settimeofday,sethostname"
)
_READS: Final = re.compile(r"(?:open|openat)\(.*O_RDONLY")
_HARMLESS: Final = re.compile(
    # git refreshes its index where it can, and sort keeps what is too large in temporary files.
    r"/\.git/index\.lock\"|\"/dev/(?:null|tty|pts|shm)|\"/proc/self/|\"/tmp/|AF_UNIX|AF_NETLINK"
)
_SECRETS: Final = re.compile(r"/?(?:\.env|server\.key|secrets\.json|id_rsa|taxes\.txt)\"")


@dataclass(frozen=True, slots=True)
class Ran:
    """One call that ran, and what is wrong with it."""

    command: str
    status: int
    fault: str


def write(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(command: str, there: Path, log: Path) -> Ran:
    """Run a call where nothing can be written or reached, and watch it."""
    log.mkdir(exist_ok=True)
    trace = log / "trace"
    environment = {"PATH": os.environ["PATH"], "HOME": str(there.parent), "TOKEN": MARK,
                   "LANG": "C.UTF-8"}  # fmt: skip
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run",
             "--unshare-net", "--unshare-pid", "--die-with-parent", "--bind", str(log), str(log),
             "--chdir", str(there), "strace", "-f", "--seccomp-bpf", "-qq", "-s", "200",
             "-e", f"trace={_CALLS}", "-o", str(trace), "bash", "-c", command]  # fmt: skip
    try:
        done = subprocess.run(
            words, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ran(command, -1, "")
    fault = _fault_of(trace.read_text(errors="replace"), there)
    if not fault and MARK in (done.stdout + done.stderr).decode(errors="replace").replace(
        command, ""
    ):
        fault = "" if MARK in command else "shows a secret"
    return Ran(command, done.returncode, fault)


def _fault_of(trace: str, there: Path) -> str:
    for line in trace.splitlines():
        if "+++" in line or "---" in line or "resumed>" in line:
            continue
        call = line.partition(" ")[2].strip()
        if call.startswith("execve("):
            if f'"{there}' in call or '"./' in call:
                return f"runs: {call[:160]}"
        elif _READS.match(call):
            if _SECRETS.search(call) and "O_DIRECTORY" not in call:
                return f"opens: {call[:160]}"
        elif not _HARMLESS.search(call) and not call.endswith("EISDIR (Is a directory)"):
            return f"changes: {call[:160]}"
    return ""


def tried(entry: Entry, there: Path, log: Path, options: argparse.Namespace) -> list[Ran]:
    """Run the calls of one program."""
    draw = random.Random(f"{options.seed} {entry.name}")  # noqa: S311  not for secrets
    calls = reading_calls(with_help(entry, there), draw, place_of(there), options.calls)
    return [run(command, there, log) for command in calls]


def main() -> int:
    """Run the calls, and say how many programs and calls really ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=50, help="calls for each program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="programs of the table")
    options = parser.parse_args()
    programs = calls = worked = 0
    faults: list[Ran] = []
    missing: list[str] = []
    few: list[str] = []
    # Not in a directory of temporary files: a file there is judged otherwise.
    with tempfile.TemporaryDirectory(prefix=".fuzz-reads-", dir=Path.home()) as root:
        there = laid_out(Path(root).resolve())
        for entry in table():
            if options.only and entry.name not in options.only:
                continue
            if shutil.which(entry.words[0]) is None and entry.name not in BUILTIN:
                missing.append(entry.name)
                continue
            found = tried(entry, there, Path(root).resolve() / "log", options)
            programs += 1
            calls += len(found)
            worked += sum(one.status == 0 for one in found)
            if len(found) < options.calls:
                few.append(f"{entry.name}:{len(found)}")
            for one in found:
                if one.fault:
                    faults.append(one)
                    write(f"FAULT {one.command}\n      {one.fault}")
    write(f"programs {programs}, calls {calls}, of which {worked} succeeded, faults {len(faults)}")
    write(f"not installed: {' '.join(missing)}")
    write(f"fewer calls: {' '.join(few)}")
    return 1 if faults or not calls else 0


if __name__ == "__main__":
    sys.exit(main())

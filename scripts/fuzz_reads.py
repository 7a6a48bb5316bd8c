"""Calls that are judged to only read, run by the real programs while something watches them.

For each program of the table that is installed, calls are made up from its grammar, its own help
and a list of hostile words. Those that are judged to only read run in a sandbox without a network,
traced, in a copy of a workspace of their own: an attempt to write, connect or run a file of the
workspace, an open of a file with a secret, and a secret that is shown, is a fault.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

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
    "open,openat,openat2,creat,connect,sendto,sendmsg,sendmmsg,unlink,unlinkat,rename,renameat,"
    "renameat2,mkdir,mkdirat,rmdir,symlink,symlinkat,link,linkat,truncate,ftruncate,chmod,fchmod,"
    "fchmodat,chown,fchown,fchownat,utimensat,execve,execveat,mknod,mknodat,setxattr,fsetxattr,"
    "removexattr,clock_settime,settimeofday,sethostname,mount,ptrace"
)
_READS: Final = re.compile(r"open(?:at|at2)?\(.*O_RDONLY(?!.*O_(?:CREAT|TRUNC))")
_HARMLESS: Final = re.compile(
    # git refreshes its index where it can, and sort keeps what is too large in temporary files.
    r"/\.git/index\.lock\"|\"/dev/(?:null|tty|pts|shm)|\"/proc/self/|AF_UNIX|AF_NETLINK"
    r"|\"/(?:var/)?tmp/(?:z?sh|sort|bash|ptx|tac|wdiff)[\w.-]+\"|\"/tmp/\", .*O_TMPFILE"
)
_SECRETS: Final = re.compile(
    r"/?(?:\.env|server\.key|secrets\.json|id_rsa|taxes\.txt|\.netrc|\.npmrc|prod\.tfvars"
    r"|kubeconfig|\.git-credentials)\""
)
_TMP: Final = "/tmp"  # noqa: S108  an empty one for each sandbox
_MARKER: Final = re.compile(r'openat\(AT_FDCWD, "/no/call/(\d+)"')
_DRIVER: Final = """
import json, os, signal, subprocess, sys
shell, limit, found = sys.argv[1], float(sys.argv[2]), []
for number, command in enumerate(json.load(sys.stdin)):
    try:
        os.open(f"/no/call/{number}", os.O_RDONLY)
    except OSError:
        pass
    stdin = open("a.txt" if number % 2 else os.devnull)
    one = subprocess.Popen([shell, "-c", command], stdin=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out, status = one.communicate(timeout=limit)[0], one.returncode
    except subprocess.TimeoutExpired:
        out, status = b"", -1
    try:
        os.killpg(one.pid, signal.SIGKILL)
    except OSError:
        pass
    one.wait()
    text = out[:1 << 20].decode(errors="replace").replace(command, "")
    found.append([status, os.environ["TOKEN"] in text])
json.dump(found, sys.stdout)
"""
"""Runs the calls one after another inside the sandbox; a call ends with all that it has started."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One call that ran, and what is wrong with it."""

    command: str
    status: int
    fault: str
    started: tuple[str, ...] = ()


def write(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(commands: Sequence[str], there: Path, log: Path, options: argparse.Namespace) -> list[Ran]:
    """Run calls in a copy of the workspace where nothing can be reached, and watch them."""
    log.mkdir()
    copy = log / "home"
    shutil.copytree(there.parent, copy, symlinks=True)
    trace = log / "trace"
    environment = {
        "PATH": os.pathsep.join([*options.path, os.environ["PATH"]]), "HOME": str(there.parent),
        "TOKEN": MARK, "LANG": "C.UTF-8",
    }  # fmt: skip
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run",
             "--tmpfs", _TMP, "--bind", str(log), str(log), "--bind", str(copy),
             str(there.parent), "--unshare-net", "--unshare-pid", "--die-with-parent", "--chdir",
             str(there), "strace", "-f", "--seccomp-bpf", "-qq", "-s", "200", "-e",
             f"trace={_CALLS}", "-o", str(trace), sys.executable, "-Sc", _DRIVER, options.shell,
             str(options.limit)]  # fmt: skip
    for one in (*options.path, options.shell):
        if one.startswith(f"{_TMP}/"):
            words[words.index("--bind") : words.index("--bind")] = ["--ro-bind", one, one]
    done = subprocess.run(
        words, input=orjson.dumps(list(commands)), capture_output=True, check=False,
        timeout=60 + len(commands) * (options.limit + 1), env=environment,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the sandbox did not run: {done.stderr.decode(errors='replace')}")
    traced = dict(_traced(trace))
    found = []
    for number, (status, shows) in enumerate(orjson.loads(done.stdout)):
        lines = traced.get(number, [])
        fault = next((one for one in (_fault_of(line, there) for line in lines) if one), "")
        command = commands[number]
        if not fault and shows and MARK not in command:
            fault = "shows a secret"
        started = [
            one[1] for line in lines if (one := re.search(r'^execve\("([^"]*)".* = 0', line))
        ]
        found.append(Ran(command, status, fault, tuple(started)))
    changed = _contents(there.parent) ^ _contents(copy)
    if changed:
        found.append(Ran(f"one of {len(commands)} calls", 0, f"changed {sorted(changed)[:4]}"))
    shutil.rmtree(log)
    return found


def _traced(trace: Path) -> Iterator[tuple[int, list[str]]]:
    """Give the system calls of each call, by its number."""
    driver, lines = "", list[str]()
    number = -1
    for line in trace.read_text(errors="replace").splitlines():
        process, _, call = line.partition(" ")
        driver = driver or process
        if process != driver:
            lines.append(call.strip())
        elif marker := _MARKER.search(call):
            yield number, lines
            number, lines = int(marker[1]), []
    yield number, lines


def _contents(top: Path) -> set[tuple[str, int, bytes]]:
    """Return the files with mode and content, without the index that git may refresh."""
    found = set()
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if name != "work/.git/index":
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found.add((name, path.lstat().st_mode, content))
    return found


def _fault_of(call: str, there: Path) -> str:
    if re.search(r"\+\+\+|---|resumed>|^(?:syscall_|\?)", call):
        return ""
    if call.startswith("execve"):
        return f"runs: {call[:160]}" if f'"{there}' in call or '("./' in call else ""
    if _READS.match(call):
        opens = _SECRETS.search(call) and not re.search("O_DIRECTORY|O_PATH|ENOENT", call)
        return f"opens: {call[:160]}" if opens else ""
    if _HARMLESS.search(call) or call.endswith("EISDIR (Is a directory)"):
        return ""
    return f"changes: {call[:160]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=50, help="calls for each program")
    parser.add_argument("--seed", type=int, default=1, help="also the order of the programs")
    parser.add_argument("--most", type=float, default=480, help="seconds of processor time")
    parser.add_argument("--skip", type=int, default=0, help="go on behind so many programs")
    parser.add_argument("--limit", type=float, default=2, help="seconds for each call")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--path", nargs="*", default=[], help="directories of other programs")
    parser.add_argument("--shell", default="bash")
    parser.add_argument("--only", nargs="*", default=[], help="programs of the table")
    return parser.parse_args()


def _spent() -> float:
    """Return the seconds of processor time of this process and of all that it has run."""
    return sum(os.times()[:4])


def _runs(entries: Sequence[Entry], options: argparse.Namespace) -> Iterator[list[Ran]]:
    """Run the calls of one program after another, and tell of each, until the time is spent."""
    # Not in a directory of temporary files: a file there is judged otherwise.
    with (
        tempfile.TemporaryDirectory(prefix=".fuzz-reads-", dir=Path.home()) as root,
        ThreadPoolExecutor(options.workers) as pool,
    ):
        top = Path(root).resolve()
        there = laid_out(top)

        def tried(entry: Entry) -> list[Ran] | None:
            if _spent() > options.most:
                return None
            draw = random.Random(f"{options.seed} {entry.name}")  # noqa: S311  not for secrets
            made = reading_calls(with_help(entry, there), draw, place_of(there), options.calls)
            return run(list(made), there, top / entry.name.replace("/", "_"), options)

        left = entries[options.skip :]
        for count, (entry, calls) in enumerate(zip(left, pool.map(tried, left), strict=True), 1):
            if calls is None:
                return
            done = f"{options.skip + count}/{len(entries)}"
            write(f"{done} {entry.name}: {len(calls)} calls, {_spent():.0f} s")
            for one in calls:
                if one.fault:
                    write(f"FAULT {one.command}\n      {one.fault}")
            yield calls


def main() -> int:
    """Run the calls, and say how many programs and calls really ran."""
    options = _options()
    where = os.pathsep.join([*options.path, os.environ["PATH"]])
    chosen = [one for one in table() if not options.only or one.name in options.only]
    entries = [
        one for one in chosen if one.name in BUILTIN or shutil.which(one.words[0], path=where)
    ]
    random.Random(options.seed).shuffle(entries)  # noqa: S311  not for secrets
    found = list(_runs(entries, options))
    write(f"not installed: {' '.join(one.name for one in chosen if one not in entries)}")
    if (reached := options.skip + len(found)) < len(entries):
        write(f"not reached: {len(entries) - reached} programs; go on with --skip {reached}")
    starts = Counter(
        (entry.name, name)
        for entry, calls in zip(entries[options.skip :], found, strict=False)
        for one in calls
        for name in one.started
    )
    for (program, path), times in sorted(starts.items()):
        if path.rpartition("/")[2] not in {program.split()[0], Path(options.shell).name}:
            write(f"starts {program}: {path} {times}")
    ran = [one for calls in found for one in calls]
    statuses, faults = Counter(one.status for one in ran), sum(bool(one.fault) for one in ran)
    write(
        f"programs {len(found)}, calls {len(ran)}, of which {statuses[0]} succeeded and "
        f"{statuses[-1]} took too long, faults {faults}"
    )
    return 1 if faults or not ran else 0


if __name__ == "__main__":
    sys.exit(main())

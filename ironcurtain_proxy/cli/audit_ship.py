"""`audit ship`, `audit root`, and `audit verify --heads`: what other machines know of a log."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec.json import encode

from ironcurtain_proxy.audit.heads import (
    HEADS_SUFFIX,
    ROOTS_NAME,
    LogHead,
    SignedRoot,
    check_log,
    check_roots,
    hours_to_sign,
    read_heads,
    read_roots,
    root_of,
)
from ironcurtain_proxy.audit.shipping import STYLES, Shipper, ShippingError, link_of
from ironcurtain_proxy.cli.arguments import whole
from ironcurtain_proxy.cli.audit_whole import Logs
from ironcurtain_proxy.cli.output import complain, counted, say
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.own_process.clocks import SystemClock, machine_id
from ironcurtain_proxy.private_files import append_line
from ironcurtain_proxy.signing.keys import is_signed_metadata, public_key, signer_of

_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADS_EVERY: Final = 60.0
_SECONDS: Final = 30.0
_MOST_HEADS: Final = 1 << 30
_REFUSED: Final = 300

SHIP_EXAMPLES: Final = """\
A note beside each log, audit.jsonl.shipped, holds the last record that was taken. After an end or a
fault the rest is sent; a record may come twice, and is known by its machine and number.

examples:
  ironcurtain-proxy audit ship --to /mnt/fleet/payments --heads /mnt/fleet
  ironcurtain-proxy audit ship --to https://collector:4318/v1/logs --format otlp
  ironcurtain-proxy audit ship --to https://siem.example.com/in --format ocsf --every 5

exit status: 0; 1 if the records were not taken; 2 if a log or a destination cannot be used
"""


def add_ship(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit ship`."""
    parser.add_argument("--to", required=True, metavar="URL|DIR", help="where the records go")
    parser.add_argument(
        "--format",
        choices=STYLES,
        default="records",
        dest="style",
        help="records: as they are, into a directory; otlp, ocsf: to an address (default records)",
    )
    parser.add_argument("--heads", type=Path, metavar="DIR", help="publish the heads there, too")
    parser.add_argument(
        "--every", type=whole(1, 3600), metavar="SECONDS", help="go on, looking this often"
    )


def ship(logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit ship`. Return 1 if the records were not taken."""
    sender, published = _sender(options), -_HEADS_EVERY
    while True:
        failed = False
        for member in logs.members():
            try:
                count = sender.ship(member.path)
            except ShippingError as error:
                failed = True
                complain(str(error))
            else:
                if count or options.every is None:
                    say(f"sent {counted(count, 'record')} of {member.path}")
        if options.heads is not None and time.monotonic() - published >= _HEADS_EVERY:
            _publish(logs, options.heads)
            published = time.monotonic()
        if options.every is None:
            return int(failed)
        time.sleep(options.every)


def _sender(options: argparse.Namespace) -> Shipper:
    if options.style == "records":
        directory = Path(options.to.removeprefix("file://"))
        if "://" in options.to.removeprefix("file://") or not directory.is_absolute():
            raise ConfigurationError("--format records takes an absolute directory as --to")
        return Shipper(machine=machine_id(), style="records", post=_nowhere, directory=directory)
    address = urlsplit(options.to)
    is_here = address.scheme == "http" and address.hostname in _HERE
    if not is_here and (address.scheme != "https" or not address.hostname):
        raise ConfigurationError(
            f"--to must begin with https:// for {options.style}; http:// is for this machine alone"
        )
    require("fleet", "audit ship")
    return Shipper(machine=machine_id(), style=options.style, post=_poster(options.to))


def _nowhere(_body: bytes, _kind: str) -> None:
    raise ShippingError("records go into a directory")


def _poster(url: str) -> Callable[[bytes, str], None]:
    # An extra's.
    import urllib3  # noqa: PLC0415

    pool = urllib3.PoolManager(timeout=urllib3.Timeout(_SECONDS), retries=False)

    def post(body: bytes, kind: str) -> None:
        try:
            answer = pool.request("POST", url, body=body, headers={"Content-Type": kind})
        except urllib3.exceptions.HTTPError as error:
            raise ShippingError(f"{url} does not take the records: {error}") from error
        if answer.status >= _REFUSED:
            raise ShippingError(f"{url} refused the records with status {answer.status}")

    return post


def _publish(logs: Logs, directory: Path) -> None:
    now = SystemClock().now()
    directory.mkdir(parents=True, exist_ok=True)
    for member in logs.members():
        link = link_of(member.path)
        if link is None:
            continue
        head = LogHead(
            machine=machine_id(), log=member.path.name, seq=link.seq, digest=link.digest, at=now
        )
        append_line(directory / f"{head.machine}{HEADS_SUFFIX}", encode(head), _MOST_HEADS)


def add_root(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit root`."""
    parser.add_argument("heads", type=Path, metavar="DIR", help="the directory of the heads")
    parser.add_argument(
        "--key", type=Path, required=True, metavar="FILE", help="the key that signs"
    )


def sign_roots(_logs: Logs, options: argparse.Namespace) -> int:
    """Run `audit root`: sign the root of each whole hour that has none."""
    require("fleet", "audit root")
    signer, heads = signer_of(options.key), read_heads(options.heads)
    hours = hours_to_sign(heads, read_roots(options.heads), SystemClock().now())
    for hour in hours:
        root = root_of(heads, hour)
        signed = SignedRoot(
            root=root, key=signer.key, signature=signer.sign_metadata(root.data()).hex()
        )
        append_line(options.heads / ROOTS_NAME, encode(signed), _MOST_HEADS)
    say(f"signed {counted(len(hours), 'root')}")
    return 0


def verify_heads(logs: Logs, options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the logs, or copies of them, by the heads that were published."""
    heads, roots = read_heads(options.heads), read_roots(options.heads)
    problems: list[str] = []
    if options.root_key is not None:
        require("fleet", "audit verify --root-key")
        keys = [public_key(path.read_text("utf-8")) for path in options.root_key]
        by_name = {key.fingerprint: key.raw for key in keys if key is not None}
        right = {
            one.signature: one.key in by_name
            and is_signed_metadata(by_name[one.key], bytes.fromhex(one.signature), one.root.data())
            for one in roots
        }
        problems += check_roots(heads, roots, right)
        signed = {one.root.hour for one in roots}
        complain(f"{counted(len(signed), 'hour')} with a root of {len(heads)} heads")
    machine = machine_id()
    for member in logs.members():
        # A copy that was sent elsewhere is called MACHINE.LOG.jsonl.
        name, _, rest = member.path.name.partition(".")
        log = rest.removesuffix(".jsonl")
        copy = [one for one in heads if one.machine == name and one.log == log]
        own = [one for one in heads if one.machine == machine and one.log == member.path.name]
        problems += check_log(member.path, copy or own)
    return problems

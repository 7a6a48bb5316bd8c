"""Programs of macOS. Pure: no I/O, no clock, no log."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.rules import (
    NOTHING,
    Checked,
    Commands,
    Reads,
    Rule,
    commands,
    options,
)

_ANY: Final = Reads()
_NETWORKSETUP: Final = re.compile(r"-(?:list|get|show|version|is)[A-Za-z0-9]*")


def _networksetup(words: Sequence[Word]) -> str | None:
    """Its sub-commands are options: `-getdnsservers`, `-setdnsservers`."""
    known = words and all(word.text is not None for word in words)
    if not known or not _NETWORKSETUP.fullmatch(words[0].text or ""):
        return "it may change the network"
    return "it may change the network" if any(w.prefix[:1] == "-" for w in words[1:]) else None


def _first(*names: str) -> Checked:
    """A program whose first word says what it does; more options do not change that."""

    def check(words: Sequence[Word]) -> str | None:
        if not words or words[0].text not in names:
            return "it is not known to only read"
        return None if all(word.text is not None for word in words) else "a word is not known"

    return Checked(check=check)


def _dscl(words: Sequence[Word]) -> str | None:
    texts = [word.text for word in words]
    verbs = {"-read", "-list", "-search", "-readall", "read", "list", "search"}
    fine = len(texts) > 1 and texts[0] is not None and texts[1] in verbs and None not in texts
    return None if fine and not (texts[0] or "").startswith("-") else "it may change the directory"


APPLE: Final[Mapping[str, Rule]] = {
    "networksetup": Checked(check=_networksetup, capabilities=NOTHING),
    "dscl": Checked(check=_dscl),
    "diskutil": _first("list", "info", "information", "activity"),
    "hdiutil": _first("help", "info", "imageinfo", "isencrypted", "pmap"),
    "tmutil": _first(
        "help", "destinationinfo", "isexcluded", "latestbackup", "listbackups", "compare",
        "listlocalsnapshotdates", "listlocalsnapshots", "verifychecksums", "calculatedrift",
        "uniquesize", "version",
    ),
    "launchctl": _first(
        "list", "print", "print-cache", "dumpstate", "print-disabled", "blame", "plist",
        "resolveport", "dumpjpcategory", "manageruid", "managername", "managerpid", "version",
        "help", "hostinfo",
    ),
    "pkgutil": _first(
        "--pkgs", "--packages", "--pkgs-plist", "--pkg-info", "--pkg-groups", "--group-pkgs",
        "--payload-files", "--files", "--file-info", "--groups", "--check-signature", "-h",
    ),
    "scutil": _first("--get", "--dns", "--proxy", "-w"),
    "profiles": _first("help", "list", "validate"),
    "plutil": _first("-p", "-lint"),
    "mdimport": _first("-L", "-X", "-A"),
    "spctl": _first("--assess"),
    "defaults": _first("read", "read-type", "help", "domains", "find"),
    "security": Commands(
        commands={
            **commands(
                "show-keychain-info|find-certificate|find-identity|dump-trust-settings|error|leaks"
                "|translocate-policy-check|translocate-original-path|requirement-evaluate",
                _ANY,
            ),
            **commands(
                "find-generic-password|find-internet-password|find-key",
                Reads(refused=options("-g -w -P")),
            ),
        },
    ),
    "codesign": Reads(
        allowed=options("-d -v --display --verify --verbose --deep --strict --validate-constraint"),
        needs=options("-d -v --display --verify --validate-constraint"),
    ),
    "xattr": Reads(refused=options("-w -d -c")),
    "lipo": Reads(
        refused=options("-extract -extract_family -remove -replace -thin -create -output"),
        needs=options("-info -archs -verify_arch -detailed_info"),
        single_dash=True,
    ),
    "textutil": Reads(
        refused=options("-output"), needs=options("-info -stdout -help"), single_dash=True
    ),
    **dict.fromkeys(
        ("binhex", "applesingle", "macbinary"),
        Reads(
            allowed=options("-h -V -c --version --help"),
            needs=options("-h -V -c --version --help"),
            abbreviated=False,
        ),
    ),
    "sips": Reads(allowed=options("-g --getProperty -h --help"), abbreviated=False),
}  # fmt: skip

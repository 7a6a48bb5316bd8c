"""Programs that do more than read: what they do. Pure: no I/O, no clock, no log.

None of these is ever safe. The table says which capability a profile may deny.
"""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.shell.rules import Acts, Rule

_WRITES: Final = Acts(capabilities=frozenset({"fs.write"}), reason="it changes files")
_COPIES: Final = Acts(capabilities=frozenset({"fs.read", "fs.write"}), reason="it writes files")
_MOVES: Final = Acts(
    capabilities=frozenset({"fs.read", "fs.write", "fs.delete"}), reason="it moves files"
)
_DELETES: Final = Acts(capabilities=frozenset({"fs.delete"}), reason="it deletes files")
_DEVICES: Final = Acts(
    capabilities=frozenset({"fs.read", "fs.write", "fs.delete"}),
    reason="it works on devices or file systems",
)
_CONNECTS: Final = Acts(capabilities=frozenset({"net.egress"}), reason="it reaches the network")
_TRANSFERS: Final = Acts(
    capabilities=frozenset({"net.egress", "fs.read", "fs.write"}), reason="it transfers files"
)
_SECRETS: Final = Acts(
    capabilities=frozenset({"secrets.access", "fs.read"}), reason="it handles secrets"
)

EFFECTS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("touch", "mkdir", "chmod", "chown", "chgrp", "ln", "tee", "mktemp", "mkfifo",
                     "patch", "setfacl", "chattr", "split", "csplit"), _WRITES),
    **dict.fromkeys(("cp", "install", "ditto", "zip", "cpio", "pax"), _COPIES),
    **dict.fromkeys(("mv", "rename"), _MOVES),
    **dict.fromkeys(("rm", "rmdir", "unlink", "shred", "srm", "trash", "truncate"), _DELETES),
    **dict.fromkeys(("dd", "mount", "umount", "mkfs", "mkfs.ext4", "fdisk", "parted", "losetup",
                     "swapon", "wipefs", "mkswap", "sfdisk", "cryptsetup"), _DEVICES),
    **dict.fromkeys(("ping", "ping6", "dig", "nslookup", "host", "telnet", "nc", "ncat", "netcat",
                     "socat", "traceroute", "whois", "mail", "sendmail", "nmap", "ftp"), _CONNECTS),
    **dict.fromkeys(("scp", "sftp", "aria2c", "http", "https", "rclone"), _TRANSFERS),
    **dict.fromkeys(("printenv", "pass", "gpg", "gpg2", "ssh-add", "ssh-keygen", "vault", "op",
                     "pbpaste"), _SECRETS),
}  # fmt: skip

CONNECTS: Final[Mapping[str, frozenset[Capability]]] = {
    "curl": _TRANSFERS.capabilities,
    "wget": _TRANSFERS.capabilities,
    "rsync": _TRANSFERS.capabilities,
    "ssh": _CONNECTS.capabilities,
}
"""Programs that are safe if asked for their version, and do this otherwise."""

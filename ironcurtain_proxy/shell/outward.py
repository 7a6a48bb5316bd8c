"""Commands that reach something outside the sandbox.

The tables decide which commands are asked about before they run. Safety does not depend on them: a
command that they miss runs without a network, fails, and is asked about when the call is repeated.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import SimpleCommand, Word
from ironcurtain_proxy.model.vocabulary import words

_ALWAYS: Final = words(
    """
    curl wget ssh scp sftp telnet ftp nc ncat netcat socat dig nslookup host ping ping6
    traceroute whois http https xh aria2c rclone mail sendmail mutt nmap mosh gh glab hub tea
    jira linear aws gcloud gsutil bq az doctl flyctl fly heroku vercel netlify wrangler
    firebase railway render supabase cf ibmcloud oci s3cmd mc eksctl docker podman nerdctl
    docker-compose buildah skopeo crane kubectl helm k9s kustomize oc minikube kind terraform
    tofu terragrunt pulumi ansible ansible-playbook packer vagrant nomad consul vault argocd
    flux istioctl psql mysql mariadb mysqldump pg_dump redis-cli mongo mongosh sqlcmd cqlsh
    clickhouse-client brew apt apt-get aptitude dnf yum apk pacman snap flatpak zypper port
    uvx pipx pnpx dlx twine npm-publish open xdg-open start osascript say pbcopy code
    cursor claude codex gemini aider goose ollama op
    """
)
"""Programs for which every call is asked about: most of what they do leaves the machine, or asks a
service on it that runs outside the sandbox."""

_PRIVILEGED: Final = words(
    """
    sudo doas su pkexec systemctl service launchctl crontab at batch mount umount mkfs fdisk
    parted reboot shutdown halt poweroff init insmod modprobe iptables nft ufw useradd userdel
    usermod passwd chsh visudo dscl defaults security diskutil
    """
)
"""Programs that change the machine itself."""

_SUB_COMMANDS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(commands.split())
    for name, commands in {
        "git": "push fetch pull clone ls-remote send-email request-pull fetch-pack send-pack svn p4"
        " lfs submodule credential",
        "npm": "install i in ci add update up upgrade publish unpublish login logout adduser view"
        " info show search outdated audit init create link dist-tag owner access token team"
        " whoami ping deprecate rebuild dedupe fund",
        "yarn": "install add up upgrade publish npm dlx create outdated info audit login global",
        "pnpm": "install i add update up publish dlx create outdated audit login fetch import",
        "bun": "install add update publish create upgrade",
        "pip": "install download search index wheel",
        "pip3": "install download search index wheel",
        "uv": "pip add sync lock tool publish python self remove",
        "poetry": "install add update publish lock search self",
        "pdm": "install add update publish lock sync",
        "pipenv": "install update lock sync",
        "conda": "install create update search env",
        "mamba": "install create update search env",
        "cargo": "install add publish search update fetch login owner yank",
        "rustup": "update install toolchain component target self",
        "go": "get install",
        "gem": "install push update fetch search owner signin yank",
        "bundle": "install update add outdated",
        "composer": "install require update create-project global",
        "mvn": "deploy release:perform release:prepare",
        "gradle": "publish",
        "dotnet": "restore add nuget tool publish",
        "mix": "deps.get hex.publish local.hex archive.install",
        "swift": "package",
        "nix": "run shell develop build flake profile",
        "mise": "install use upgrade i u plugins self-update ls-remote",
        "asdf": "install plugin update",
        "deno": "install publish upgrade",
        "openssl": "s_client ocsp",
        "python": "", "hg": "push pull clone incoming outgoing", "svn": "commit ci update up"
        " checkout co", "jj": "git", "gpg": "--recv-keys --send-keys --keyserver --search-keys",
    }.items()
}  # fmt: skip
_INSIDE: Final = frozenset(
    {"uv pip list", "uv pip show", "uv pip freeze", "uv pip check", "uv pip tree", "terraform fmt",
     "terraform validate", "tofu fmt", "tofu validate", "kubectl config current-context",
     "kubectl config get-contexts", "helm lint", "conda env list", "git lfs ls-files",
     "git submodule status", "docker compose version"}
)  # fmt: skip
"""Sub-commands of such programs that need nothing outside."""
_BARE: Final = frozenset({"yarn", "bundle", "composer", "pnpm"})
"""Package tools that install when they are called without a sub-command."""

_ASKS: Final = frozenset({"-v", "-V", "-h", "--version", "--help"})

_PAIRS: Final = frozenset(
    {("remote", "update"), ("remote", "show"), ("remote", "prune"), ("mod", "download"),
     ("mod", "tidy"), ("archive", "--remote")}
)  # fmt: skip


_CONNECTIONS: Final = ("/dev/tcp/", "/dev/udp/")
"""Paths that bash opens as a network connection."""


def why_outward(command: SimpleCommand) -> str | None:
    """The reason why a command leaves the sandbox; None: no reason is known."""
    if any(one.target.prefix.startswith(_CONNECTIONS) for one in command.redirections):
        return "a redirection opens a connection"
    name = name_of(command)
    if name is None:
        return None
    rest = command.words[1:]
    texts = [word.text or "" for word in rest]
    if texts in _SHOW_THEMSELVES:
        return None
    if name in {"python", "python3"} and texts[:2] == ["-m", "pip"]:
        name, rest = "pip", rest[2:]
    path = sub_commands(rest)
    if any(" ".join((name, *path[:length])) in _INSIDE for length in (1, 2)):
        return None
    copies = name == "rsync" and any(":" in text for text in texts)
    if copies or name in _ALWAYS or _fetches_to_run(name, texts):
        return f"{name} reaches something outside"
    return _why_sub_command(name, path, rest)


_SHOW_THEMSELVES: Final = (["--version"], ["--help"], ["-v"], ["-V"], ["version"])
"""The only argument with which every one of these programs prints its own version or help."""
_STARTERS: Final = frozenset({("npx",), ("bunx",), ("npm", "exec"), ("npm", "x"), ("bun", "x")})
_STAY: Final = frozenset({"--no-install", "--no", "--"})
_INSTALLED: Final = re.compile(r"(?:@[\w.-]+/)?[\w.][\w.-]*")
"""The name of a package alone: with a version, an address or a path it may be another one."""


def _fetches_to_run(name: str, texts: Sequence[str]) -> bool:
    """Return whether a launcher is told to fetch a package, and not just to start a program.

    `npx tsc` starts what the project has installed. Where it is not installed, the sandbox has no
    network to fetch it: the call fails, and is asked about when it is repeated.
    """
    width = _launcher_width(name, texts)
    rest = [text for text in texts[max(width - 1, 0) :] if text not in _STAY]
    return width > 0 and not all(map(_INSTALLED.fullmatch, rest[:1]))


def _launcher_width(name: str, texts: Sequence[str]) -> int:
    return next((len(one) for one in _STARTERS if (name, *texts)[: len(one)] == one), 0)


def may_fetch(command: SimpleCommand) -> bool:
    """Return whether a program fetches what it is to start, if the project has not installed it."""
    texts = [word.text or "" for word in command.words[1:3]]
    return _launcher_width(name_of(command) or "", texts) > 0


def _why_sub_command(name: str, path: Sequence[str], rest: Sequence[Word]) -> str | None:
    known = _SUB_COMMANDS.get(name)
    if known is None:
        return None
    if not path and name in _BARE and not _ASKS.intersection(word.text for word in rest):
        return f"{name} installs packages"
    if path and path[0] in known:
        return f"{name} {path[0]} reaches another machine"
    named = any((word.text or "").startswith("--remote=") for word in rest)
    if tuple(path[:2]) in _PAIRS or named:
        return f"{name} {' '.join(path[:2])} reaches another machine"
    return None


def why_privileged(command: SimpleCommand) -> str | None:
    """The reason why a command changes the machine itself; None: no reason is known."""
    name = name_of(command)
    if name not in _PRIVILEGED or tuple([word.text for word in command.words[1:]]) in _LISTS[name]:
        return None
    return f"{name} changes the machine"


_LISTS: Final[Mapping[str, frozenset[tuple[str, ...]]]] = defaultdict(
    frozenset,
    mount=frozenset({(), ("-l",), ("-v",)}),
    crontab=frozenset({("-l",)}),
    launchctl=frozenset({("list",)}),
    diskutil=frozenset({("list",), ("info", "/")}),
    systemctl=frozenset({("list-units",), ("list-timers",), ("--failed",)}),
)
"""The words behind such a program with which it only lists what there is."""


def name_of(command: SimpleCommand) -> str | None:
    """The name of the program, without its directory."""
    text = command.words[0].text if command.words else None
    return None if text is None else text.rpartition("/")[2] or None


_WITH_VALUE: Final = frozenset(
    {"-C", "-c", "--prefix", "--cwd", "--filter", "-w", "--workspace", "--git-dir", "--work-tree",
     "--dir", "--directory", "--project", "-F"}
)  # fmt: skip


def sub_commands(rest: Sequence[Word]) -> list[str]:
    """The words from the first operand up to the next option."""
    found: list[str] = []
    at = 0
    while at < len(rest):
        text = rest[at].text
        at += 1
        if text is None:
            break
        if text.startswith(("-", "+")):
            if found:
                break
            at += text in _WITH_VALUE
            continue
        found.append(text)
    return found

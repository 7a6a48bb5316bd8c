"""Package managers, builders and checkers. Pure: no I/O, no clock, no log."""

import re
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.shell.programs.wrappers import RUN_IN_PROJECT
from ironcurtain_proxy.shell.rules import (
    NETWORK,
    NOTHING,
    Acts,
    Commands,
    Reads,
    Rule,
    commands,
    options,
)

_NPM_REFUSED: Final = options(
    "--registry --userconfig --globalconfig --script-shell --node-options --viewer --browser"
    " --editor --shell --git --cache --logs-dir --init-module --proxy --https-proxy --prefix --call"
)
_NPM: Final = Commands(
    commands={
        **commands(
            """
            list|ls|ll|la|root|bin|why|explain|help|help-search|sbom|completion|query
            config list|ls|get
            pkg get
            """,
            Reads(refused=_NPM_REFUSED),
        ),
        **commands(
            """
            info|view|show|v|search|s|find|outdated|ping|fund|diff|stars|whoami|doctor
            owner ls
            access list|get
            dist-tag ls
            team ls
            profile get
            """,
            Reads(refused=_NPM_REFUSED | {"--browser"}, capabilities=NETWORK),
        ),
        "audit": Reads(refused=_NPM_REFUSED, denied_words=options("fix"), capabilities=NETWORK),
        "version": Reads(operands=0, allowed=options("--json"), abbreviated=False),
        "prefix": Reads(refused=_NPM_REFUSED - {"--prefix"}),
    },
    flags=options("-v"),
    alone=Reads(capabilities=NOTHING),
    runs=options("run run-script x exec explore start test init create edit"),
)
_YARN: Final = Commands(
    commands={
        **commands("list|why|help|versions", Reads(refused=options("--use-yarnrc"))),
        **commands("info|outdated", Reads(refused=options("--registry"), capabilities=NETWORK)),
        "audit": Reads(denied_words=options("fix"), capabilities=NETWORK),
    },
    runs=options("run exec dlx create node"),
)
_PNPM: Final = Commands(
    commands={
        **commands("ls|list|ll|why|root|bin|help", Reads()),
        "outdated": Reads(refused=options("--registry"), capabilities=NETWORK),
    },
    runs=options("run exec dlx create"),
)
_PIP_REFUSED: Final = options(
    "--log --python -i --index-url --extra-index-url --trusted-host --proxy -f --find-links"
    " --cert --client-cert --cache-dir --editor --report --keyring-provider"
)
_PIP_COMMANDS: Final = {
    **commands(
        "list|freeze|show|check|inspect|help|hash|debug\nconfig list|get|debug\ncache dir|info"
        "|list",
        Reads(refused=_PIP_REFUSED - {"-i", "-f"}),
    ),
    "index versions": Reads(refused=_PIP_REFUSED, capabilities=NETWORK),
}
_PIP: Final = Commands(commands=_PIP_COMMANDS, flags=options("-q -v --disable-pip-version-check"))
_UV: Final = Commands(
    commands={
        **commands("help\npython list|find|dir", Reads()),
        **{
            f"pip {name}": Reads(refused=_PIP_REFUSED)
            for name in ("list", "freeze", "show", "check", "tree")
        },
        "run": RUN_IN_PROJECT,
        "tree": Reads(needs=options("--frozen")),
    },
    flags=options("-q -v"),
    alone=Reads(capabilities=NOTHING),
    runs=options("run tool"),
)
_CARGO: Final = Commands(
    commands={
        **commands("search|info", Reads(refused=options("--registry --index"),
                                        capabilities=NETWORK)),
        **commands("tree|metadata|pkgid|locate-project|read-manifest|verify-project|help|version",
                   Reads(refused=options("--config -Z"))),
    },
    flags=options("-V --list -q -v"),
    runs=options("run r test t bench"),
)  # fmt: skip
_BREW_REFUSED: Final = options("--open --github --eval --fix --write-to")
_FORMULA_FILE: Final = re.compile(r"(?:\.{0,2}/|~).*|.*\.rb")
"""A formula is a program, and is run to be read: not one from here."""
_BREW: Final = Commands(
    commands={
        **commands(
            """
            list|ls|deps|leaves|uses|missing|config|options|formulae|casks|log|cat
            commands|help|shellenv|doctor|dr|info|outdated|desc
            analytics state
            --cache|--cellar|--prefix|--repo|--repository|--caskroom
            """,
            Reads(refused=_BREW_REFUSED, refused_operands=_FORMULA_FILE, abbreviated=False),
        ),
        **commands("search|tap-info", Reads(refused=_BREW_REFUSED, abbreviated=False)),
        "analytics": Reads(operands=0),
    },
    alone=Reads(capabilities=NOTHING),
    runs=options("sh irb ruby bundle"),
)

_APT: Final = Commands(
    commands=commands(
        "list|show|search|policy|depends|rdepends|showpkg|pkgnames|madison|stats",
        Reads(refused=options("-o -c --option --config-file")),
    ),
)
_GO: Final = Commands(
    commands={
        "version": Reads(refused=options("-m")),
        "env": Reads(refused=options("-w -u"), single_dash=True),
        "help": Reads(),
        "doc": Reads(refused=options("-http"), single_dash=True),
    },
    runs=options("run test tool"),
)
_CHECKS: Final = Reads(
    refused=options("--workers --config"), needs=options("--check --diff"), abbreviated=False
)

PACKAGES: Final[Mapping[str, Rule]] = {
    "npm": _NPM,
    "yarn": _YARN,
    "pnpm": _PNPM,
    "pip": _PIP,
    "pip3": _PIP,
    "uv": _UV,
    "cargo": _CARGO,
    "brew": _BREW,
    "apt": _APT,
    "apt-cache": _APT,
    "dpkg": Reads(allowed=options("-l -L -s -S -p --list --listfiles --status --search")),
    "dpkg-query": Reads(allowed=options("-W -l -L -s -S -f: --show --list --showformat")),
    "rpm": Reads(refused=options("--pipe --eval --define -D -E"), needs=options("-q --query")),
    "go": _GO,
    "black": _CHECKS,
    "isort": Reads(
        refused=options("--settings-path --config"),
        needs=options("--check --check-only -c --diff -d"),
        abbreviated=False,
    ),
    "ruff": Commands(
        commands={
            "check": Reads(
                refused=options("--fix --fix-only --output-file --add-noqa -o --config"),
                abbreviated=False,
            ),
            **commands("rule|linter|help|version|config", Reads(capabilities=NOTHING)),
        },
        alone=Reads(capabilities=NOTHING),
    ),
    **{
        name: Commands(commands={"run": RUN_IN_PROJECT}, runs=options("run"))
        for name in ("poetry", "pdm", "pipenv", "hatch", "rye")
    },
    "bundle": Commands(commands={"exec": RUN_IN_PROJECT}, runs=options("exec")),
    "rustup": Commands(commands=commands("show|toolchain list|component list", Reads())),
    "tee": Acts(capabilities=frozenset({"fs.write"}), reason="it writes files"),
}

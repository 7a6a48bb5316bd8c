"""Command lines of services, and of what deploys to them. Pure: no I/O, no clock, no log.

They reach the network, at the place their configuration names.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.programs.cloud import CHANGES
from ironcurtain_proxy.shell.programs.sql import SQLCMD
from ironcurtain_proxy.shell.rules import (
    NETWORK,
    NOTHING,
    Checked,
    Commands,
    Reads,
    Rule,
    Verbs,
    commands,
    options,
)

_AUTH0_OBJECTS: Final = Verbs(
    verbs=re.compile(r"ls|list|show|search|tail|diff|stats|help"),
    groups=re.compile(r"(?!api$)[a-z][a-z0-9-]*"),
    refused_paths=re.compile(
        CHANGES + r"|(?:^| )(?:open|use|test|customize|qs|quickstarts)(?= |$)"
    ),
    secret_paths=re.compile(r"(?!)"),
    flags=options("--no-color --no-input --debug"),
    values=options("--tenant"),
    refused=options("--reveal-secrets --web"),
    operands=1,
)


def _auth0_api(words: Sequence[Word]) -> str | None:
    """A GET, unless it says otherwise or has data."""
    if any(word.text is None or word.text.startswith(("-d", "--d", "--f")) for word in words):
        return "it may change something"
    method = (words[0].text or "").lower() if words else "post"
    return "it may change something" if method in {"post", "put", "patch", "delete"} else None


_AUTH0: Final = Commands(
    commands={
        "api": Checked(check=_auth0_api, capabilities=NETWORK),
        **dict.fromkeys(
            [
                "apps",
                "users",
                "logs",
                "actions",
                "apis",
                "roles",
                "orgs",
                "rules",
                "domains",
                "protection",
                "ap",
                "tenants",
                "email",
                "attack-protection",
                "universal-login",
                "ul",
                "event-streams",
            ],
            _AUTH0_OBJECTS,
        ),
    },
    flags=options("--no-color --no-input --debug"),
    values=options("--tenant"),
    capabilities=NETWORK,
)

_GH_STATUS: Final = Reads(
    refused=options("-w --web --show-token -t"),
    abbreviated=False,
    capabilities=NETWORK,
)
_GH_READS: Final = Reads(
    refused=options("--web -w --output-dir --clobber"), abbreviated=False, capabilities=NETWORK
)


def _gh_api(words: Sequence[Word]) -> str | None:
    """A GET of GitHub's own API. With fields it is a POST, unless it says otherwise."""
    texts = [word.text for word in words]
    if None in texts or any("://" in (text or "") for text in texts):
        return "an argument is not known, or names another host"
    sends = any(_API_SENDS.match(text or "") for text in texts)
    methods = [
        (found[1] or follower or "").upper()
        for text, follower in zip(texts, [*texts[1:], None], strict=False)
        if (found := _API_METHOD.fullmatch(text or ""))
    ]
    if any(method not in {"GET", "HEAD"} for method in methods) or (sends and not methods):
        return "it may change something"
    odd = {"graphql", "--input", "--hostname"} & {(text or "").partition("=")[0] for text in texts}
    return "it may change something" if odd else None


_API_SENDS: Final = re.compile(r"-[^-]*[fF]|--field|--raw-field|--f|--r")
_API_METHOD: Final = re.compile(r"(?:-X=?|--method=?)(.*)")

_GH: Final = Commands(
    commands={
        **commands(
            """
            pr list|status|view|diff|checks
            issue list|status|view
            repo list|view
            run list|view
            workflow list|view
            release list|view|verify-asset|verify
            gist list|view
            search issues|prs|commits|code|repos
            cache list
            secret list
            variable list|get
            label list
            config list|get
            codespace list|ports
            cs list
            extension list|search
            ext list
            ssh-key list
            gpg-key list
            project list|view|field-list|item-list
            ruleset list|view|check
            rs list|view
            attestation verify
            at verify
            org list
            status
            alias list
            """,
            _GH_READS,
        ),
        "auth status": _GH_STATUS,
        "api": Checked(check=_gh_api, capabilities=NETWORK),
        "browse": Reads(needs=options("-n --no-browser"), capabilities=NETWORK),
    },
    values=options("-R --repo"),
    runs=options("extension ext alias"),
    capabilities=NETWORK,
)

_TERRAFORM: Final = Commands(
    commands={
        **commands(
            "version|show|graph|validate|providers|modules|output\nstate list|show"
            "\nworkspace list|show",
            Reads(refused=options("-backup -state-out -out"), single_dash=True),
        ),
        "fmt": Reads(needs=options("-check --check"), refused=options("-write"), single_dash=True),
    },
    values=options("-chdir"),
)

SERVICES: Final[Mapping[str, Rule]] = {
    "auth0": _AUTH0,
    "gh": _GH,
    "terraform": _TERRAFORM,
    "tofu": _TERRAFORM,
    "cdk": Commands(
        commands={
            "doctor": Reads(capabilities=NOTHING),
            "context": Reads(allowed=options("-j --json"), operands=0),
        },
        runs=options("synth deploy"),
    ),
    "packer": Commands(
        commands={
            "inspect": Reads(),
            "validate": Reads(needs=options("-syntax-only"), single_dash=True),
            "fmt": Reads(needs=options("-check"), single_dash=True),
        },
    ),
    "ansible-doc": Reads(refused=options("-M --module-path --playbook-dir")),
    "ansible-galaxy": Commands(
        commands=commands("role list|search|info\ncollection list", Reads(capabilities=NETWORK)),
    ),
    "sqlcmd": Commands(
        commands={
            **commands("config view|cs|current-context|get-contexts", Reads()),
            "query": Checked(check=SQLCMD.check, capabilities=NETWORK),
        },
    ),
    "ansible-config": Commands(commands=commands("list|dump|validate", Reads())),
}

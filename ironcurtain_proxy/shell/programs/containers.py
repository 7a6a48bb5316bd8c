"""Containers and clusters. Pure: no I/O, no clock, no log."""

from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.programs.wrappers import DOCKER_EXEC, KUBECTL_EXEC
from ironcurtain_proxy.shell.rules import (
    NETWORK,
    NOTHING,
    Acts,
    Checked,
    Commands,
    Reads,
    Rule,
    check_reads,
    commands,
    options,
)

_LOCAL: Final = Reads(capabilities=NOTHING)
_STDOUT: Final = Reads(refused=options("-o --output"), abbreviated=False, capabilities=NOTHING)

_COMPOSE: Final = Commands(
    commands={
        **commands("ps|logs|images|version|ls|top|port|events|stats", _LOCAL),
        "config": Reads(
            refused=options("-o --output --lock-image-digests"), abbreviated=False
        ),
    },
    flags=options("--all-resources --compatibility"),
    values=options("-f --file -p --project-name --profile --ansi --progress"),
    runs=options("run exec"),
)  # fmt: skip

_DOCKER: Final = Commands(
    commands={
        **commands(
            """
            ps|images|inspect|logs|top|port|stats|history|events|version|info|diff
            container ls|ps|list|inspect|logs|top|port|stats|diff
            image ls|list|inspect|history
            network ls|list|inspect
            volume ls|list|inspect
            system df|info|events
            context ls|list|show|inspect
            service ls|ps|inspect|logs
            stack ls|ps|services
            node ls|ps|inspect
            secret ls|inspect
            config ls|inspect
            plugin ls|inspect
            buildx ls|du|version
            """,
            _LOCAL,
        ),
        "buildx inspect": Reads(refused=options("--bootstrap"), capabilities=NOTHING),
        **commands(
            "search\nbuildx imagetools inspect\nmanifest inspect\ntrust inspect",
            Reads(capabilities=NETWORK),
        ),
        **commands("save|export\nimage save\ncontainer export", _STDOUT),
        "compose": _COMPOSE,
        "exec": DOCKER_EXEC,
        "container exec": DOCKER_EXEC,
        **commands("push|pull|login|logout", Acts(capabilities=NETWORK, reason="it sends data")),
    },
    flags=options("-D --debug"),
    values=options("-c --context -l --log-level"),
    runs=options("run exec create container compose"),
)

_KUBECTL_REFUSED: Final = options(
    "--kubeconfig -s --server --token --cache-dir --profile-output --password --username --raw"
    " --certificate-authority --client-key --client-certificate --insecure-skip-tls-verify"
    " --output-directory --tls-server-name"
)
_KUBE: Final = Reads(refused=_KUBECTL_REFUSED, abbreviated=False, capabilities=NETWORK)
_WITH_CONTENT: Final = ("json", "yaml", "go-template", "template", "custom-columns", "jsonpath")


def _kubectl_get(words: Sequence[Word]) -> str | None:
    """Secrets are shown if they are asked for in a form that has their content."""
    reason = check_reads(_KUBE, words)
    if reason is not None:
        return reason
    texts = [word.prefix for word in words]
    secret = any("secret" in text.lower() for text in texts) or "-f" in texts
    shows = any(form in text for text in texts for form in _WITH_CONTENT)
    return "it may show secrets" if secret and shows else None


_KUBECTL: Final = Commands(
    commands={
        **commands(
            """
            describe|logs|explain|api-resources|api-versions|version|top|events|wait|completion
            cluster-info|options
            auth can-i|whoami
            rollout status|history
            config view|get-contexts|current-context|get-clusters|get-users
            plugin list
            """,
            _KUBE,
        ),
        "get": Checked(check=_kubectl_get, capabilities=NETWORK),
        "exec": KUBECTL_EXEC,
        **commands(
            "apply|create|delete|edit|replace|patch|scale|label|annotate|drain|cordon|run|cp",
            Acts(capabilities=NETWORK, reason="it changes the cluster"),
        ),
    },
    values=options("-n --namespace --context --cluster --user --request-timeout -v"),
    runs=options("exec run debug plugin"),
    capabilities=NETWORK,
)

_HELM_REFUSED: Final = options(
    "--kubeconfig --kube-apiserver --kube-token --kube-ca-file --post-renderer --output-dir"
    " --registry-config --repository-cache --repository-config --repo --plugins --username"
    " --password --dependency-update --kube-tls-server-name --enable-dns"
)
_HELM_READS: Final = Reads(refused=_HELM_REFUSED, abbreviated=False, capabilities=NETWORK)


def _helm_dry_run(words: Sequence[Word]) -> str | None:
    """Without `--dry-run` it deploys; `--dry-run=none` and `=false` do as if it were not there."""
    dry = [word.text for word in words if word.prefix.startswith("--dry-run")]
    if len(dry) != 1 or dry[0] not in {"--dry-run", "--dry-run=client", "--dry-run=server"}:
        return "it deploys"
    return check_reads(_HELM_READS, words)


_HELM: Final = Commands(
    commands={
        **commands(
            """
            list|ls|status|history|template|lint|verify|version|completion|env
            get hooks|notes|manifest|metadata
            show all|chart|crds|readme|values
            inspect all|chart|crds|readme|values
            search repo|hub
            repo list|ls
            dependency list|ls
            dep list|ls
            plugin list|ls
            """,
            _HELM_READS,
        ),
        **commands("install|upgrade", Checked(check=_helm_dry_run, capabilities=NETWORK)),
    },
    flags=options("--debug"),
    values=options("--kube-context -n --namespace"),
    capabilities=NETWORK,
)

CONTAINERS: Final[Mapping[str, Rule]] = {
    "docker": _DOCKER,
    "podman": _DOCKER,
    "nerdctl": _DOCKER,
    "docker-compose": _COMPOSE,
    "podman-compose": _COMPOSE,
    "kubectl": _KUBECTL,
    "oc": _KUBECTL,
    "helm": _HELM,
}

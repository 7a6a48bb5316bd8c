"""Hosts of a shell command: what its question names, and what an approval opens."""

import pytest

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.outward import UNKNOWN_HOST, targets_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT


def targets(command: str) -> list[str]:
    found = effect_of(parse_command(command), PROJECT)
    assert found.effect == "outward"
    return [one.removeprefix("host ") for one in targets_of(found)]


def test_every_host_that_a_program_is_told_to_reach_is_named() -> None:
    cases = [
        ("curl -sSL https://a.example/x -o out", ["a.example"]),
        ("curl a.example/x", ["a.example"]),
        ("curl localhost:3000/health", ["localhost"]),
        ("curl https://a.example/ --next https://b.example", ["a.example", "b.example"]),
        ("curl --url https://a.example", ["a.example"]),
        ("curl 'https://a.example@b.example/'", ["b.example"]),
        ("curl https://a.example/$X", ["a.example"]),
        ("wget -qO- https://a.example", ["a.example"]),
        ("git clone https://a.example/x.git dir.d", ["a.example"]),
        ("git clone git@a.example:x/y.git", ["a.example"]),
        ("git push https://a.example/x main", ["a.example"]),
        ("npm install --registry https://a.example x", ["a.example"]),
        ("pip install --index-url https://a.example/simple x", ["a.example"]),
        ("python3 -m pip install -q --index-url https://a.example/simple x", ["a.example"]),
        ("pip install 'x @ git+https://a.example/x.git'", ["a.example"]),
        ("cargo install --git https://a.example/x", ["a.example"]),
        ("ssh -p 22 u@a.example ls", ["a.example"]),
        ("scp x u@a.example:y", ["a.example"]),
        ("rsync -av x a.example:y", ["a.example"]),
        ("docker -H tcp://a.example:2375 ps", ["a.example"]),
        ("psql postgres://u:p@a.example/x", ["a.example"]),
        ("psql -h a.example -c 'select 1'", ["a.example"]),
    ]
    assert [(command, named) for command, named in cases if targets(command) != named] == []


@pytest.mark.parametrize(
    "command",
    [
        "curl -H 'Referer: https://evil.example/' https://a.example/",
        "curl -e https://evil.example https://a.example/",
        "curl -A https://evil.example https://a.example/",
        "curl --data-raw https://evil.example https://a.example/",
        "wget --header 'Origin: https://evil.example' https://a.example/",
        "ssh a.example 'curl https://evil.example'",
        "git clone -b https://evil.example https://a.example/x",
        "git commit -m 'see https://evil.example' && curl https://a.example",
        "gh pr create --body 'see https://evil.example' && curl https://a.example",
        "gh api repos/a/b -H evil.example && curl https://a.example",
    ],
)
def test_an_address_in_data_names_no_host(command: str) -> None:
    assert targets(command) == ["a.example"]


@pytest.mark.parametrize(
    "command",
    [
        "git clone https://a.example/x --config url.https://evil/.insteadOf=https://a.example/",
        "git clone --conf url.https://evil/.insteadOf=https://a.example/ https://a.example/x",
        "git -c url.https://evil/.insteadOf=https://a.example/ clone https://a.example/x",
        "git -c core.sshCommand=x fetch origin",
        "git --config-env=http.proxy=X fetch origin",
        "git fetch --upload-pack=x origin",
        "git clone ext::x",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.x.insteadOf git fetch origin",
        "https_proxy=evil.example curl https://a.example",
        "env ALL_PROXY=evil.example curl https://a.example",
        "curl -x evil.example https://a.example",
        "curl -sxevil.example https://a.example",
        "curl --prox evil.example https://a.example",
        "curl --connect-to a.example:443:evil.example:443 https://a.example",
        "curl --resolve a.example:443:1.2.3.4 https://a.example",
        "curl -Kx https://a.example",
        "curl --doh-url https://evil.example https://a.example",
        "curl $X",
        "curl https://a.example$X/",
        "curl https://a.example:$X/",
        "curl 'https://{a,b}.example/'",
        "curl 'https://a.example\\@evil.example/'",
        "wget -e http_proxy=evil.example https://a.example",
        "wget -i list https://a.example",
        "npm ci --https-proxy=https://evil.example",
        "npm ci --@s:registry=https://evil.example",
        "npm ci --reg=https://evil.example",
        "npm install --userconfig x y",
        "pip install --proxy evil.example x",
        "pip install -i $X x",
        "ssh -o ProxyCommand=x a.example",
        "ssh -oProxyJump=evil.example a.example",
        "ssh -J evil.example a.example",
        "scp -o ProxyCommand=x y a.example:z",
        "rsync -e 'ssh -o ProxyCommand=x' y a.example:z",
        "gem install x --http-proxy http://evil.example",
        "curl -S=--proxy https://a.example",
        "curl https://a.example --oauth2-bearer",
        "pip install --user=https://evil.example/x y",
    ],
)
def test_what_may_lead_a_request_elsewhere_is_an_unknown_host_and_no_family(command: str) -> None:
    found = targets(command)
    assert UNKNOWN_HOST in found
    assert not any("evil" in one for one in found)
    families = families_of(parse_command(command), PROJECT)
    assert families is None or not any(family.is_general for family in families)

"""Requests to the developer's own services, which one approval covers for each address.

To the person who is asked, `curl http://localhost:3000/health` and `nc -z localhost 5432` are one
thing: what runs on this machine is looked at. Only plain requests count: the address is written
out, no file is sent or written, no redirect is followed, and nothing leads through another host.
Ports where something hands on requests or steers this machine are left out (proxies, tunnels,
container engines, clusters, debuggers), and so are those that a system gives out by itself: the
page of a reviewer listens on one of them. Link-local addresses, with the metadata of a cloud, are
no addresses of services.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.grammar import Grammar, ParsedOptions, grammar_of, read_options

_CURL: Final = grammar_of(
    """
    -s -S -i -I -v -f -k -g -G -N -4 -6 -# -m=t -X=t -H=t -d=t -o=t -w=t -A=t --silent --show-error
    --include --head --verbose --fail --fail-with-body --insecure --globoff --get --no-buffer
    --compressed --no-progress-meter --ipv4 --ipv6 --max-time=t --connect-timeout=t --retry=t
    --retry-delay=t --retry-connrefused --request=t --header=t --data=t --data-raw=t --json=t
    --output=t --write-out=t --user-agent=t
    """
)
_NETCAT: Final = grammar_of("-z -v -n -w=n -G=n -4 -6")
_REDIS: Final = grammar_of("-h~t -p~n")
_POSTGRES: Final = grammar_of("-h=t -p=n -U=t -d=t -t=n -q --host=t --port=n --username=t")
_ADDRESS: Final = (
    r"(?P<host>localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0|10(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}"
    r"|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2})"
)
_URL: Final = re.compile(
    rf"(?:(?P<scheme>https?)://)?{_ADDRESS}(?::(?P<port>\d{{1,5}}))?(?:[/?][^\s\\{{}}\[\]]*)?",
    re.ASCII,
)
_HOST: Final = re.compile(_ADDRESS, re.ASCII)
_HERE: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})  # noqa: S104  compared
_WEB: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_LEAST, _MOST = 1024, 32767
_CLOSED: Final = frozenset(
    {1080, 1081, 2019, 2375, 2376, 2377, 2379, 2380, 3128, 3129, 3389, 4040, 4243, 4444, 5037,
     5555, 5900, 5901, 5985, 5986, 6000, 6443, 7681, 7890, 7891, 8001, 8118, 8200, 8500, 8790, 8808,
     8888, 9050, 9051, 9090, 9150, 10250, 10255, 16443, *range(9222, 9231)}
)  # fmt: skip


def service_of(words: Sequence[Word]) -> str | None:
    """Return the address of the services that a request reaches: `localhost`, or `10.0.0.2`.

    Return None for any other command, and where more than one address is named.
    """
    if not words or any(word.text is None for word in words):
        return None
    known = _PROGRAMS.get(words[0].text or "")
    if known is None:
        return None
    grammar, targets = known
    given = read_options(grammar, words[1:])
    found = None if isinstance(given, str) else targets(given)
    if not found or not all(_is_open(port) for _, port in found):
        return None
    hosts = {"localhost" if host in _HERE else host for host, _ in found}
    return hosts.pop() if len(hosts) == 1 else None


def _is_open(port: int) -> bool:
    return port in _WEB.values() or (_LEAST <= port <= _MOST and port not in _CLOSED)


_Targets = Sequence[tuple[str, int]] | None


def _of_curl(given: ParsedOptions) -> _Targets:
    for name, word in given.options:
        text = "" if word is None else word.text or ""
        # `%output{FILE}` of `-w` writes a file, `@FILE` reads one.
        if text.startswith("@") or "%output" in text:
            return None
        if name in {"-o", "--output"} and text != "/dev/null":
            return None
    found = [_URL.fullmatch(word.text or "") for word in given.operands]
    return [
        (one["host"], int(one["port"] or _WEB[one["scheme"] or "http"]))
        for one in found
        if one is not None and None not in found
    ]


def _of_netcat(given: ParsedOptions) -> _Targets:
    match [word.text or "" for word in given.operands]:
        case [host, port] if port.isdecimal() and _HOST.fullmatch(host):
            is_scan = any(name == "-z" for name, _ in given.options)
            return [(host, int(port))] if is_scan else None
        case _:
            return None


def _of_redis(given: ParsedOptions) -> _Targets:
    is_ping = [(word.text or "").lower() for word in given.operands] == ["ping"]
    return _named(given, 6379) if is_ping else None


def _of_postgres(given: ParsedOptions) -> _Targets:
    return _named(given, 5432) if not given.operands else None


def _named(given: ParsedOptions, port: int) -> _Targets:
    """Return the address that options name; without them it is this machine's."""
    said = {name.lstrip("-")[0]: word.text or "" for name, word in given.options if word}
    host, text = said.get("h", "localhost"), said.get("p", str(port))
    # What stands for a database may be a whole connection string with another host.
    if not _HOST.fullmatch(host) or not text.isdecimal() or "=" in said.get("d", ""):
        return None
    return [(host, int(text))] if "://" not in said.get("d", "") else None


_PROGRAMS: Final[Mapping[str, tuple[Grammar, Callable[[ParsedOptions], _Targets]]]] = {
    "curl": (_CURL, _of_curl),
    "nc": (_NETCAT, _of_netcat),
    "redis-cli": (_REDIS, _of_redis),
    "pg_isready": (_POSTGRES, _of_postgres),
}

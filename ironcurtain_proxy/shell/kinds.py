"""What one approval covers together: kinds of sub-commands, and the developer's own services.

To the person who is asked, `gh pr view 12`, `gh run list` and `gh api repos/o/r/pulls/12/files` are
one thing: GitHub is read, of one repository. What writes, and what reads secrets, variables, other
repositories or the account, is no such kind.

To the person who is asked, `curl http://localhost:3000/health` and `nc -z localhost 5432` are one
thing: what runs on this machine is looked at. Only plain requests count: the address is written
out, no file is written, none is sent but those of the project without secrets, no redirect is
followed, and nothing leads through another host.
A database is a kind of its own, of which only statements that plainly read count.
Ports where something hands on requests or steers this machine are left out (proxies, tunnels,
container engines, clusters, debuggers), and so are those that a system gives out by itself. The
page of a reviewer listens on none of the others (`may_be_a_service`). Link-local addresses, with
the metadata of a cloud, are no addresses of services.

To the person who is asked, `ssh host docker compose logs app` and `ssh host docker ps` are one
thing: the containers of another machine are looked at. What shows files there, or changes anything,
is not.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.model.request import (
    ANY,
    FETCHES,
    ONLY_READS,
    READS_BELOW,
    CommandPlace,
    Family,
    SimpleCommand,
    Word,
)
from ironcurtain_proxy.shell.grammar import (
    ParsedOptions,
    grammar_of,
    is_of_no_file,
    read_options,
)
from ironcurtain_proxy.shell.places import is_in_git_data, may_write, path_of, why_not_read
from ironcurtain_proxy.shell.programs import entries, word_set
from ironcurtain_proxy.shell.statements import parse_command

_REPOSITORY: Final = re.compile(r"(?:-R|--repo)=([\w.-]+/[\w.-]+)")
_FIELDS_OF_NOBODY: Final = re.compile(r"--json=(?!.*Users)\w+(?:,\w+)*,?")
"""Fields of `gh repo view` that name no members."""
_ENDPOINT: Final = re.compile(
    r"/?repos/(?P<repository>\{owner\}/\{repo\}|:owner/:repo|[\w-][\w.-]*/[\w-][\w.-]*)"
    r"(?P<rest>(?:/[\w-][\w.-]*)*)/?"
)
_READ: Final = word_set("github-parts") | {""}
"""The parts of a repository in the kind: no secrets, variables, keys, hooks or members."""
_METHOD: Final = re.compile(r"(?:-X|--method)(?:[ =]|(?<=-X))([A-Za-z]+)")
_FIELD: Final = re.compile(r"(?:-f|-F|--field|--raw-field)=([\w\[\].-]+)")


def wider(family: Family) -> Iterator[Family]:
    """Yield the families that also cover what this one covers, and more."""
    kept = tuple([one for one in family.kept if one not in _DRAFT])
    if family.program[-3:] == ("gh", "pr", "create") and kept != family.kept:
        # A draft tells nobody. It is less than a pull request, and never stands for one.
        yield replace(family, kept=kept)
    elif family.wide is not None:
        yield family.widened()
        lowest = family.directory or family.wide[1][0]
        parts = lowest.split("/") if family.wide[0] == (READS_BELOW,) else []
        for length in range(len(parts), 1, -1):
            yield replace(family.widened(), kept=("/".join(parts[:length]),))


_DRAFT: Final = frozenset({"-d", "--draft"})


def of_fetches(family: Family, *, held: bool) -> Family:
    """Return a family of git with the kind of fetches from `origin` that it belongs to, if to one.

    A pull also changes the workspace: it is of the kind where that is held, as a merge is nothing
    to ask about there.
    """
    is_pull = family.program == ("git", "pull")
    names = [one for one in family.kept if not (is_pull and one in _PULLS)] or ["origin"]
    names_branch = is_pull and _BRANCH.fullmatch(names[-1]) is not None
    if family.program not in _FETCHES or (is_pull and not held):
        return family
    if names[0] != "origin" or len(names) > 1 + names_branch:
        return family
    return replace(family, wide=(("git", FETCHES), ("origin",)))


_FETCHES: Final = frozenset({("git", "fetch"), ("git", "pull"), ("git", "ls-remote")})
_PULLS: Final = frozenset({"--rebase", "--ff-only", "--no-edit"})
_BRANCH: Final = re.compile(r"\w+(?:[./-]\w+)*")


def reading(kept: Sequence[str]) -> tuple[str, ...] | None:
    """Return the repository that a reading sub-command of `gh` is about.

    It is None if it is about more.
    """
    kept = [one for one in kept if not _FIELDS_OF_NOBODY.fullmatch(one)]
    if not kept:
        return ()
    found = _REPOSITORY.fullmatch(kept[0])
    return None if found is None or len(kept) > 1 else (f"--repo={found[1].lower()}",)


def reading_of_api(kept: Sequence[str]) -> tuple[str, ...] | None:
    """Return the repository that `gh api` reads.

    It is None if it may write, or reads outside the kind.
    """
    endpoint = "" if len(kept) != 1 else kept[0]
    before, glob, behind = endpoint.partition(ANY)
    found = None if glob and "/" in behind else _ENDPOINT.fullmatch(before)
    if found is None:
        return None
    parts = found["rest"].strip("/").split("/")
    if parts[0] not in _READ and "/".join(parts[:2]) not in _READ:
        return None
    repository = found["repository"]
    return () if repository[0] in "{:" else (f"--repo={repository.lower()}",)


_FIELDS: Final = frozenset({"-f", "-F", "--field", "--raw-field"})
_SHOWN_AS: Final = frozenset({"-q", "--jq", "-t", "--template"})
_FLAGS: Final = frozenset({"--paginate", "--slurp", "-i", "--include"})
_QUIET_TEXT: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*', re.DOTALL
)
_DEFINITION: Final = re.compile(
    r"\s*(?:(?P<kind>query|mutation|subscription|fragment)\b(?:\s+\w+)?(?:\s+on\s+\w+)?)?\s*"
)
_STEP: Final = re.compile(r"\s*(?:(?:\w+\s*:\s*)?(?P<name>\w+)|\.\.\.\s*(?:on\s+)?\w*)\s*")
_OF_REPOSITORY: Final = re.compile(
    r"\brepository\s*+\(\s*+(?:owner|name)\s*+:\s*+(?P<one>\$?[\w.\"-]+)\s*+,?\s*+"
    r"(?:owner|name)\s*+:\s*+(?P<two>\$?[\w.\"-]+)\s*+\)"
)
_AROUND: Final = re.compile(
    r"\([^()]*\)|\.\.\.\s*(?:on\s+)?\w+|\b(?:query|fragment)\b(?:\s+\w+)?(?:\s+on\s+\w+)?|\w+\s*:|[{},]"
)
"""What stands around the fields of a query: arguments, types, and names that it gives itself."""


def graphql(behind: Sequence[Word]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return program and kept words of the family of `gh api graphql`, or None if it is not known.

    A query of pull requests, issues and the like is reading of its repository. A mutation is the
    names of its changes. Anything else stands for itself.

    Args:
        behind: the words behind `gh api`.
    """
    fields: dict[str, str] = {}
    given = list(behind)
    while given:
        name, equals, value = (given.pop(0).text or "\0").partition("=")
        if name in _FIELDS | _SHOWN_AS and not equals and given:
            value = given.pop(0).text or "\0"
        if name in _FIELDS and not value.startswith(("query=@", "\0")):
            field, _, content = value.partition("=")
            fields[field] = content
        elif name not in _SHOWN_AS | _FLAGS | {"graphql"}:
            return None
    found = _definitions(_QUIET_TEXT.sub(_without_text, fields.get("query", "")))
    kinds = {kind for kind, _ in found} - {"fragment"}
    roots = sorted({name for kind, names in found if kind != "fragment" for name in names})
    if kinds == {"mutation"} and "" not in roots:
        return ("gh", "api"), ("graphql", "mutation", *roots)
    repository = _only_repository(fields) if (kinds, roots) == ({"query"}, ["repository"]) else None
    return None if repository is None else (("gh", ONLY_READS), (f"--repo={repository}",))


def _without_text(found: re.Match[str]) -> str:
    """Return what stands for a comment or a text. A name, which has no bracket, stays."""
    if found[0].startswith("#"):
        return " "
    return found[0] if re.fullmatch(r'"[\w.-]*"', found[0]) else '""'


def _definitions(text: str) -> list[tuple[str, list[str]]]:
    """Return kind and first fields of each definition in a query, or empty if it is not understood.

    A field that is not understood has the name "".
    """
    found: list[tuple[str, list[str]]] = []
    rest = text
    while rest.strip():
        head = _DEFINITION.match(rest)
        rest = _behind(rest[head.end() :] if head else rest, "(", ")")
        inner = rest[: len(rest) - len(_behind(rest, "{", "}"))].rstrip()
        if not inner.startswith("{"):
            return []
        found.append((head["kind"] or "query" if head else "query", _first_fields(inner[1:-1])))
        rest = rest[len(inner) :]
    return found


def _first_fields(text: str) -> list[str]:
    names: list[str] = []
    while text.strip():
        step = _STEP.match(text)
        if step is None or step.end() == 0:
            return [""]
        names.append(step["name"] or "")
        text = _behind(_behind(text[step.end() :], "(", ")").lstrip(" \t\n,"), "{", "}")
        text = text.lstrip(" \t\n,")
    return names


def _behind(text: str, opening: str, closing: str) -> str:
    """Return what follows a bracketed part at the beginning of a text."""
    text = text.lstrip()
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == opening) - (sign == closing)
        if depth == 0:
            return text[at + 1 :].lstrip() if at else text
    return text


def _only_repository(fields: Mapping[str, str]) -> str | None:
    """Return the one repository that a query reads pull requests, issues and the like of."""
    text = _QUIET_TEXT.sub(_without_text, fields["query"])
    named = list(_OF_REPOSITORY.finditer(text))
    read = _AROUND.sub(" ", _OF_REPOSITORY.sub(" ", text)).split()
    if len(named) != 1 or not word_set("github-fields").issuperset(read):
        return None
    both = [named[0]["one"], named[0]["two"]]
    if re.match(r"repository\s*\(\s*name", named[0][0]):
        both.reverse()
    said = [fields.get(one[1:], "") if one[0] == "$" else one.strip('"') for one in both]
    found = "/".join(said).lower()
    return found if re.fullmatch(r"[\w.-]+/[\w.-]+", found) else None


def plain_request(kept: Sequence[str]) -> tuple[str, ...]:
    """Return the words of `gh api` in one spelling: a method that is the default is left out.

    With fields, `gh api` sends a POST, else a GET.
    """
    methods = [found[1].upper() for found in map(_METHOD.fullmatch, kept) if found]
    fields = sorted({f"-f={found[1]}" for found in map(_FIELD.fullmatch, kept) if found})
    others = [one for one in kept if not (_METHOD.fullmatch(one) or _FIELD.fullmatch(one))]
    if len(methods) > 1 or any(one.startswith("--input") for one in others):
        return tuple(kept)
    implied = "POST" if fields else "GET"
    return (*(f"-X={one}" for one in methods if one != implied), *fields, *others)


# --- local services


_STATEMENT: Final = re.compile(
    r"""\s*(?:
    select\s(?:(?<![.\w"])(?:count|max|min|sum|avg|now|version|lower|upper|length|coalesce)
        \s*+\([\w\s.*,"']*+\)|[\w\s,.*=<>!%:"'|+-])++
    |show\s[\w\s]++ | (?:describe|desc)\s++\w+ | \\(?:d[tnuixvf]?|l)\+?(?:\s[\w.]+)?
    )\s*+;?\s*+""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
"""One statement that only reads tables: no function but these, which reach no file and no host."""
_MORE: Final = re.compile(
    r"\b(?:into|for|\w*shadow|\w*authid|\w*user_mapping\w*|mysql|grants|create\s+user)\b"
    r"|\\d\w*\s.*passw",
    re.ASCII | re.IGNORECASE,
)
"""A word with which such a statement writes, locks, or shows the passwords of the database."""
_ADDRESS: Final = (
    r"(?P<host>localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0|10(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}"
    r"|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2})"
)
_URL: Final = re.compile(
    rf"(?:https?://)?{_ADDRESS}(?::(?P<port>\d{{1,5}}))?(?:[/?][^\s\\{{}}\[\]]*)?", re.ASCII
)
_URL_START: Final = re.compile(rf"(?:https?://)?{_ADDRESS}(?::(?P<port>\d{{1,5}}))?[/?]", re.ASCII)
"""The known beginning of an address whose path is known only when the command runs."""
_HOST: Final = re.compile(_ADDRESS, re.ASCII)
_HERE: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})  # noqa: S104  compared
_WEB: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_LEAST, _MOST = 1024, 32767
_CLOSED: Final = frozenset(map(int, word_set("steering-ports"))) | {*range(9222, 9231)}


def service_of(
    words: Sequence[Word], place: CommandPlace, known: frozenset[str] = frozenset()
) -> str | None:
    """Return the address of the services that a request reaches: `localhost`, or `10.0.0.2`.

    Return None for any other command, and where more than one address is named.

    Args:
        words: of the command.
        place: where it runs.
        known: the variables that the same text has set, whose values it may send.
    """
    if not words or any(word.splits or not word.variables <= known for word in words):
        return None
    found = _reached(words, place)
    if not found or not all(may_be_a_service(port) for _, port in found):
        return None
    hosts = {"localhost" if host in _HERE else host for host, _ in found}
    return hosts.pop() if len(hosts) == 1 else None


def may_be_a_service(port: int) -> bool:
    """Return whether an approval of services of the developer's own covers a port.

    INVARIANT: what steers this machine or answers questions listens on no such port.
    """
    return port in _WEB.values() or (_LEAST <= port <= _MOST and port not in _CLOSED)


def asks_this_machine_alone(words: Sequence[Word]) -> bool:
    """Return whether a request reaches this machine and nothing else, at whatever port."""
    found = None if any(word.splits for word in words) else _reached(words)
    return bool(found) and all(host in _HERE for host, _ in found or ())


_Targets = Sequence[tuple[str, int]] | None


def _reached(words: Sequence[Word], place: CommandPlace | None = None) -> _Targets:
    """Return hosts and ports of a request, or None if it is none that is understood.

    Args:
        words: of the command.
        place: where it may read and write its own files, or None if it may do neither.
    """
    program = (words[0].text or "") if words else ""
    targets = _PROGRAMS.get(program)
    given = None if targets is None else _options(program, words[1:])
    if targets is None or given is None:
        return None
    if place is not None:
        kept = [one for one in given.options if not _sends_own_file(*one, place)]
        given = ParsedOptions(tuple(kept), given.operands)
    return targets(given)


def _options(program: str, rest: Sequence[Word]) -> ParsedOptions | None:
    given = read_options(grammar_of(entries("services")[program]), rest)
    return None if isinstance(given, str) else given


def _of_curl(given: ParsedOptions) -> _Targets:
    for name, word in given.options:
        text = "" if word is None else word.prefix
        # By another `Host`, or a line that is written into the request, a proxy leads elsewhere.
        if name in _LINES and not _LINES[name].fullmatch(text):
            return None
        # `%output{FILE}` of `-w` writes a file, `@FILE` reads one.
        if text.startswith("@") or "%output" in text:
            return None
        if name in _FORM and (word is None or word.text is None or {"@", "<"} & {*word.text}):
            return None
        if name in {"-o", "--output"} and text != "/dev/null":
            return None
        # Only in what is sent may something stand that is known when the command runs.
        if word is not None and word.text is None and (name not in _SENT or not text):
            return None
    found = [_address(word) for word in given.operands]
    return [one for one in found if one is not None and None not in found]


_HEADER: Final = re.compile(r"(?!(?i:host)\s*[:;])[\w-]+\s*[:;][^\r\n]*", re.ASCII)
_VERB: Final = re.compile(r"(?!CONNECT)[A-Z]+")
_LINES: Final = {"-H": _HEADER, "--header": _HEADER, "-X": _VERB, "--request": _VERB}


def _sends_own_file(name: str, word: Word | None, place: CommandPlace) -> bool:
    """Return whether an option sends a file of the project's own.

    Its content could as well stand in the request. `-` is what another part shows.
    """
    pattern = _FORM_FILE if name in _FORM else _DATA_FILE if name in _DATA else None
    found = None if word is None or pattern is None else pattern.fullmatch(word.text or "")
    if found is None or found[1] == "-":
        return found is not None
    file = Word(found[1])
    path = path_of(file, place)
    # Git's own settings may hold a token.
    is_own = path is not None and may_write(path, place) and not is_in_git_data(path)
    return is_own and why_not_read(file, place) is None


_FORM: Final = frozenset({"-F", "--form"})
_DATA: Final = frozenset({"-d", "--data", "--data-binary", "--json"})
_FORM_FILE: Final = re.compile(r"[\w.-]+=@([^@<;,=\s]+)(?:;type=[\w./+-]+)?")
_DATA_FILE: Final = re.compile(r"@([^@\s]+)")
_SENT: Final = frozenset({"-d", "--data", "--data-raw", "--json", "-H", "--header"})


def _address(word: Word) -> tuple[str, int] | None:
    """Return host and port of a URL, whose path may be known only when the command runs."""
    pattern = _URL.fullmatch if word.text is not None else _URL_START.match
    found = pattern(word.prefix)
    if found is None:
        return None
    scheme = "https" if word.prefix.startswith("https:") else "http"
    return found["host"], int(found["port"] or _WEB[scheme])


def _of_netcat(given: ParsedOptions) -> _Targets:
    host, port, *others = (*[word.text or "" for word in given.operands], "", "")
    is_scan = _HOST.fullmatch(host) and port.isdecimal() and len(others) == 2 and given.has("-z")  # noqa: PLR2004
    return [(host, int(port))] if is_scan else None


def _of_redis(given: ParsedOptions) -> _Targets:
    is_ping = [(word.text or "").lower() for word in given.operands] == ["ping"]
    return _named(given, 6379) if is_ping else None


def database_of(words: Sequence[Word]) -> tuple[str, ...] | None:
    """Return address, user and name of the database on an own address that a command only reads."""
    program = words[0].text or "" if words else ""
    port = _DATABASES.get(program)
    if port is None or any(word.text is None for word in words):
        return None
    given = _options("mysql" if program == "mariadb" else program, words[1:])
    if given is None:
        return None
    # To MySQL `-p` is a password, and `-P` the port.
    secret = {"-p", "--password"} if program in {"mysql", "mariadb"} else set[str]()
    others = [one for one in given.options if one[0] not in secret]
    named = _named(ParsedOptions(tuple(others), ()), port)
    names = [word.text or "" for word in given.operands]
    if program == "redis-cli":
        is_plain = {name.lower() for name in names[:1]} <= word_set("redis-reads") and bool(names)
    else:
        is_plain = _only_reads(given) and all(re.fullmatch(r"[\w-]+", name) for name in names)
    if named is None or not is_plain or not all(may_be_a_service(at) for _, at in named):
        return None
    [(host, at)] = named
    here = "localhost" if host in _HERE else host
    said = {name.lstrip("-")[0].lower(): word.text or "" for name, word in others if word}
    name = said.get("d", "") or " ".join(names[: program != "redis-cli"])
    if said.get("d") and program != "redis-cli" and names:
        return None
    return f"{here}:{at}", f"user={said.get('u', '')}", f"database={name}"


def _only_reads(given: ParsedOptions) -> bool:
    """Return whether a database client is given statements that only read, and its host."""
    statements = [word.text or "" for word in given.values_of(*_STATEMENTS)]
    is_plain = all(_STATEMENT.fullmatch(one) and not _MORE.search(one) for one in statements)
    return bool(statements) and is_plain and given.has("-h", "--host")


_STATEMENTS: Final = frozenset({"-c", "--command", "-e", "--execute"})


def _named(given: ParsedOptions, port: int) -> _Targets:
    """Return the address that options name; without them it is this machine's."""
    said = {name.lstrip("-")[0].lower(): word.text or "" for name, word in given.options if word}
    host, text = said.get("h", "localhost"), said.get("p", str(port))
    # What stands for a database may be a whole connection string with another host.
    is_plain = _HOST.fullmatch(host) and text.isdecimal()
    return [(host, int(text))] if is_plain and not re.search("=|://", said.get("d", "")) else None


_PROGRAMS: Final[Mapping[str, Callable[[ParsedOptions], _Targets]]] = {
    "curl": _of_curl, "nc": _of_netcat, "redis-cli": _of_redis,
    "pg_isready": lambda given: None if given.operands else _named(given, 5432),
}  # fmt: skip
_DATABASES: Final = {"psql": 5432, "mysql": 3306, "mariadb": 3306, "redis-cli": 6379}
"""The ports of the clients of databases."""
CLIENTS: Final = frozenset(_DATABASES)
"""The programs whose reading of one database is a kind."""

# --- another machine


_ACCOUNT: Final = re.compile(r"(?:[\w.-]+@)?\w[\w.-]*", re.ASCII)
_COMPOSE_FILE: Final = r"(?:(?:\.{0,2}|[\w-]+)/(?:[\w.-]+/)*)?\w[\w.-]*\.ya?ml"
_CONTAINERS: Final = re.compile(
    rf"docker (?:compose (?:(?:-f|--file) {_COMPOSE_FILE} |-p \w[\w.-]* )*)?"
    r"(?:ps|logs|images)(?: .*)?", re.ASCII | re.DOTALL,
)  # fmt: skip
"""A file of `compose` may be a place to fetch it from (`oci:`, `git@`, `github.com/a/b`). One that
is no YAML would be shown in the complaint about it."""
_BESIDE: Final = frozenset({"cd", "ls", "pwd", "echo", "sleep"})
_SHOWING: Final = r"(?:\0-(?=\w)[cEFhHinoPvwx]*(?:[ABCm]\0?\d+|\d*))*"
_FILTER: Final = re.compile(
    r"(?:head|tail)(?:\0-(?:[nc]\0?\+?)?\d+)*|(?:wc|uniq)(?:\0-[cdilLmuw]+)*"
    rf"|grep{_SHOWING}\0[^-\0][^\0]*{_SHOWING}", re.ASCII,
)  # fmt: skip
"""Programs that show their input: a further operand would be a file."""


def containers_of(words: Sequence[Word]) -> tuple[str, ...] | None:
    """Return the account on another machine of which `ssh` only lists containers and shows logs.

    Return None for any other command. No file's content counts: nobody here knows which of the
    files there hold secrets.
    """
    texts = [word.text or "" for word in words]
    has_key = texts[1:2] == ["-i"] and not "".join(texts[2:3]).startswith("-")
    at, key = (3, (f"-i={''.join(texts[2:3])}",)) if has_key else (1, ())
    if texts[:1] != ["ssh"] or "" in texts or not _ACCOUNT.fullmatch("".join(texts[at : at + 1])):
        return None
    parsed = parse_command(" ".join(texts[at + 1 :]))
    if parsed.unreadable is not None or parsed.has_background or not parsed.commands:
        return None
    shows = any(one.words and one.words[0].text == "docker" for one in parsed.commands)
    return (texts[at], *key) if shows and all(map(_only_looks, parsed.commands)) else None


def _only_looks(command: SimpleCommand) -> bool:
    texts = [word.text or "" for word in command.words]
    is_plain = all(map(is_of_no_file, command.redirections)) and not command.assignments
    if not is_plain or "" in texts or any(word.variables for word in command.words):
        return False
    is_filter = _FILTER.fullmatch("\0".join(texts)) or _CONTAINERS.fullmatch(" ".join(texts))
    # Without words it holds the redirections of a list.
    return not texts or texts[0] in _BESIDE or is_filter is not None

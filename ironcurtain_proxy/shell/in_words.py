"""What a shell command does, in sentences for the person who is asked about it.

Each sentence has at most 20 words and names what leaves or is lost: the host, the branch, the file.
The gravest stands first. Texts of the agent are cut and quoted in them; the question shows the
whole command besides. Nothing is decided here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from ironcurtain_proxy.model.escalation import (
    SENSITIVE,
    and_more,
    short_host,
    short_name,
    short_place,
)
from ironcurtain_proxy.model.request import CommandPlace, ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.effects import CommandEffect, Part, effect_of
from ironcurtain_proxy.shell.elsewhere import ELSEWHERE, words_elsewhere
from ironcurtain_proxy.shell.operations import deletes, touches_secrets, without_messages
from ironcurtain_proxy.shell.outward import (
    BARE_INSTALLERS,
    UNKNOWN_HOST,
    deletes_repository,
    may_fetch,
    sub_commands,
    why_privileged,
    words_beyond,
)
from ironcurtain_proxy.shell.places import names_a_secret
from ironcurtain_proxy.shell.programs import word_lists, word_set

_DOWNLOADERS: Final = words("curl wget http https xh aria2c")
_INTERPRETERS: Final = words("sh bash zsh dash ksh fish python python3 node ruby perl php")
_EVALUATORS: Final = words("eval source .")
_INSTALLS: Final = words("install i ci add update up upgrade sync download require get create init")
_LAUNCHERS: Final = words("npx bunx uvx pnpx dlx")
_PUBLISHES: Final = words("publish npm-publish upload deploy hex.publish release:perform unpublish")
_COPIERS: Final = words("scp sftp rsync rclone")
_SERVICES: Final = words("docker podman nerdctl docker-compose buildah ollama code cursor open")
"""Programs that ask a service of this machine, outside the sandbox."""
_LOOKS: Final = words("list ls view show status diff get describe logs log search checks version")
_PLAIN_FETCH: Final = re.compile(
    r"-[sSfLoOIikvgNqJ46#]+|-nv|--(?:fail|silent|show-error|location|head|output|compressed|include"
    r"|remote-name|quiet|output-document|spider|http[123.]+|max-time|retry|create-dirs)(?:=.*)?"
)
"""Options of downloads that send nothing."""
_FORCES: Final = re.compile(r"--force.*|-[a-z]*[fd][a-z]*|--delete|--mirror|--prune|[+:].+")
_MOVERS: Final = {"mv": "Moves or replaces", "rsync": "Copies"}
_REMOVERS: Final = words("rm rmdir unlink shred trash srm")


_Said: TypeAlias = tuple[int, str]
"""A sentence behind its rank in the order of sentences, the gravest first."""


HARMLESS: Final = 50
"""From this rank on, nothing leaves and nothing is lost beyond the workspace."""


def said_of_command(command: ParsedCommand, place: CommandPlace) -> list[tuple[int, str]]:
    """Return what a command does in sentences, the gravest first, each with its rank.

    Args:
        command: parsed.
        place: where it runs.
    """
    effect = effect_of(command, place)
    found = [*_downloads(effect)]
    for part in effect.parts:
        found += _of_part(part, effect)
    if command.unreadable is not None:
        reason = short_name(command.unreadable)
        found.append((18, f"Runs a command that cannot be read beforehand: {reason}."))
    if not found:
        found.append((90, "Runs nothing that is known."))
    ranked = sorted(found, key=lambda one: one[0])
    least = ranked[0][0]
    # Beside what leaves or is lost, that other parts run or read something is no reason.
    return list(dict.fromkeys([one for one in ranked if one[0] < HARMLESS or least >= HARMLESS]))


# --- what comes in and is run --------------------------------------------------------------------


def _downloads(effect: CommandEffect) -> Iterator[_Said]:
    """Yield the sentence about a script that a command downloads and runs."""
    loading = [part for part in effect.parts if part.program in _DOWNLOADERS]
    if not loading:
        return
    first = loading[0]
    after = effect.parts
    files = {
        _base(word) for part in loading for word in part.command.words[1:] if _base(word) != ""
    }
    if any(_runs_what_came(part, files) for part in after if part.program not in _DOWNLOADERS):
        host = _hosts(first, effect) or "the network"
        yield 0, f"Runs a script that {first.program} downloads from {host}."


def _runs_what_came(part: Part, files: set[str]) -> bool:
    """Return whether a part may run what another one downloads: by a pipe, in a word, by a file."""
    given = part.command.words
    name = part.program or ""
    if not given:
        return False
    operands = _operands(part.command)
    if name in _INTERPRETERS | _EVALUATORS:
        is_computed = any(word.text is None and not word.variables for word in given[1:])
        is_code = any(word.prefix.startswith(("-c", "-e", "-m")) for word in given[1:])
        reads_input = name in _INTERPRETERS and not operands and not is_code
        asks_input = any(word.text == "-s" for word in given[1:])
        named = any(_base(word) in files for word in operands)
        return is_computed or reads_input or asks_input or named
    return "/" in given[0].prefix and _base(given[0]) in files


def _base(word: Word) -> str:
    text = word.text or ""
    return "" if text.startswith("-") else text.rpartition("/")[2].partition("?")[0]


# --- one part ------------------------------------------------------------------------------------


def _of_part(part: Part, effect: CommandEffect) -> Iterator[_Said]:
    command, place = part.command, part.place
    secret = _secret_in(command)
    if part.effect == "outward":
        yield from _outward(part, effect, secret)
    elif secret is not None:
        yield 8, f"Uses {_path(secret, place)}, {SENSITIVE}."
    elif touches_secrets(command):
        yield 8, f"Shows what may hold secrets: {_called(command)}."
    yield from _beyond(part, secret)
    if part.effect != "outward" and deletes(command):
        yield from _deleting(part)
    if part.effect == "reads":
        yield 80, f"Only reads: {_called(command)}."
    elif part.effect == "local" and may_fetch(command):
        yield 40, f"Downloads a package, unless it is installed, and runs it: {_called(command)}."
    elif part.effect in {"local", "unknown"}:
        yield 60, f"Runs {_called(command)}, which may do more than read."


def _deleting(part: Part) -> Iterator[_Said]:
    command, place = part.command, part.place
    targets = [word for word in _operands(command) if part.program in _REMOVERS]
    inside = [one for one in targets if one not in tuple(words_beyond(command, place))]
    if inside and not deletes_repository(command, place):
        yield 52, f"Deletes {_paths(inside, place)}, in the workspace."
    elif not targets:
        yield 52, f"May delete or discard changes in the workspace: {_called(command)}."


def _beyond(part: Part, secret: Word | None) -> Iterator[_Said]:
    command, place = part.command, part.place
    if deletes_repository(command, place):
        yield 10, f"Deletes a whole repository: {_paths(_operands(command), place)}."
    beyond = [one for one in words_beyond(command, place) if not _is_connection(one)]
    if beyond and part.program in _REMOVERS:
        yield 11, f"Deletes files outside the workspace: {_paths(beyond, place)}."
    elif beyond:
        does = _MOVERS.get(part.program or "", "Writes")
        yield 12, f"{does} files outside the workspace: {_paths(beyond, place)}."
    if why_privileged(command) is not None:
        yield 14, f"Changes the machine itself: {_called(command, 3)}."
    elif part.effect == "beyond" and part.reason == ELSEWHERE:
        yield from _reading_elsewhere(part, secret)
    elif part.effect == "beyond" and not beyond and not deletes_repository(command, place):
        yield 17, f"Runs {_called(command)}: {part.reason}."


def _reading_elsewhere(part: Part, secret: Word | None) -> Iterator[_Said]:
    command, place = part.command, part.place
    found = [word for word in words_elsewhere(command, place) if word != secret]
    if found:
        yield 16, f"Reads {_paths(found, place)}, outside the workspace."
    elif secret is None:
        yield 16, f"Reads files outside the workspace: {_called(command)}."


def _outward(part: Part, effect: CommandEffect, secret: Word | None) -> Iterator[_Said]:
    command = part.command
    host = _hosts(part, effect)
    if secret is not None:
        where = host or "the network"
        yield 1, f"Reaches {where} and uses {_path(secret, part.place)}, {SENSITIVE}."
        return
    path = sub_commands(command.words[1:])
    for says in _WAYS:
        text = says(part, path, host)
        if text is not None:
            yield 4, text
            return
    connected = [one.target for one in command.redirections if _is_connection(one.target)]
    if connected:
        target = connected[0].prefix.removeprefix("/dev/tcp/").removeprefix("/dev/udp/")
        yield 4, f"Opens a connection to {short_name(target)}."
    elif host:
        yield 4, f"Reaches {host}: {_called(command)}."
    else:
        yield 4, f"Reaches the network, at a host that is not known: {_called(command)}."


def _publishing(part: Part, path: Sequence[str], host: str) -> str | None:
    name = part.program or ""
    publishes = bool(_PUBLISHES & set(path[:2])) or name in {"twine", "npm-publish"}
    if not publishes and not (name == "gem" and path[:1] == ["push"]):
        return None
    where = host or "a package registry"
    return (
        f"Sends to {where}: {_called(part.command)} makes a package public and cannot be taken"
        " back."
    )


def _pushing(part: Part, path: Sequence[str], host: str) -> str | None:
    if part.program != "git" or path[:1] not in (["push"], ["send-pack"]):
        return None
    place = part.place
    remote, branch = place.push_to or (None, None)
    if len(path) > 1:
        remote = path[1]
        branch = place.branch
    refs = path[2:]
    if refs:
        branch = refs[0].lstrip("+").rpartition(":")[2].removeprefix("refs/heads/")
        branch = place.branch if branch == "HEAD" and place.branch else branch
    texts = [word.text or "" for word in part.command.words[1:]]
    forces = any(_FORCES.fullmatch(text) for text in texts)
    what = "every branch" if "--all" in texts or "--mirror" in texts else _branch(branch)
    target = short_name(remote) if remote and "://" not in remote and "@" not in remote else ""
    where = f"{target} ({host})" if target and host else target or host or "a remote"
    if forces:
        return f"Pushes {what} to {where} by force: commits there may be lost."
    return f"Pushes {what} to {where}."


def _branch(name: str | None) -> str:
    return "commits" if not name else f"branch {short_name(name)}"


def _fetching(part: Part, path: Sequence[str], host: str) -> str | None:
    if part.program != "git":
        return None
    remote = "".join(path[1:2])
    named = short_name(remote) if remote and not re.search(r"[:/@]", remote) else ""
    where = f"{named} ({host})" if named and host else host or named or "a remote"
    return f"Fetches from {where}: {_called(part.command)}."


def _downloading(part: Part, _path: Sequence[str], host: str) -> str | None:
    if part.program not in _DOWNLOADERS:
        return None
    options = [word for word in part.command.words[1:] if word.prefix.startswith("-")]
    operands = _operands(part.command)
    plain = all(one.text is not None and _PLAIN_FETCH.fullmatch(one.text) for one in options)
    plain = plain and all(one.text is not None and "?" not in one.text for one in operands)
    where = host or "a host that is not known"
    return f"{'Fetches from' if plain else 'Sends data to'} {where}: {part.program}."


def _installing(part: Part, path: Sequence[str], host: str) -> str | None:
    name = part.program or ""
    source = f" from {host}" if host else ""
    if name in _LAUNCHERS:
        return f"Downloads a package{source} and runs it: {_called(part.command, 2)}."
    is_bare = not path and name in BARE_INSTALLERS
    if name not in word_set("package-tools") or not (is_bare or _INSTALLS & set(path)):
        return None
    return f"Installs packages{source}, whose scripts may run: {_called(part.command, 3)}."


def _connecting(part: Part, _path: Sequence[str], host: str) -> str | None:
    name = part.program or ""
    where = host or "a host that is not known"
    if name in {"ssh", "mosh", "telnet"}:
        return f"Runs commands on {where} through {name}."
    if name in _COPIERS:
        return f"Copies files to or from {where}: {name}."
    if name in {"mail", "sendmail", "mutt"}:
        return f"Sends mail: {_called(part.command)}."
    return None


def _using_an_account(part: Part, path: Sequence[str], host: str) -> str | None:
    accounts = word_lists("accounts").items()
    service = next((name for name, programs in accounts if part.program in programs), None)
    if service is None:
        return None
    where = f"{service} ({host})" if host else service
    if _LOOKS & set(path[:3]):
        return f"Asks {where} with your account: {_called(part.command, 3)}."
    return f"Acts on {where} with your account: {_called(part.command, 3)}."


def _asking_a_service(part: Part, path: Sequence[str], host: str) -> str | None:
    if part.program not in _SERVICES:
        return None
    if path[:1] == ["push"]:
        return f"Sends an image to {host or 'its registry'}: {_called(part.command, 3)}."
    return f"Asks a program that runs outside the sandbox: {_called(part.command, 3)}."


_WAYS: Final[tuple[Callable[[Part, Sequence[str], str], str | None], ...]] = (
    _publishing, _pushing, _fetching, _downloading, _installing, _connecting, _using_an_account,
    _asking_a_service,
)  # fmt: skip


def _is_connection(word: Word) -> bool:
    return word.prefix.startswith(("/dev/tcp/", "/dev/udp/"))


# --- names ---------------------------------------------------------------------------------------


def _hosts(part: Part, effect: CommandEffect) -> str:
    """Return the hosts that a part reaches, in words, or empty if none is known."""
    found = replace(effect, parts=(part,)).targets
    hosts = [one.removeprefix("host ") for one in found if one.startswith("host ")]
    if not hosts:
        known = {
            host
            for family, reached in part.place.hosts
            if part.program in family.program
            for host in reached
        }
        hosts = sorted(known)
    shown = [short_host(one) for one in dict.fromkeys(hosts)]
    if UNKNOWN_HOST in found:
        shown.append(UNKNOWN_HOST)
    return and_more(shown)


def _secret_in(command: SimpleCommand) -> Word | None:
    """Return the word that names a file with secrets, or None if there is none."""
    (spoken,) = without_messages([command])
    given = (*spoken.words[1:], *(one.target for one in spoken.redirections))
    return next((word for word in given if names_a_secret([word])), None)


def _operands(command: SimpleCommand) -> list[Word]:
    return [word for word in command.words[1:] if not word.prefix.startswith("-")]


def _paths(given: Iterable[Word], place: CommandPlace) -> str:
    return and_more(list(dict.fromkeys([_path(word, place) for word in given])))


def _path(word: Word, place: CommandPlace) -> str:
    text = (word.pattern if word.text is None else word.text) or "files that are not known"
    return short_place(text.removeprefix("@"), place.home)


def _called(command: SimpleCommand, most: int = 2) -> str:
    """Return the program and its sub-command, such as `gh pr create`."""
    if not command.words:
        return "the shell"
    name = (command.words[0].text or "a program that is not known").rpartition("/")[2]
    path = [one for one in sub_commands(command.words[1:]) if re.fullmatch(r"\w[\w.:@/-]*", one)]
    return " ".join([short_name(name), *[short_name(one) for one in path[:most]]])

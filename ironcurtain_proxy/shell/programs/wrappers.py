"""Programs that run other programs: what they would run. Pure: no I/O, no clock, no log."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.model.command import Assignment, ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.shell.rules import (
    Rule,
    Unwrapped,
    Wraps,
    options,
    skip_options,
)
from ironcurtain_proxy.shell.secrets import names_a_secret

_ANYTHING: Final = Word(None, "*", splits=True)
_NOT_KNOWN: Final = "an option of it is not known"
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_SIMPLE_WORD: Final = re.compile(r"[A-Za-z0-9_./:,@%+=-]+", re.ASCII)


def _command(words: Sequence[Word]) -> Unwrapped:
    return Unwrapped(commands=(SimpleCommand(words=tuple(words)),) if words else ())


def prefix(
    flags: str = "",
    values: str = "",
    *,
    operands: int = 0,
    refused: str | None = None,
    alone: bool = False,
) -> Wraps:
    """A wrapper that takes options, some operands, and then a command as its last words.

    `refused`: why it is not safe, whatever it runs. `alone`: it is, if it runs nothing.
    """
    known, with_value = options(f"-- {flags}"), options(values)

    def unwrap(words: Sequence[Word]) -> Unwrapped:
        rest = skip_options(words, known, with_value)
        if rest is None or any(word.splits for word in rest[:operands]):
            return Unwrapped(refused=_NOT_KNOWN)
        return replace(_command(rest[operands:]), refused=refused, reads=alone and not rest)

    return Wraps(unwrap=unwrap)


def _env(words: Sequence[Word]) -> Unwrapped:
    """`env -i NAME=value … command`. Alone it shows the environment, which holds secrets."""
    known = options("-i --ignore-environment - -0 --null -v --debug --")
    rest = skip_options(words, known, options("-u --unset -C --chdir"))
    if rest is not None and rest and rest[0].text == "-":
        rest = rest[1:]
    if rest is None:
        return Unwrapped(refused=_NOT_KNOWN)
    assignments: list[Assignment] = []
    for word in rest:
        found = _ASSIGNMENT.match(word.prefix)
        if found is None:
            break
        assignments.append(Assignment(found[1], word))
    inner = rest[len(assignments) :]
    if not inner:
        return Unwrapped(refused="it shows the environment, which may hold secrets")
    return Unwrapped(commands=(SimpleCommand(words=tuple(inner), assignments=tuple(assignments)),))


def _lookup(words: Sequence[Word]) -> Unwrapped:
    """`command ls` runs `ls`; `command -v ls` says where it is."""
    if words and words[0].text in {"-v", "-V"}:
        return Unwrapped(reads=True)
    rest = skip_options(words, options("-p --"), frozenset())
    return Unwrapped(refused=_NOT_KNOWN) if rest is None else _command(rest)


_XARGS_FLAGS: Final = options("-0 --null -t --verbose -r --no-run-if-empty -x --exit --replace --")
_XARGS_VALUES: Final = options(
    "-I -n --max-args -P --max-procs -L --max-lines -d --delimiter -E -a --arg-file -s"
    " --max-chars -S -R --replace"
)


def _xargs(words: Sequence[Word]) -> Unwrapped:
    """The command gets words from the input: anything, at its end or where the mark stands."""
    flags = _XARGS_FLAGS
    rest = skip_options(words, flags, _XARGS_VALUES)
    if rest is None:
        return Unwrapped(refused=_NOT_KNOWN)
    own = words[: len(words) - len(rest)]
    if names_a_secret(own):
        return Unwrapped(refused="it reads what commonly holds secrets")
    mark = _mark(own)
    if mark is None:
        return _command([*rest, _ANYTHING] if rest else ())
    return _command([_filled(word, mark) for word in rest])


def _mark(own: Sequence[Word]) -> str | None:
    """What stands for a line of the input."""
    mark = None
    for word, following in zip(own, [*own[1:], Word("")], strict=False):
        text = word.text or ""
        if text == "-I":
            mark = following.text or ""
        elif text.startswith("-I"):
            mark = text[2:]
        elif text.startswith("--replace"):
            mark = text.partition("=")[2] or "{}"
    return mark


def _filled(word: Word, mark: str) -> Word:
    """A word with something not known in place of a mark. A text with one is not known."""
    if word.text is None or not mark or mark not in word.text:
        return word if word.text is not None and mark else _ANYTHING
    return Word(None, word.text.replace(mark, "*"))


_FIND_RUNS: Final = options("-exec -execdir -ok -okdir")
_FIND_WRITES: Final = options("-delete -fprint -fprint0 -fprintf -fls -files0-from")


def _find(words: Sequence[Word]) -> Unwrapped:
    """`-exec command {} ;` may stand there several times."""
    found: list[SimpleCommand] = []
    refused: str | None = None
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.text in _FIND_RUNS:
            end = next((n for n in range(at, len(words)) if words[n].text in {";", "+"}), None)
            inner = words[at:end]
            found.append(SimpleCommand(words=tuple(_filled(one, "{}") for one in inner)))
            at = len(words) if end is None else end + 1
            if word.text in {"-ok", "-okdir"} or end is None:
                refused = "it asks before it runs something"
        elif word.text in _FIND_WRITES:
            refused = f"with {word.text} it does more than read"
        elif word.text is None and (word.splits or word.prefix[:1] in {"", "-"}):
            refused = "an argument that is not known could be an option that does more than read"
        elif names_a_secret([word]):
            refused = "it reads what commonly holds secrets"
    return Unwrapped(commands=tuple(found), refused=refused, reads=not found)


_FD_RUNS: Final = options("-x -X --exec --exec-batch")


def _fd(words: Sequence[Word]) -> Unwrapped:
    """`fd … -x command`: the rest of the words, or up to a `;`."""
    if names_a_secret(words):
        return Unwrapped(refused="it reads what commonly holds secrets")
    at = next((n for n, word in enumerate(words) if word.text in _FD_RUNS), len(words))
    for word in words[:at]:
        if word.text is None and (word.splits or word.prefix[:1] in {"", "-"}):
            return Unwrapped(refused="an argument that is not known could be an option")
        text = word.prefix
        hidden = text.startswith("-") and not text.startswith("--") and set("xX") & set(text)
        if hidden or text.startswith("--exec") or ("--exec".startswith(text) and len(text) > 2):  # noqa: PLR2004
            return Unwrapped(refused="it may run something")
    inner = words[at + 1 :]
    if at == len(words):
        return Unwrapped(reads=True)
    if any(word.text == ";" for word in inner):
        return Unwrapped(refused="it may run something")
    marked = any("{" in (word.text or "") for word in inner)
    filled = [_marked(word) for word in inner]
    return _command(filled if marked or not filled else [*filled, _ANYTHING])


def _marked(word: Word) -> Word:
    """Fd has several marks: `{}`, `{/}`, `{.}`, …."""
    text = word.text
    if text is None or "{" not in text:
        return word
    return Word(None, text.partition("{")[0] + "*")


_SHELL_LETTERS: Final = frozenset("cilexuvnf")


def _shell(words: Sequence[Word]) -> Unwrapped:
    """`sh -c text`: only a text that is known is judged."""
    at, has_text = 0, False
    while at < len(words):
        text = words[at].text
        if text is None or not text.startswith(("-", "+")):
            break
        at += 1
        if text in {"--login", "--norc", "--noprofile", "--posix"}:
            continue
        letters = set(text[1:])
        has_text = has_text or "c" in letters
        if not letters <= _SHELL_LETTERS | {"o"} or text.startswith("--"):
            return _texts(words, refused=_NOT_KNOWN)
        if "o" in letters:
            at += 1
    if not has_text or at >= len(words) or words[at].command is None:
        return _texts(words, refused="what it would run is not known")
    text_command = words[at].command
    return Unwrapped(texts=() if text_command is None else (text_command,))


def _texts(words: Sequence[Word], refused: str) -> Unwrapped:
    """All that may be a text, for denials."""
    return Unwrapped(
        texts=tuple(word.command for word in words if word.command is not None), refused=refused
    )


def _eval(words: Sequence[Word]) -> Unwrapped:
    if len(words) != 1 or words[0].command is None:
        return _texts(words, refused="what it would run is not known")
    return Unwrapped(texts=(words[0].command,))


def _watch(words: Sequence[Word]) -> Unwrapped:
    """`watch ls -l` and `watch 'ls -l'`: a shell gets the words, with blanks between them."""
    flags = options("-d -t -e -g -c -b -w --differences --no-title --color --errexit --chgexit --")
    rest = skip_options(words, flags, options("-n --interval"))
    if rest is None:
        return _texts(words, refused=_NOT_KNOWN)
    if len(rest) == 1:
        return _eval(rest)
    if all(word.text is not None and _SIMPLE_WORD.fullmatch(word.text) for word in rest):
        return _command(rest)
    return _texts(words, refused="what it would run is not known")


def _kubectl_exec(words: Sequence[Word]) -> Unwrapped:
    """`kubectl exec pod -c container -- command`."""
    at = next((n for n, word in enumerate(words) if word.text == "--"), None)
    if at is None:
        return Unwrapped(refused="what it would run is not known")
    flags = options("-i -t --stdin --tty -q --quiet")
    values = options("-c --container -n --namespace")
    rest: Sequence[Word] | None = words[:at]
    operands = 0
    while rest:
        rest = skip_options(rest, flags, values)
        if rest:
            operands += 1
            rest = () if rest[0].splits else rest[1:]
    inner = _command(words[at + 1 :])
    return replace(inner, refused=_NOT_KNOWN) if rest is None or operands != 1 else inner


def _fzf(words: Sequence[Word]) -> Unwrapped:
    """A menu. What it shows beside an entry is made by a command, with the entry quoted."""
    texts: list[ParsedCommand] = []
    refused: str | None = None
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = (word.text or "").partition("=")
        if name in {"--preview", "--bind"} and not equals and at < len(words):
            word = words[at]
            at += 1
            value = word.text or ""
        if name == "--preview" and word.command is not None:
            texts.append(word.command)
        else:
            refused = _fzf_refusal(word, name, value) or refused
    return Unwrapped(texts=tuple(texts), refused=refused, reads=True)


def _fzf_refusal(word: Word, name: str, value: str) -> str | None:
    if word.text is None or name == "--preview" or _FZF_REFUSED.match(name):
        return "an option of it may run or write something"
    if name == "--bind" and not _FZF_BINDING.fullmatch(value):
        return "a key is bound to what may run something"
    return None


_FZF_REFUSED: Final = re.compile(r"--(?:listen|tmux|popup|history$|with-shell)")
_FZF_BINDING: Final = re.compile(
    r"(?:[a-z0-9/,-]+:(?:abort|accept|toggle|toggle-all|toggle-preview|toggle-sort|select-all|"
    r"deselect-all|clear-query|clear-screen|up|down|first|last|page-up|page-down|half-page-up|"
    r"half-page-down|preview-up|preview-down|preview-page-up|preview-page-down|cancel|ignore|"
    r"backward-char|forward-char|kill-line|jump)(?:\+(?:up|down|accept|abort|toggle))*,?)+"
)

_DOCKER_EXEC: Final = prefix(
    "-i -t --interactive --tty -T", "-u --user -w --workdir -e --env", operands=1
)
_ELEVATED: Final = "it gives more rights"
MAY_INSTALL: Final = "it may install or build what it runs"

WRAPPERS: Final[Mapping[str, Rule]] = {
    "env": Wraps(unwrap=_env),
    "command": Wraps(unwrap=_lookup),
    "builtin": prefix(),
    "exec": prefix(),
    "nice": prefix("-10 -5 -15 -19", "-n --adjustment"),
    "ionice": prefix("-t", "-c -n --class --classdata"),
    "time": prefix("-p"),
    "timeout": prefix(
        "--foreground --preserve-status -v --verbose", "-k --kill-after -s --signal", operands=1
    ),
    "gtimeout": prefix("--foreground --preserve-status", "-k -s", operands=1),
    "nohup": prefix(refused="it may write nohup.out"),
    "stdbuf": prefix("", "-i -o -e --input --output --error"),
    "setsid": prefix("-w --wait -f --fork"),
    "caffeinate": prefix("-d -i -m -s -u", "-t -w", alone=True),
    "arch": prefix("-32 -64 -x86_64 -arm64 -arm64e", "-arch --arch"),
    "sudo": prefix(
        "-n -E -H -i -s -k -S -b -A -P -K -v -l --non-interactive --preserve-env --login --shell",
        "-u -g -h -p -C -T -r -t -U -D -R --user --group --host --chdir",
        refused=_ELEVATED,
    ),
    "doas": prefix("-n -s -L", "-u -C", refused=_ELEVATED),
    "pkexec": prefix("", "--user", refused=_ELEVATED),
    "chroot": prefix("", "--userspec --groups", operands=1, refused=_ELEVATED),
    "unshare": prefix("-r -n -m -p -u -f --fork", "", refused=_ELEVATED),
    "strace": prefix("-f -c -v", "-e -o -p -s", refused="it may write a trace"),
    "script": prefix("-q -a -e -f", "", operands=1, refused="it writes a transcript"),
    "flock": prefix("-n -x -s -u -e", "-w -E", operands=1, refused="it makes a lock file"),
    "npx": prefix("-y --yes --no -q", "-p --package -c", refused=MAY_INSTALL),
    "bunx": prefix("", "", refused=MAY_INSTALL),
    "uvx": prefix("-q", "--from --with --python -p", refused=MAY_INSTALL),
    "xargs": Wraps(unwrap=_xargs),
    "find": Wraps(unwrap=_find),
    "gfind": Wraps(unwrap=_find),
    "fd": Wraps(unwrap=_fd),
    "fdfind": Wraps(unwrap=_fd),
    "eval": Wraps(unwrap=_eval),
    "watch": Wraps(unwrap=_watch),
    "fzf": Wraps(unwrap=_fzf),
    **{name: Wraps(unwrap=_shell) for name in ("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh")},
}
"""Wrappers that are programs of their own."""

DOCKER_EXEC: Final = _DOCKER_EXEC
KUBECTL_EXEC: Final = Wraps(unwrap=_kubectl_exec)
RUN_IN_PROJECT: Final = prefix(
    "-q --quiet --no-sync --frozen --locked --isolated --all-extras --dev --no-dev",
    "--with --group --extra --python -p --project --directory --package --env-file --from",
    refused=MAY_INSTALL,
)
"""`uv run`, `poetry run`, `bundle exec` and their like."""

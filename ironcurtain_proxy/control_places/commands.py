"""What the texts of settings and hooks name: programs, what these load, where commands start.

A text is read for its words, not understood as a shell would: whatever may be a path is one. The
caller keeps what lies in the workspace. `"command": "cd tools && ./lint.sh"` names `tools`, a
directory to which commands go, and `./lint.sh`, which is a file there.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import dropwhile, product, takewhile
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.control_places.git_files import other_settings
from ironcurtain_proxy.control_places.python_modules import JAVA, LARGEST, java_classes, modules_of
from ironcurtain_proxy.control_places.rules import is_in_cache, read_names
from ironcurtain_proxy.control_places.words import (
    ENDING,
    NAMES_OPENED_FILES,
    QUOTED,
    SCRIPTS,
    SET,
    WORDS,
    below_where_they_go,
    is_code,
    is_data,
    is_shells,
    relative,
    unescaped,
    values_of,
    without_spoken_of,
    words_in,
    words_of_values,
)
from ironcurtain_proxy.model.values import lazy

_NAMED: Final = lazy(
    r"(?aim)^(?:\[[^\]\n]*\])?[ \t]*(hookspath|path)[ \t]*=[ \t]*\"?([^\"\n;#]+)"
    r"|\bcore\.(hookspath)=([^\s\"']+)"
)
"""What a configuration of git names, also in an alias: `ci = -c core.hooksPath=x commit`."""

_FROM_FILE: Final = {"-f", "-F", "--file"}
_OPTION: Final = lazy(r"\A-\w")
_PROGRAMS_OF_GIT: Final = lazy(
    r"(?im)^[ \t]*\w{0,30}(?:external|pager|editor|helper|program|cmd|fsmonitor|textconv|clean"
    r"|smudge|process|driver|command)[ \t]*=[ \t]*[\"!]{0,2}([\w.+-]+)"
)
"""The names of programs that a configuration of git starts."""
_FILE_KEYS: Final = ("file", "path", "info", "cert")
"""How the keys of git's settings end that name a file which git believes."""

COMMANDS: Final = lazy(
    # The first letters are in both cases, as `re` then skips to the next of them.
    r"(?:[Cc](?i:ommand|md)|[Aa](?i:rgs)|[Rr](?i:un|unner)|[Ll](?i:inker)"
    r"|[Ee](?i:ntry|nter|xec(?:start\w{0,4}|stop)?)"
    r"|[Ww](?i:rapper)|[Pp](?i:lugin|reload|rogram)|[Ss](?i:cript))(?i:s?)[\"']?(?:\s+value)?\s*[:=]"
    r"\s*([|>][+-]?[ \t]*(?:\n[ \t]+[^\n]{0,4096}){1,64}|\[[^\]]{0,4096}"
    r"|\"(?:[^\"\\]|\\.){0,4096}|'[^']{0,4096}|[^\n]{0,4096})"
)
"""In JSON, YAML and TOML alike. What is longer is cut, so that the time stays in proportion."""
_IN_FULL: Final = lazy(r"(?:/[^\s\"'`\\;|&()<>,:\[\]{}*?$#!=/]{1,255}+){1,64}+(?![/*?${\[])")
"""A path from the root of the system, but for one that goes on, such as `/a/*`, `/a/` or `/a$B`."""
_INERT: Final = lazy(
    r"((?:\[|\btest)[ \t]+(?:![ \t]+)?-[defs]|(?<=\s)[12&]?>{1,2}|\bHISTFILE="
    r"|(?<![\w-])(?:-o(?=\s+\S+\.(?:json|xml|html))|--out(?:put|file|dir|-file|-dir)?)(?:[\"'],)?)"
    r"[ \t=]{0,9}[\"']?(?!/dev/)[\w@./][\w./@*-]*(?![^\s;&|)\"',\]])"
)
"""What is looked for, or written: `[ -f x ]`, `> x`, `--output x`. It runs if it is said again."""
_ENDS: Final = lazy(r"\n|;|&&|\|\|")
_OPENS: Final = lazy(r"[$<]\(")
_KEPT: Final = lazy(r"(?<!2)>(?!&|>?[ \t]*/dev/null)")
LARGEST_LINE: Final = 4096
_DIRECTORIES: Final = lazy(
    r"(?i)(?:source_dir(?:_local)?|tsdk|nodepath|find-links|pluginpath|cliPluginsExtraDirs|scripts-append"
    r"|core\.hooksPath|--exec-path|GIT_CONFIG_VALUE_\d+|<localRepository)[\"']?"
    r"(?:\s*[:=>]|(?<=Path)[ \t](?!GIT_))\s*\[?\s*[\"']?([^\s\"',<]+)"
)
"""Where settings say that programs, or a library that is loaded, lie."""
_INCLUDED: Final = lazy(
    r"(?im)(?:^[ \t]*[!#]?(?:glob)?(?:include(?:-?dir)?|source(?:-file)?|conf-dir|runtime)\b"
    r"[\s=!\"']+|\bglob\([\"']|\bextends\b[\s:=\[\"'-]+)([^\s\"'#]*/[^\s\"'/]*[*?\[][^\s\"'/]*)"
)
"""`Include x/*.conf`: programs load each file of a directory."""
_LOADED: Final = lazy(
    r"(?m)(?:^|[;&|{(!]|\b(?:then|do|else)\b)[ \t]*"
    r"((?:source_env|dotenv)(?:_if_exists)?|source|\.|PATH_add|path_add[ \t]+PATH)"
    r"(?:[ \t]+[\"']?([^\s\"';&|)]+))?"
)
"""What an allowed `.envrc` loads, or puts where programs are looked for."""
_PATH_OF_ENVRC: Final = lazy(
    r"(?:\b(?:PATH|path)(?:\[[\d,-]*\]|[ \t]DEFAULT)?\+?[ \t]*="
    r"|\b(?:load_prefix|fish_add_path|fish_user_paths|path(?:add|munge|_?(?:append|prepend))"
    r"|(?:add|append|prepend)_?(?:to_?)?path)\b|\bset\b[^\n;]*?\bPATH\b)([^\n;]{0,4096})"
)
_VERSIONS: Final = lazy(r"\bpath:([^\s\"',\]]{1,255})")
_PATHS_OF_BEFORE: Final = lazy(
    r"(?i)\$\{?\w*path\b[^/]*|/(?:usr/(?:local/)?|snap/)?s?(?:bin|games)/?|\W*"
)
"""`$PATH`, and what holds an earlier one, such as `${_OLD_VIRTUAL_PATH:-}`; the system's own."""
_FUNCTIONS: Final = lazy(
    r"\b(?:fpath|fish_(?!add)\w+_path|XDG_\w+_DIRS|(?:antigen|zgenom|zinit|zplug)[ \t]+\w+)\b"
    r"([^\n;]{0,4096})"
)
"""Where a shell finds functions, completions and plugins, which it loads by themselves."""
_OF_NPM: Final = lazy(r"(?m)^[ \t]*(?!cache|logs|prefix|tmp)[\w-]+[ \t]*=[ \t]*([^\n]*/[^\n]*)")
_LOADED_BY_MISE: Final = lazy(r"_\.(?:source|file)\s*=\s*(\[[^\]]{0,4096}|[^\n]{0,4096})")
_PATH_OF_SETTINGS: Final = lazy(
    r"(?:\b_\.path|(?<!\w)PATH[\"']?)(?:\s+DEFAULT)?\s*[:=][\s(]*(?:\$env\.PATH\s*\|\s*prepend\s*)?"
    r"(\[[^\]]{0,4096}|\"[^\"\n]{0,4096}|'[^'\n]{0,4096}|[^\n]{0,4096})"
)
_REQUIRED: Final = lazy(r"\brequire\b[\s(]*[\"']([\w.]+)[\"']")
_INTERPRETERS: Final = r"(?:[bdkz]?a?sh|python[\d.]*|node|perl|ruby|source)\b"
_BEFORE_COMMANDS: Final = (
    r"(?:^|[;&|){`]|(?<!=)\(|\b(?:then|do|else|if|while|until|exec|eval|xargs|time|sudo|command|env)\b"
    rf"|\b{_INTERPRETERS}|(?<!\S)[.!](?=\s)|(?<=\s)-[cx](?=\s)"
    r"|(?<!\S)\w+=(?!\S*\$\([^)\s]*\s)\S*(?=[ \t]))[ \t]*"
)
_BY_NAME: Final = lazy(_BEFORE_COMMANDS + r"([\w.+@-]{1,99})(?=[\s;&|)`\"',\]]|\Z)", re.MULTILINE)
_STARTED: Final = lazy(_BEFORE_COMMANDS + r"([^\s`;|&()<>=]{0,255}/[^\s`;|&()<>]*)", re.MULTILINE)
"""What a script of a shell starts, loads, or looks for before it does; its quotes are left out."""
_RUNS_EACH: Final = lazy(
    rf"(?m){_BEFORE_COMMANDS}(?:\./)?\$\{{?(?!PWD|HOME|SHELL|0)(\w+)\}}?(?=[\s;&|)]|\Z)"
    rf"|\bxargs\b[^;&|\n]{{0,255}}\b{_INTERPRETERS}|-exec(?:dir)?[ \t]+(?:\{{\}}|{_INTERPRETERS})"
)
_LISTED: Final = lazy(
    r"\bfor[ \t]+\w+[ \t]+in[ \t]+([^;\n]+)|\b(?:find|ls|fd|run-parts)\b([^;&|)\n]*)"
)
"""What a script of a shell may run one after the other: `for f in checks/*; do "$f"; done`."""
_ALIASES: Final = lazy(r"(?<=alias )[ \t]*[\w.-]+=")
"""What it stands for the user starts by hand."""
_ASSIGNED: Final = lazy(r"\b(\w{1,99})=\(?([^\s;&|()=/]*/[^\s;&|()=]+)")
_OF_COMMAND: Final = lazy(r"\$\([^()\n]{0,255}\)/|\$\{[^{}\n]{0,255}\}/")
"""What stands for a directory: `$(git rev-parse --show-toplevel)/tools/x`."""
INTERPRETED: Final = lazy(
    rf"(?:^|[;&|({{`\"'=/]|\b(?:then|do|else|exec))[ \t]*{_INTERPRETERS}(?:[ \t]+-[eEuvx]+)*"
    r"(?:[ \t]+|[\"'][\s,]*(?:[\"']?args[\"']?\s*[:=]\s*)?\[?\s*[\"'](?!args))"
    r"(\w[\w.@+-]*)(?=[\s;&|)\"',\]]|\Z)(?![\"']\s*:)",
    re.MULTILINE,
)
"""A script that has no slash: `bash run`, `"command": "node", "args": ["run"]`. No next key is."""
_AUTOLOADED: Final = lazy(r"\bautoload\b((?:[ \t]+[\w+-]+)+)")
_OF_LIBRARIES: Final = lazy(r"\b(?:perl|ruby)\b[^\n;|&]{0,255}?[\s\"',]-[mMr]([A-Za-z][\w:/]*)")
"""A module that lies in a place of libraries: `perl -Ilib -MOwn::X`."""
_NAMED_BY_VARIABLES: Final = lazy(
    r"\b(?:\w{0,40}(?:_COMMAND|PAGER|EDITOR|_SSH|ASKPASS|BROWSER|VISUAL)|LESSOPEN)"
    r"=[\"'|]{0,2}([\w.+@-]+)"
)
_GLOB: Final = lazy(r"[*?\[{$]")
_ANYTHING: Final = lazy(r"\$?\{[^}]*\}?|\$\w*|\[[^\]]*\]?|\?|\([^/]*")
_BY_NAMES: Final = lazy(r"-i?name[ \t]+(\S+)")
_IN_ALL: Final = lazy(r"\$\{?(?:\(\w+\))?(\w+)")
_STEERS: Final = lazy(
    r"\b\w{0,99}(?:ENV|(?:OPT|CONF|SSH)\w{0,99}|PRELOAD|STARTUP|COMMAND|EDITOR|PAGER|INIT|(?<!S)RC"
    r"|SHELL|HOOKS?|NODE_PATH|EnvironmentFile)"
    r"[\"']?\s*[:=]\s*-?(\"[^\"\n]{0,4096}|'[^'\n]{0,4096}|[^\n]{0,4096})"
)
"""Variables that name a file which programs load, or run."""
_JOINED: Final = lazy(r"(?<![^\s\"'])-[A-Za-z](?=[./~$])")
"""An option to which its value is joined: `RUBYOPT=-r./x`."""
_ENVIRONMENT: Final = lazy(
    r"\b(?:anaconda|activate)[ \t]+(?:-\w[ \t]+)?[\"']?([^\s\"';&|)-][^\s\"';&|)]*)"
)
_PYTHONS: Final = lazy(r"\b(?:PYTHONPATH|sys\.path)\b([^;\n]{0,4096})")
_LIBRARIES: Final = lazy(
    r"\b(LD_LIBRARY_PATH|LUA_C?PATH|PERL5?LIB|RUBYLIB)(?:_5_\d)?\b([^\n]{0,4096})"
    r"|\b(perl|ruby|PERL5OPT|RUBYOPT)\b[^\n;|&]{0,255}?[\s\"',=]-I[\s\"',]{0,9}([^\s\"',]+)"
)
"""Where programs look first for what they load."""
_RUNTIME: Final = lazy(
    r"\b(?:rtp|runtimepath|packpath|Plug|load-path|directory-files|dir[ \t]*=)([^\n]{0,4096})"
)
"""Of editors: directories of which they load what lies in some others."""
_STARTS_PYTHON: Final = lazy(
    r"(?im)(?:python|pypy)[\d.]*(?:[\"',\s\\]+-(?!-|[A-Z]*[IP])|[ \t]*(?:[<|;&)]|$)|\.venv"
    r"|\\?[\"'](?!\s*,\s*[\"'][^-\"'][^\"']*[\"'](?!\s*:)"
    r"|[\s,\"']*args[\"']?\s*[:=]\s*\[?\s*[\"'][^-]))"
    r"|\b(?:layout|use)[ \t]+\w*(?:py|conda)"
)
"""Python looks first where it starts, if it is given no file: `python -c`, `-m`, or its input."""


_OF_SERVICES: Final = lazy(
    r"\b(?:sqlite|duckdb|postgres|mysql|mariadb|redis|mongodb|amqp|https?)[\w+]{0,20}://[^\s\"'`;|&()<>,]*"
)
"""Where programs find a database or a site: it may be a file, which nothing runs."""
_NO_OUTPUT: Final = lazy(
    r"\b(?:find|parallel|scp|set|ssh|sudo|test|xargs)\b|\b(?:[bdkz]?a?sh|fish)(?:[ \t]+[-+]\S+)*$"
)
"""`bash -o errexit x.sh`, `xargs -o x.sh`: what follows is an option, or the program."""
_OUTPUT: Final = lazy(
    r"(?m)((?:^|[;&|\"'`({])[^\n;&|\"'`({]{1,256}?)[ \t]-o[ \t]+[\w@./][\w./@-]*"
    r"(?![^\s;&|)\"',\]])"
    r"|(\bcp(?:[ \t]+-\w+)*[ \t]+[\w@./][\w./@-]*)[ \t]+[\w@./][\w./@-]*(?=[ \t]*(?:$|[;&|)\"']))"
)
"""What a program writes: `gen -o x.ts`, `cp a x.ts`. What is copied may be run under both names."""
_GOES: Final = lazy(
    r"(?i)\b(?:cd|pushd|chdir|cwd|root)\b|dir(?:ectory)?\b|(?<![\w-])(?:-C|-p|--project|--prefix)\b"
)
"""Commands that start in another directory than where their file lies."""


def _without_data(text: str) -> str:
    """Return a text without the files that known programs only read, check or format, or write.

    What follows an option that is not in the table stays: it may name what they load.
    """
    text = _OUTPUT.sub(_without_output, _INERT.sub(r"\1", _OF_SERVICES.sub("-", text)))
    return _readers().sub(_kept, text)


def _without_output(found: re.Match[str]) -> str:
    is_output = found[1] is None or _NO_OUTPUT.search(found[1]) is None
    return (found[1] or found[2]) if is_output else found[0]


def _runs(text: str) -> re.Match[str] | None:
    """Find what runs its input, its options or what it is given."""
    return re.search(rf"\b(?:{'|'.join(read_names().commands['run_their_input'])})\b", text)


def _is_shown_to_run(found: re.Match[str]) -> bool:
    """Return whether what a reader prints is run, or kept in a file: `cat x | sh`, `$(cat x)`."""
    text, is_content = found.string, found[2] in read_names().commands["show_content"]
    pipeline = _ENDS.split(text[found.end() : found.end() + LARGEST_LINE], maxsplit=1)[0]
    before = text[max(0, text.rfind("\n", 0, found.start())) : found.start()]
    opened = len(_OPENS.findall(before)) > before.count(")") or before.count("`") % 2 == 1
    # Names are given to any program, content to none.
    given = pipeline if is_content else pipeline.replace("xargs", "")
    return ("|" in pipeline and _runs(given) is not None) or (
        is_content and (opened or _KEPT.search(pipeline) is not None)
    )


@cache
def _readers() -> re.Pattern[str]:
    args, listed = r"[\"']?args[\"']?\s*[:=]\s*\[\s*", r"\"[^\"\n]{0,256}\"|'[^'\n]{0,256}'"
    return re.compile(
        rf"({args}[\"'])?(?:(?<=\.bin/)|(?<![\w./$=-]))({'|'.join(read_names().readers)})"
        rf"((?:[ \t]+(?![=:])(?:[\w@.*/{{}}$^:=+~%-]|'\$\w{{1,99}}'){{1,256}}){{1,64}}+"
        rf"|[\"']\s*,\s*(?:{args}|(?(1)|(?!)))(?:(?:{listed})\s*,?\s*){{1,64}}+)"
    )


def _kept(found: re.Match[str]) -> str:
    said, options = found[3], read_names().readers[found[2]]
    if _is_shown_to_run(found):
        return found[0]
    for one in WORDS.finditer(said):
        if one[0][0] == "-" and one[0] not in options and not one[0][1:].isdigit():
            return found[0] if said[0] in "\"'" else f"{found[2]} {said[one.start() :]}"
    return found[0].removesuffix(said) + said[: said[0] in "\"'"]


def named_files(text: str) -> Iterator[tuple[bool, str]]:
    """Yield directories of hooks (True) and configurations (False) that one names."""
    for found in _NAMED.finditer(text):
        yield (found[1] or found[3]).lower() == "hookspath", (found[2] or found[4]).strip()


def by_name(text: str) -> list[str]:
    """Return the names of programs that a configuration of git starts."""
    found = _PROGRAMS_OF_GIT.findall(text)
    return [*found, *[f"git-credential-{one}" for one in found]]


def named_programs(text: str) -> Iterator[str]:
    """Yield what may be programs that a configuration names, relative to the worktree.

    Git runs filters, drivers, editors and the like there: `clean = python3 tools/strip.py %f`.
    """
    for section, key, value in other_settings(_without_data(text)):
        if f"{section}.{key}" in read_names().commands["repositories"]:
            continue
        if key.endswith(_FILE_KEYS):
            yield value
        # What the user types speaks of many files.
        ending, before = SCRIPTS if section.startswith("alias") else ENDING, ""
        yield from [one for kind in QUOTED for one in kind.findall(value.replace("\\", ""))]
        for word in WORDS.findall(value):
            # A program without a slash does not lie there, but what follows it may.
            if "/" in word or (before and (ending.search(word) or before in _FROM_FILE)):
                # What stands behind `$(git rev-parse --show-toplevel)` begins with a slash.
                yield from {word, word.lstrip("/"), _OPTION.sub("", word)}
            before = word


def words_of_commands(name: str, text: str) -> Iterator[str]:
    """Yield the words of the commands in a control file, which may be relative paths.

    Args:
        name: the file's. What has an ending is settings, and all else a script of a shell.
        text: what it holds.
    """
    ending, table = name.rpartition(".")[2], read_names().commands
    for kind in QUOTED:
        yield from [relative(one) for one in kind.findall(text) if WORDS.fullmatch(one) is None]
    if is_shells(name):
        words = [*map(relative, WORDS.findall(text))]
        yield from words
        if "node" in text.partition("\n")[0]:
            yield from [word + one for word in words for one in table["endings"]]
        return
    # What packages bring counts as data there: `.venv/bin/python`.
    words = [*words_in(COMMANDS.findall(text))]
    words = [one for one in words if not is_in_cache(relative(one).split("/"))]
    endings = table["endings"]
    if ending in table["code"]:
        words += [one for one in WORDS.findall(text) if "/" in one]
        endings += table["indexes"] if is_code(name) or ending == "nix" else ()
    elif ending != NAMES_OPENED_FILES:
        values = map(relative, words_of_values(without_spoken_of(text)))
        yield from [one for one in values if not is_in_cache(one.split("/"))]
    for word in map(relative, words):
        yield word
        if "/" in word and not SCRIPTS.search(word):
            yield from [word + one for one in endings]


class Commands(Struct, frozen=True):
    """What the commands of one file name, relative to where they start."""

    name: str
    """The file's."""
    named: frozenset[str]
    """Words that may be files which exist, or directories to which commands go."""
    coming: frozenset[str]
    """What is loaded as soon as it is there; with a slash at its end all that a directory holds,
    with `*` all that the pattern matches."""
    homes: frozenset[str]
    """The same of directories of programs: what lies in one outside is not read."""
    full: frozenset[str]
    """Absolute paths of what may be files that programs act on."""
    modules: frozenset[str]
    """Modules of Python that are started or imported, with slashes for dots."""
    places: frozenset[str]
    """Where Python looks for modules first, by a variable that is set."""
    values: frozenset[str]
    """What may be files that are started or loaded, whether they are there or not."""
    libraries: frozenset[tuple[str, str]]
    """A variable, and a directory in which programs look first for what they load by it."""
    path: frozenset[str]
    """Directories in which programs are looked for by their names."""
    by_name: frozenset[str]
    """The names of programs that are started."""
    goes: bool
    """Whether they go to another directory than where they start."""
    starts_python: bool
    """Whether Python looks for modules first where the commands start, and not beside a program."""


@lru_cache(maxsize=512)
def read_commands(name: str, text: str) -> Commands:
    """Read a control file, or one that a control file leads to.

    Args:
        name: the file's.
        text: what it holds. Of a long one only the beginning is read.
    """
    text = _without_data(unescaped(name, text[:LARGEST]))
    first, _, rest = text.partition("\n")
    named = frozenset(words_of_commands(name, text))
    coming = frozenset(files_to_come(name, text, named))
    modules = modules_of(name, text)
    # Where a `.pth` says Python looks, too, and imports what it says as soon as it starts.
    searched = [text] if modules and name.endswith(".pth") else _PYTHONS.findall(text)
    return Commands(
        name,
        named=frozenset([one for one in named if not is_data(one)]),
        coming=coming,
        homes=frozenset(_homes_of(text)),
        full=frozenset(_in_full(name, text)),
        modules=modules,
        places=frozenset(map(relative, words_in(searched))),
        values=frozenset([*values_of(name, text), *below_where_they_go(text, named, coming)]),
        libraries=frozenset(_libraries_of(text)),
        path=frozenset(map(relative, _path_of(name, text))),
        by_name=frozenset(_names_of(name, text)),
        goes=_GOES.search(text) is not None,
        # A program of Python looks beside itself.
        starts_python=_STARTS_PYTHON.search(rest if first.startswith("#!") else text) is not None,
    )


def files_to_come(name: str, text: str, named: Iterable[str]) -> Iterator[str]:
    """Yield the relative paths that a control file loads as soon as something is there.

    A path with a slash at its end is a directory of which every file is run.

    Args:
        name: the file's.
        text: what it holds.
        named: the words of its commands.
    """
    if is_shells(name):
        yield from _of_script(text)
        yield from _of_envrc(text)
    if name.startswith(".envrc"):
        return
    yield from _of_editors(name, text)
    yield from [one + more for one in INTERPRETED.findall(text) for more in ("", ".js")]
    for place, one in product(_libraries_of(text), _OF_LIBRARIES.findall(text)):
        yield from [f"{place[1]}/{one.replace('::', '/')}.{ending}" for ending in ("pm", "rb")]
    yield from java_classes([*map(relative, words_in(JAVA.findall(text)))])
    for part in COMMANDS.findall(text):
        yield from _of_script(part.replace("\\", "").lstrip("[\"' "))
    yield from [one for one in named if "/" in one and SCRIPTS.search(one) and "*" not in one]
    yield from [f"{relative(one)}/" for one in _DIRECTORIES.findall(text)]
    yield from [relative(_ANYTHING.sub("*", one)) for one in _INCLUDED.findall(text)]
    yield from map(relative, words_in(_LOADED_BY_MISE.findall(text)))
    yield from _of_variables(text)
    yield from map(relative, words_in(_OF_NPM.findall(text) if name == ".npmrc" else ()))


def _in_full(name: str, text: str) -> Iterator[str]:
    """Yield the paths that a text says in full, but for what it only speaks of, and documents."""
    text = text if is_shells(name) else without_spoken_of(text)
    documents = read_names().commands["data_endings"]
    blanks = [one for kind in QUOTED for one in kind.findall(text) if " " in one]
    for one in [*_IN_FULL.findall(text), *[one for one in blanks if one.startswith("/")]]:
        if not (one.lower().endswith(documents) or is_data(one) or is_in_cache(one.split("/"))):
            yield one


def _of_editors(name: str, text: str) -> Iterator[str]:
    table = read_names().commands
    for part in _RUNTIME.findall(text):
        words = [*map(relative, WORDS.findall(part)), *["."][: "getcwd" in part]]
        is_lisp = name.endswith((".el", ".emacs"))
        inner = [""] if is_lisp else [f"{one}/" for one in table["of_editors"]]
        yield from [f"{word}/{one}" for word in words for one in inner]
    for module in _REQUIRED.findall(text) if name.endswith(".lua") else ():
        path = relative(module).strip(".").replace(".", "/")
        yield from [form.format(path) for form in table["lua_modules"]]


def _of_variables(text: str) -> Iterator[str]:
    words = words_in([_JOINED.sub("", one) for one in _STEERS.findall(text) if "/" in one])
    found = [one for one in map(relative, words) if not is_in_cache(one.split("/"))]
    yield from [one + more for one in found for more in ("", ".rb")[: 1 + ("RUBYOPT" in text)]]


def _homes_of(text: str) -> Iterator[str]:
    """Yield the directories out of which programs load, by a variable that is set."""
    homes = [one for name, one in SET.findall(text) if name in read_names().homes and "/" in one]
    words = map(relative, words_in(homes))
    yield from [f"{one}/" for one in words if not is_in_cache(one.split("/"))]


def _of_envrc(text: str) -> Iterator[str]:
    yield from [path for path in loaded_by_shell(text) if not path.endswith("/")]
    yield from _of_variables(text)
    functions = [one for one in _FUNCTIONS.findall(text) if "/" in one]
    names = ["", "_*", *" ".join(_AUTOLOADED.findall(text)).split()]
    yield from [f"{relative(one)}/{name}" for one in words_in(functions) for name in names]
    yield from [f"{relative(one)}/etc/conda/activate.d/" for one in _ENVIRONMENT.findall(text)]


def _libraries_of(text: str) -> Iterator[tuple[str, str]]:
    for variable, those, program, one in _LIBRARIES.findall(text):
        for word in WORDS.findall(those or one):
            # Lua has `x/?.lua`.
            place = relative(word).partition("?")[0].rstrip("/")
            yield variable or read_names().commands[program][0], place


def _path_of(name: str, text: str) -> Iterator[str]:
    """Yield the directories in which commands, or what they set up, find programs."""
    # Versions of programs that lie somewhere: `node = "path:./own"` of mise, or of asdf.
    for one in map(relative, _VERSIONS.findall(text)):
        yield from (one, f"{one}/bin")
    # What stands behind `$(pwd)` would be a path of the system.
    text = _OF_COMMAND.sub("", text).replace("${PATH", ":${PATH")
    if is_shells(name):
        yield from [one for one in loaded_by_shell(text) if one.endswith("/")]
    else:
        words = words_in(_PATH_OF_SETTINGS.findall(text))
        yield from [one for one in words if not _PATHS_OF_BEFORE.fullmatch(one)]


def _names_of(name: str, text: str) -> Iterator[str]:
    """Yield the names of programs that commands start: `npx` of `"command": "npx"`."""
    yield from _NAMED_BY_VARIABLES.findall(text)
    for part in [text] if is_shells(name) else COMMANDS.findall(text):
        yield from _BY_NAME.findall(part.replace('"', "").replace("'", "").lstrip("[ \n\t>|-+"))


def _of_script(text: str) -> Iterator[str]:
    """Yield what a script of a shell starts by its path, and the directories whose files it runs.

    Not what it only speaks of: of `for f in src/*; do lint "$f"` nothing is run.
    """
    text = text.replace('"', "").replace("'", "").replace("\\\n", " ")
    text = _ALIASES.sub("", _OF_COMMAND.sub("", text))
    started = [one for one in _STARTED.findall(text) if not one.endswith("/")]
    loaded = [word for verb, word in _LOADED.findall(text) if verb in {"source", "."} and word]
    # Of the directory in which it is loaded.
    started += [one if "/" in one or "$" in one else f"./{one}" for one in loaded]
    ran = _RUNS_EACH.findall(text)
    for items, directories in _LISTED.findall(text) if ran or "run-parts" in text else ():
        ran += _IN_ALL.findall(items)
        started += [one for one in items.split() if "/" in one]
        names = [f"**/{one}" for one in _BY_NAMES.findall(directories)] or ["*"]
        for one in _operands(directories):
            started += [one] if _GLOB.search(one) else [f"{one}/{name}" for name in names]
    started += [value for name, value in _ASSIGNED.findall(text) if name in ran]
    if any(map(str.isdigit, ran)):
        # Whatever a function is given may be what it runs.
        started += [one for one in WORDS.findall(text) if SCRIPTS.search(one)]
    for one in map(relative, started):
        if is_in_cache(one.split("/")):
            continue  # what packages bring counts as data there
        glob = _GLOB.search(one)
        if glob is None:
            yield one
        elif one[: glob.start()].strip("./"):
            yield _ANYTHING.sub("*", one)


def _operands(text: str) -> Iterator[str]:
    """Yield the words between options: of `-L tools -name x` it is `tools`."""
    behind = dropwhile(lambda one: one[0] == "-", text.split())
    return takewhile(lambda one: one[0] not in "-\\(!", behind)


def loaded_by_shell(text: str) -> Iterator[str]:
    """Yield what an `.envrc` loads, and with a slash at the end where it finds programs."""
    for verb, word in _LOADED.findall(text):
        if verb.lower().startswith("path"):
            yield f"{word}/"
        elif word or verb.startswith("dotenv"):
            yield word or ".env"
    paths = [one.replace('"', "").replace("'", "") for one in _PATH_OF_ENVRC.findall(text)]
    for word in {*words_in(paths)}:
        yield from () if _PATHS_OF_BEFORE.fullmatch(word) else (f"{word}/", f"{word}/bin/")
    table = read_names().of_envrc
    for word in {*WORDS.findall(text)} & table.keys():
        yield from table[word]

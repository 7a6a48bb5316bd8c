"""Programs that only read, with the options and operands for which this is certain.

An option whose arity differs between implementations (GNU, BSD) stays out: a value taken for an
operand, or the reverse, would hide a word from the check.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.options import ParsedOptions
from ironcurtain_proxy.shell.places import why_not_read
from ironcurtain_proxy.shell.reads import LOCAL_NAME, ReadingProgram, reader, shows_variables
from ironcurtain_proxy.shell.secrets import names_a_secret


def _jq(reading: ParsedOptions) -> str | None:
    """Check the filter of `jq`: it may read the environment, or load a module."""
    words = reading.operands[:1]
    text = words[0].text if words else ""
    if text is None:
        return "its filter is not known"
    if re.search(r"\b(?:env|ENV|import|include|modulemeta|input_filename)\b", text):
        return "its filter may show the environment or load a module"
    return None


_ADDRESS: Final = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_STEP: Final = (
    rf"\s*(?:{_ADDRESS}(?:,{_ADDRESS})?)?\s*!?\s*"
    r"(?:[pdq=]|s(?P<mark>[/|,#:@])(?:(?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)"
    r"(?:(?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)[gpI0-9]*)\s*"
)
_SED: Final = re.compile(_STEP)


def _sed(reading: ParsedOptions) -> str | None:
    """Check that a script of `sed` has only p, d, q, = and s, whose flags neither write nor run."""
    scripts = reading.values_of("-e", "--expression") or reading.operands[:1]
    for script in scripts:
        steps = [script.text or ""]
        if script.text is not None and re.fullmatch(r"[\d$,;pd ]+", script.text):
            steps = [step for step in script.text.split(";") if step.strip()]
        if script.text is None or not all(map(_SED.fullmatch, steps)) or not steps:
            return "its script may do more than print"
    return None


_LINE: Final = r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?[^\]\n/]*\])*/"
"""An expression that matches lines, and runs nothing."""
_AWK: Final = re.compile(
    rf"\s*(?:NR ?[<>=!]=? ?\d+|NF|{_LINE}(?:, ?{_LINE})?)?"
    r"(?: ?(?:&&|\|\|) ?NR ?[<>=!]=? ?\d+)?\s*"
    r"""(?:\{ ?print(?: (?:\$(?:\d+|NF)|NR|NF|"[\w :/.-]*")"""
    r"""(?:, ?| ?(?=[$"NR])|(?= ?\})))* ?\})?\s*"""
)


def _awk(reading: ParsedOptions) -> str | None:
    """Check that a program of `awk` has one condition on the line, and prints fields."""
    script = reading.operands[0] if reading.operands else None
    text = None if script is None else script.text
    # `1>2` and `print > "f"` look alike: no comparison may stand behind `print`.
    if text is None or not text.strip() or not _AWK.fullmatch(text):
        return "its program may do more than print fields"
    return None


def _printf(reading: ParsedOptions) -> str | None:
    """Check that a format has only `%s`: some shells evaluate a number as arithmetic."""
    text = reading.operands[0].text if reading.operands else None
    if text is None or re.search(r"%(?![%s]|-?\d+s)", text):
        return "its format may evaluate its arguments"
    return None


def _date(reading: ParsedOptions) -> str | None:
    """Check that `date` gets only `+FORMAT`: any other operand sets the clock."""
    formats = all((word.text or "").startswith("+") for word in reading.operands)
    return None if formats else "an operand sets the clock"


def _numbers(reading: ParsedOptions) -> str | None:
    plain = all(re.fullmatch(r"\d*\.?\d+[smhd]?", w.text or "", re.ASCII) for w in reading.operands)
    return None if plain else "an operand is not a number"


def _ps(reading: ParsedOptions) -> str | None:
    plain = all(word.text in {"aux", "ax", "au", "x", "auxww"} for word in reading.operands)
    return None if plain else "it may show the environment of processes"


def _names(reading: ParsedOptions) -> str | None:
    plain = all(LOCAL_NAME.fullmatch(w.text or "") for w in reading.operands)
    return None if plain else "a variable is set that may change what programs do"


def _grep(reading: ParsedOptions) -> str | None:
    """Check that a recursive `grep` names kinds of files: without, it also reads secrets."""
    if reading.has("-r", "-R", "--recursive", "--dereference-recursive"):
        kinds = reading.values_of("--include")
        plain = [re.fullmatch(r"\*[\w*-]*\.\w+", word.text or "") for word in kinds]
        if not plain or not all(plain) or any(_KEYS.search(w.text or "") for w in kinds):
            return "it reads every file of a tree"
    return None


def _rg(reading: ParsedOptions) -> str | None:
    """Check that no glob names hidden files: `rg` reads hidden and ignored files only if named."""
    globs = reading.values_of("-g", "--glob")
    plain = (re.fullmatch(r"!?[\w*/-]*\.\w+", word.text or "") for word in globs)
    if not all(plain) or any(_KEYS.search(word.text or "") for word in globs):
        return "a glob may name hidden files"
    return None


def _two_files(reading: ParsedOptions) -> str | None:
    """Check that the operands are files: of two directories every file is shown, also secrets."""
    names = [(word.text or "").rpartition("/")[2] for word in reading.operands]
    return None if all(re.fullmatch(r".+\.\w+", name) for name in names) else "it may compare trees"


_KEYS: Final = re.compile(
    r"env|pem|key|p12|pfx|crt|cer|jks|kdbx|asc|gpg|secret|credential", re.IGNORECASE
)

_GREP: Final = (
    "n i v c l L h H w x o q s E F G P a z r R e: m: A: B: C: # line-number ignore-case"
    " invert-match count files-with-matches files-without-match no-filename with-filename"
    " word-regexp line-regexp only-matching quiet silent no-messages extended-regexp fixed-strings"
    " basic-regexp perl-regexp text recursive regexp: max-count: after-context: before-context:"
    " context: include: exclude: exclude-dir: color? colour? f@ file@ null Z"
)
_RG: Final = (
    "n i v c l w x o q s F P U S N H e: m: A: B: C: g: t: T: line-number no-line-number"
    " ignore-case smart-case case-sensitive invert-match count files-with-matches"
    " files-without-match word-regexp line-regexp only-matching quiet no-messages fixed-strings"
    " pcre2 multiline regexp: max-count: after-context: before-context: context: glob: type:"
    " type-not: color: colors: heading no-heading with-filename no-filename sort: files json"
    " vimgrep stats max-depth: max-columns: trim column"
)
_GREP_READER: Final = reader(_GREP, "pattern", pattern="-e --regexp -f --file", check=_grep)
_SUM: Final = reader("b t binary text tag z")
_JQ: Final = reader(
    "r c s n e M C S j a raw-output compact-output slurp null-input exit-status monochrome-output"
    " color-output sort-keys join-output ascii-output tab indent: R raw-input",
    "pattern",
    check=_jq,
    pairs="--arg --argjson",
)
_LS: Final = (
    "a A l h r t S R d 1 F i s p n g o L H k c u U m C Q X x G q N all almost-all human-readable"
    " reverse recursive directory color? inode size classify? group-directories-first full-time"
    " sort: time: time-style: no-group numeric-uid-gid file-type"
)

READERS: Final[Mapping[str, ReadingProgram]] = {
    "cat": reader("n b s v e t E T A number number-nonblank squeeze-blank show-all show-ends"),
    "head": reader("n: c: q v # lines: bytes: quiet silent verbose"),
    "tail": reader("n: c: q v r # lines: bytes: quiet silent verbose"),
    "wc": reader("l w c m L lines words bytes chars max-line-length"),
    "nl": reader("b: n: w: s: v: i:"),
    "tac": reader(),
    "rev": reader(),
    "fold": reader("w: s width: spaces"),
    "cut": reader("d: f: c: b: s n delimiter: fields: characters: bytes: complement"
                  " output-delimiter: only-delimited"),
    "paste": reader("d: s delimiters: serial"),
    "comm": reader("1 2 3 i"),
    "cmp": reader("s l b"),
    "tr": reader("d s c C t delete squeeze-repeats complement truncate-set1", "text"),
    "uniq": reader("c d u i f: s: w: count repeated unique ignore-case", most=1),
    "sort": reader("n r u k: t: h V f b g M s z c C d i numeric-sort reverse unique key:"
                   " field-separator: human-numeric-sort version-sort ignore-case stable check"),
    "column": reader("t s: n table separator:"),
    "diff": reader("u q w b B i a y c s U: unified? brief ignore-all-space side-by-side"
                   " ignore-space-change ignore-blank-lines ignore-case text color?",
                   most=2, check=_two_files),
    "od": reader("c x b d o A: t: N: j: v"),
    "xxd": reader("l: s: c: g: p b u i", most=1),
    "hexdump": reader("C n: s: v c x"),
    "base64": reader("d decode", most=1),
    "md5sum": _SUM, "sha1sum": _SUM, "sha224sum": _SUM, "sha256sum": _SUM, "sha512sum": _SUM,
    "b2sum": _SUM, "cksum": reader(), "sum": reader(), "md5": reader("q r"),
    "shasum": reader("a: b t p"),
    "stat": reader("c: L t x format: printf: terse dereference"),
    "file": reader("b i L mime mime-type mime-encoding brief dereference"),
    "readlink": reader("f e m n q s canonicalize", "files"),
    "realpath": reader("e m s q", "files"),
    "basename": reader("a s: z suffix: multiple", "text"),
    "dirname": reader("z", "text"),
    "ls": reader(_LS),
    "tree": reader("L: a d f h D s i p C n dirsfirst noreport I: P: prune du"),
    "du": reader("s h a d: c k m b x summarize human-readable max-depth: total apparent-size"),
    "df": reader("h T k m i a human-readable"),
    "pwd": reader("P L", "none"),
    "whoami": reader("", "none"), "nproc": reader("all", "none"), "arch": reader("", "none"),
    "uptime": reader("p s", "none"), "free": reader("h m g k b t w", "none"),
    "id": reader("u g n G r", "names"),
    "groups": reader("", "names"),
    "uname": reader("a s r m n v o p i", "none"),
    "hostname": reader("s f i I d", "none"),
    "sw_vers": reader("", "none"),
    "date": reader("u I utc universal iso-8601? rfc-3339: R", "text", check=_date),
    "which": reader("a s", "names"),
    "type": reader("a t p P f", "names"),
    "ps": reader("e f A a x p:", "text", check=_ps),
    "pgrep": reader("f l a x n o u: c", "text"),
        "printf": reader("", "text", check=_printf),
    "true": reader("", "text"), "false": reader("", "text"), ":": reader("", "text"),
    "sleep": reader("", "text", check=_numbers),
    "seq": reader("w s: f:", "text", check=_numbers),
    "exit": reader("", "text", check=_numbers), "return": reader("", "text", check=_numbers),
    "break": reader("", "text", check=_numbers), "continue": reader("", "text", check=_numbers),
    "wait": reader("", "none"),
    "read": reader("r", "names", check=_names),
    "uuidgen": reader("", "none"),
    "grep": _GREP_READER, "egrep": _GREP_READER, "fgrep": _GREP_READER, "ggrep": _GREP_READER,
    "rg": reader(_RG, "pattern", pattern="-e --regexp --files", check=_rg),
    "jq": _JQ,
    "sed": reader("n E r e: expression: quiet silent regexp-extended", "pattern",
                  pattern="-e --expression", check=_sed),
    "awk": reader("F:", "pattern", check=_awk), "gawk": reader("F:", "pattern", check=_awk),
}  # fmt: skip
"""The readers by name. Other programs are judged by other tables."""

VERSIONS: Final = frozenset(
    {"python", "python3", "node", "git", "bash", "jq", "rg", "gcc", "clang", "make", "cmake", "gh",
     "docker", "perl", "ruby", "sqlite3", "openssl", "curl", "tar", "zip", "sed", "grep", "awk"}
)  # fmt: skip
"""Programs that only show their version for `--version` alone, without a look at the project.
Programs that a version manager replaces by those of the project (go, cargo, npm, …) are missing."""


_FLAGS: Final = words(
    """
    ! ( ) -a -o -and -or -not -print -print0 -prune -empty -ls -depth -xdev -mount -true -false
    -readable -executable -writable -daystart -follow -H -L -P -E
    """
)
_VALUES: Final = words(
    """
    -name -iname -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -atime -amin
    -ctime -cmin -newer -regex -iregex -perm -user -group -links -inum -regextype -printf
    """
)


def why_not_find(rest: Sequence[Word], place: Place, variables: frozenset[str]) -> str | None:
    """The reason why a `find` does more than list; None: it only lists."""
    del variables  # nothing that is not known may stand there
    if any(word.splits or word.text is None for word in rest):
        return "an argument that is not known could be an action"
    values = [word for before, word in itertools.pairwise(rest) if before.text in _VALUES]
    if names_a_secret(values):
        return "it names what commonly holds secrets"
    at = 0
    while at < len(rest):
        text = rest[at].text or ""
        if text.startswith("-") and text not in _FLAGS | _VALUES:
            return f"{text} is not known to only list"
        reason = None if text in _FLAGS | _VALUES else why_not_read(rest[at], place)
        if reason is not None:
            return reason
        at += 2 if text in _VALUES else 1
    return None


_UNARY: Final = words("-e -f -d -s -r -w -x -z -n -L -h -p -S -b -c -u -g -k -O -G")
_BINARY: Final = frozenset({"=", "==", "!="})
_NUMERIC: Final = words("-eq -ne -lt -le -gt -ge")
_JOINS: Final = frozenset({"!", "&&", "||"})


def why_not_test(
    name: str, rest: Sequence[Word], place: Place, variables: frozenset[str]
) -> str | None:
    """The reason why `test`, `[` or `[[` does more than read; None: it only reads.

    Arithmetic is more: shells evaluate an operand of `-eq`, `-v` or `-t` as an expression, and a
    substitution in a subscript is run then: `[[ 'a[$(id)]' -eq 0 ]]`.
    """
    del place  # whether a file exists says little: any path may be tested
    end = {"[": "]", "[[": "]]"}.get(name)
    if end is not None and (not rest or rest[-1].text != end):
        return "a test is not understood"
    inner = rest if end is None else rest[:-1]
    if name != "[[" and any(word.splits for word in inner):
        return "an operand is not known"
    clauses: list[list[Word]] = [[]]
    for word in inner:
        if word.text in _JOINS:
            clauses.append([])
        else:
            clauses[-1].append(word)
    plain = all(_plain(clause) for clause in clauses if clause)
    return shows_variables(inner, variables) if plain else "a test may evaluate an operand"


def _plain(clause: Sequence[Word]) -> bool:
    texts = [word.text for word in clause]
    match texts:
        case [_]:
            return True
        case [operator, _]:
            return operator in _UNARY
        case [left, operator, right] if operator in _NUMERIC:
            numbers = (re.fullmatch(r"-?\d+", text or "", re.ASCII) for text in (left, right))
            return all(numbers)
        case [_, operator, _]:
            return operator in _BINARY
        case _:
            return False

"""The policy's input: an operation turned into facts.

All access to disk, git and parsers happens before one of these values exists.

A `ParsedCommand` is a shell command, flat: pipes, lists, substitutions, loops and here-documents
are gone; every simple command in them stands for itself, in the order of the text, because a
command is judged by all that it could run. Its `CommandPlace` has the directory, the repository and
the writable paths where it runs. A `Family` is a pattern of similar simple commands that one grant
covers.

A `Target` says who named a value first, as far as the session has seen.

    Target("to", "kim@example.org", ("email-address",), InResult("web", "fetch", "evil.example", …))

This says who wrote a value, and nothing of what a text means: text that somebody else wrote may ask
for the right thing, and the user's words may be mistaken. It is a fact about one value, not about
the session: one that has read a hostile page is no other session than before.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import ClassVar, Final, Literal, TypeAlias, assert_never, get_args

from msgspec import Struct, structs
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import ROLE_TRAITS, URL_ROLES, ArgumentRole, ToolEffect
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import TOOL_CALL, Method
from ironcurtain_proxy.model.values import (
    SQL_EFFECTS,
    Arguments,
    Json,
    RealPath,
    SqlEffect,
    WithNotes,
    lazy,
)

NamedBy: TypeAlias = Literal["user", "own", "result", "nobody"]
"""Who named a value. `user`: the user's last messages have it. `own`: the workspace or the user's
own records have it. `result`: another result of this session has it. `nobody`: none of these."""

NAMED_BY: Final[tuple[NamedBy, ...]] = get_args(NamedBy)
"""All of them, the one that speaks most for a value first."""


class ByUser(Struct, frozen=True):
    """One of the user's last messages has the value."""


class Own(Struct, frozen=True):
    """The value is the user's own: in the workspace, or in a result of the user's own records."""


class InResult(Struct, frozen=True):
    """A result of this session has the value whole."""

    server: str
    """The operator's name of the server whose result had it first."""
    tool: str
    about: str
    """The host or path that the call of that result named, or empty if there is none."""
    at: datetime
    """When the result came. Aware, UTC."""
    is_only: bool = True
    """Whether no later result has it, too."""


class ByNobody(Struct, frozen=True):
    """Neither the user nor a result has the value, as far as is remembered."""


TargetOrigin: TypeAlias = ByUser | Own | InResult | ByNobody


def named_by(origin: TargetOrigin) -> NamedBy:
    """Return who named a value, in one word."""
    match origin:
        case ByUser():
            return "user"
        case Own():
            return "own"
        case InResult():
            return "result"
        case ByNobody():
            return "nobody"
        case _:
            assert_never(origin)


class Target(Struct, frozen=True):
    """A value of a call that names a place, a thing or a person, with its origin."""

    argument: str
    text: str
    """The value as it is judged; of a text that people read, the link in it."""
    roles: tuple[ArgumentRole, ...]
    origin: TargetOrigin

    @property
    def named_by(self) -> NamedBy:
        """Who named it, in one word."""
        return named_by(self.origin)

    def reaches_out(self, effect: ToolEffect | None) -> bool:
        """Return whether the call does something to the target, or tells it something.

        A URL is told what stands in it, also where it is only read.
        """
        if _OUTWARD.intersection(self.roles):
            return True
        return effect != "reads" and any(role != "read-path" for role in self.roles)


TEXT_ROLES: Final[frozenset[ArgumentRole]] = frozenset({"email-body", "message"})
"""Texts that other people read: the links in them are targets."""

_OUTWARD: Final[frozenset[ArgumentRole]] = TEXT_ROLES.union(("email-address",), URL_ROLES)

TARGET_ROLES: Final[frozenset[ArgumentRole]] = TEXT_ROLES.union(
    ("email-address", "unclear"),
    [
        role
        for role, traits in ROLE_TRAITS.items()
        if traits.category in {"path", "url", "uri", "identifier"}
    ],
)
"""The roles whose values are targets."""


# --- requests

# --- command


class Piece(Struct, frozen=True):
    """A part of a word: known text, or a variable."""

    text: str
    """The text, or the name of the variable."""
    is_variable: bool
    splits: bool = False
    """The variable stands outside of quotes: a shell splits its value, and matches it to files."""


class Word(Struct, frozen=True):
    """One word of a command, quotes removed: `"a b"` is `a b`."""

    text: str | None
    """The text; None: it is not known before the command runs (a variable, a substitution, a glob,
    braces)."""
    pattern: str = ""
    """The known part of a word that is not known, `*` for the rest: `--to=*` of `--to=$x`."""
    splits: bool = False
    """It may be several words or none: `$x`, `*.py`; not `"$x"`. All but the first are unknown."""
    command: "ParsedCommand | None" = None
    """The word, or the text of `--option=text`, as a command that a shell may run: `sh -c ls`."""
    variables: frozenset[str] = frozenset()
    """Names of the variables in the word, such as `HOME`; `@` for all arguments."""
    template: tuple[Piece, ...] = ()
    """The parts of a word of known texts and plain variables, or empty if it has others."""
    is_glob: bool = False
    """The word is known but for the names of files that it matches: `src/*.py`, not `$x/*.py` or
    `src/{a,b}`. So all its expansions begin with its prefix."""
    expansions: tuple[str, ...] = ()
    """Patterns of the words that it may stand for: `a.*` and `b.*` of `{a,b}.$x`."""

    @property
    def prefix(self) -> str:
        """The known beginning of the word."""
        return self.pattern.partition("*")[0] if self.text is None else self.text


class Assignment(Struct, frozen=True):
    """`NAME=value`, before a command or alone; also the variable of a `for`."""

    name: str
    value: Word


class Redirection(Struct, frozen=True):
    """A redirection of input or output."""

    operator: str
    """`<`, `>`, `>>`, `>|`, `&>`, `&>>`, `<&`, `>&`, `<&-`, `>&-`, `<<` or `<<<`."""
    target: Word
    """A file or a descriptor; the text of a here-document or here-string; empty after `>&-`."""


class SimpleCommand(Struct, frozen=True, kw_only=True):
    """A program and its arguments. Without words: assignments or redirections alone."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    set_before: frozenset[str] = frozenset()
    """Variables that the same text has set in any case when the command runs."""
    is_certain: bool = True
    """The command runs exactly once, in the shell itself: not behind `||`, in a subshell, a
    pipeline, a loop or a condition. Only then is the effect of a `cd` on later commands known."""


class ParsedCommand(Struct, frozen=True, kw_only=True):
    """All simple commands of a shell text. Empty: the text runs nothing."""

    commands: tuple[SimpleCommand, ...] = ()
    unreadable: str | None = None
    """The reason why the text could not be parsed; `commands` then holds only the recognised part.
    """
    loose_words: tuple[str, ...] = ()
    """Words of an unparsed text that could name a program. Used for denials."""
    loose_paths: tuple[str, ...] = ()
    """Patterns of what an unparsed text may name as files."""
    has_background: bool = False
    """Whether a part of it runs in the background (`&`) beside the others."""

    def every_loose_word(self) -> Iterator[str]:
        """Yield the loose words of this text and of all texts that a shell in it may run."""
        yield from self.loose_words
        for command in self.commands:
            for word in command.words:
                if word.command is not None:
                    yield from word.command.every_loose_word()

    def every_command(self) -> Iterator[SimpleCommand]:
        """Yield the commands of this text and of all texts that a shell in it may run."""
        for command in self.commands:
            yield command
            for word in command.words:
                if word.command is not None:
                    yield from word.command.every_command()


# --- family


ANY: Final = "\0"
"""A word that a shell would replace by file names. No other word contains this character."""
ONLY_READS: Final = "commands that only read"
"""Stands in a family for all sub-commands of a program that only read."""
READS_BELOW: Final = "commands that only read files below"
"""Stands in a family for all programs, with the directory below which they read."""

SERVICES: Final = "requests to services"
"""Stands in a family for programs such as `curl`, where they send a request to a service and read
and write no file."""
FETCHES: Final = "fetches"
"""Stands in a family for the sub-commands of git that fetch from one remote: `fetch`, `ls-remote`
and, where the sandbox holds what it changes, `pull`."""
OWN_BRANCH: Final = "any new branch"
"""Stands in a family of pushes for all branches that `origin` does not have, or from here."""


class Family(WithNotes, frozen=True, kw_only=True):
    """The pattern of a simple command: what it shares with similar commands.

    Two parts belong to one family exactly if their families are equal.
    """

    notes: ClassVar[frozenset[str]] = frozenset({"wide"})

    program: tuple[str, ...]
    """The program with its launchers and its sub-command or task."""
    kept: tuple[str, ...] = ()
    """Options and operands of the family, in their given order where that may matter."""
    around: tuple[str, ...] = ()
    """Assignments and redirections around the command. They are kept apart from the program's
    words."""
    directory: str | None = None
    """The directory of the command, where it decides what a task means."""
    is_general: bool = True
    """Whether the family covers other commands. If not, an approval holds for this session only."""
    defined_in: tuple[str, ...] = ()
    """Files that may define the task and were not read yet. Empty: they were read, or there are
    none."""
    meaning: str | None = ""
    """A digest of those files' content, or None if it cannot be determined, and no grant covers the
    command."""
    hosts: tuple[str, ...] = ()
    """The hosts that the command reaches, as configured. An approval covers these hosts too."""
    is_of_remote: bool = False
    """The family speaks of a remote repository: it is the same in every directory where git leads
    there in the same way."""

    wide: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """The program and the kept words of a wider family, which an approval is offered for instead;
    None: there is none."""

    def widened(self) -> "Family":
        """Return the wider family, else this one."""
        if self.wide is None:
            return self
        program, kept = self.wide
        return replace(self, program=program, kept=kept, directory=None, wide=None)

    def words(self) -> str:
        """Return the family as a person would write it."""
        shown = self.spelled([*self.program, *self.kept])
        return shown if self.is_general else f"exactly {shown}"

    def spelled(self, words: Sequence[str]) -> str:
        """Return the words of the family with its assignments and redirections."""
        before = [one for one in self.around if one[:1] not in {"<", ">", "&"}]
        behind = [one for one in self.around if one[:1] in {"<", ">", "&"}]
        return " ".join([*before, *words, *behind]).replace(ANY, "*")


class DiskLookups(Struct, frozen=True, kw_only=True):
    """Lookups on the disk that the meaning of a command depends on."""

    families: tuple[Family, ...] = ()
    """Families whose meaning lies in files."""
    reaching: tuple[tuple[Family, str | None], ...] = ()
    """Families of parts that are known to reach a host, and the directory of each part."""
    paths: tuple[str, ...] = ()
    """Paths, as text, that may lie in the workspace and may be led out of it by a link."""
    globs: tuple[str, ...] = ()
    """Directories of the workspace of which a pattern names files."""
    scripts: tuple[str, ...] = ()
    """Files of the workspace that the command runs."""


# --- place


class CommandPlace(Struct, frozen=True, kw_only=True):
    """The surroundings of a command. All paths are absolute and free of links."""

    workspace: str | None = None
    directory: str | None = None
    """The directory in which the shell starts, or None if it is not known."""
    home: str | None = None
    writable: tuple[str, ...] = ()
    """Paths besides the workspace that the sandbox lets a command write."""
    closed: tuple[str, ...] = ()
    """Paths among `writable` that stay closed for writing."""
    branch: str | None = None
    """The branch that is checked out."""
    push_to: tuple[str, str] | None = None
    """The remote and branch of a `git push` without operands."""
    own_branches: tuple[str, ...] = ()
    """The branches that the command names and that `origin` has from this session, if at all, and
    no tag has such a name."""
    forge: tuple[str, str] | None = None
    """A directory, and the one repository to which all its remotes lead, such as
    `github.com/other/app`. None: they lead to several, or it is not known."""
    has_repository: bool = False
    """The directory has a `.git` of its own, from which git takes its configuration. In any other
    directory git may take it from files that only look like a repository."""
    runs_hooks: bool = True
    """Whether git may run a hook there, for all that is known."""
    meanings: tuple[tuple[Family, str | None], ...] | None = None
    """The content digests of families whose meaning lies in files, read just now. None: the disk
    was not read."""
    hosts: tuple[tuple[Family, tuple[str, ...]], ...] = ()
    """The hosts that families are known to reach."""
    scripts: tuple[tuple[str, str], ...] = ()
    """The files of the workspace that the command runs, with a digest of each."""
    repository: str | None = None
    """The `.git` directory that the workspace shares with the other worktrees of its repository;
    None: not known."""
    shows_credentials: bool = False
    """git's configuration there holds a password or a token, which `git remote -v` shows."""
    strays: tuple[str, ...] = ()
    """Paths of the workspace that a link leads out of the workspace, or to a secret."""

    def meaning_of(self, family: Family) -> str | None:
        """Return the digest of a family's meaning, or None if it cannot be determined."""
        found = dict(self.meanings or ())
        return found.get(family)

    def hosts_of(self, family: Family) -> tuple[str, ...]:
        """Return the hosts that a family is known to reach."""
        return dict(self.hosts).get(family, ())

    def every_host(self) -> tuple[str, ...]:
        """Return the hosts of all parts of the command, each once."""
        return tuple(dict.fromkeys(host for _, hosts in self.hosts for host in hosts))


NOWHERE: Final = CommandPlace()
"""A place about which nothing is known, where every path in a command counts as dangerous."""


# --- request


class PathValue(WithNotes, frozen=True):
    """A string that names a file or directory."""

    notes: ClassVar[frozenset[str]] = frozenset({"link"})

    text: str
    """The path with all links followed, as text."""
    path: RealPath
    link: RealPath | None = None
    """The location of the path itself, if its last name is a link."""


class UrlValue(Struct, frozen=True):
    """A string that names a URL or a git remote."""

    text: str
    """The URL in its canonical spelling; of a git remote its name as it came."""
    domains: tuple[str, ...]
    """Every `host` or `host/path` that it leads to, never empty. A git remote may have several
    URLs, and all of them must match. A text that is no URL stands here unchanged and matches only
    itself."""
    ordinary: bool = True
    """Whether every URL uses a transport (http, https, ssh, git) that `*` may stand for. For any
    other one, git runs whatever helper is installed under its name."""


class TextValue(Struct, frozen=True):
    """A string without a resource on disk or network: an identifier, an address, a text."""

    text: str
    """Names that ignore case in lower case, everything else as it came."""


class SqlValue(WithNotes, frozen=True):
    """A text of SQL statements, read by a parser."""

    notes: ClassVar[frozenset[str]] = frozenset({"reason"})

    text: str
    effect: SqlEffect
    """The gravest effect of its statements."""
    reason: str = ""
    """The reason why the statement does more than read, or empty if it only reads."""


Value: TypeAlias = PathValue | UrlValue | SqlValue | TextValue
"""One string of an argument, interpreted by the argument's first resource role."""


_PLACE: Final = lazy(
    r"[/~$]|\.{1,2}(?:[/\\]|\Z)|\\\\|[A-Za-z]:[/\\]|%[A-Za-z_]+%|(?:file|https?|ftp|data|jar):\S"
    r"|.*(?:://|[/\\]\.\.(?:[/\\]|\Z)|%2[Ff]|%5[Cc]|\x00)",
    re.IGNORECASE | re.DOTALL,
)
"""Text that a server may open: a path of any system, its own way of naming one, or a URL."""


def may_be_a_place(value: Value) -> bool:
    """Return whether a text that a server takes for a name looks like a path or a URL."""
    if not isinstance(value, TextValue):
        return True
    return _PLACE.match(value.text.strip()) is not None


class ArgumentFact(Struct, frozen=True):
    """One annotated argument, whether or not the call has it."""

    name: str
    roles: tuple[ArgumentRole, ...]
    values: tuple[Value, ...]
    """The argument's strings, in order; empty if the call lacks it or it holds no string."""


QuestionKind: TypeAlias = Literal["form", "url", "sampling"]
"""The kind of a server's question: a form, a page to open, a text of the agent's model."""


class ServerQuestion(Struct, frozen=True, kw_only=True):
    """A question of a server's own, as far as the policy looks at it."""

    kind: QuestionKind
    asks_for: str = ""
    """The credential that a field asks for, as the field is named, or empty if none does."""
    host: str = ""
    """The host of the page that the user is to open, in canonical spelling; empty: no plain https
    URL."""
    tokens: int = 0
    """The most tokens that the model is to answer with."""
    with_tools: bool = False
    """Whether the model is handed tools."""


class AccessRequest(Struct, frozen=True, kw_only=True):
    """The request to the policy: one operation, and the resources that its arguments name."""

    passing: ClassVar[frozenset[str]] = frozenset({"targets"})
    """The fields that change by themselves, such as a day of the week; see `lasting`."""

    server: str
    """The server's name in policy and annotations."""
    tool: str
    annotated: bool
    has_arguments: bool
    """Whether the call has any argument."""
    undescribed: tuple[str, ...] = ()
    """The arguments of the call that the annotation of its tool lacks. `annotated` is then false.
    """
    arguments: tuple[ArgumentFact, ...]
    """In annotation order, which decides the order of roles and so which of two equal answers wins.
    """
    repository: RealPath | None = None
    """The root of the git repository that the call works in, or None if the server is no git
    server."""
    effect: ToolEffect | None = None
    """The operator's word on what the tool does, or None if there is no word."""
    method: Method = TOOL_CALL
    question: ServerQuestion | None = None
    """The server's question to the user, if the operation is one."""
    targets: tuple[Target, ...] = ()
    """The values with their origins, where the policy asks for them. A result that comes while the
    call waits may name more."""


def sql_of(request: AccessRequest) -> SqlValue | None:
    """Return the gravest SQL text of a call, or None if it has none."""
    found = [v for fact in request.arguments for v in fact.values if isinstance(v, SqlValue)]
    return max(found, key=lambda value: SQL_EFFECTS.index(value.effect), default=None)


def effect_word(request: AccessRequest) -> str:
    """Return the effect of a call for reviewers: of its SQL, or of its tool.

    It is empty if not known.
    """
    sql = sql_of(request)
    if sql is not None:
        return "destroys" if sql.effect == "runs" else sql.effect
    return request.effect or ""


class FoundSecret(Struct, frozen=True):
    """A secret in what would be sent to a server. The secret itself stands nowhere."""

    argument: str
    """The name of the argument, made visible."""
    kind: str
    """In a few words: `private key`, `key of a provider`."""


class Facts(Struct, frozen=True, kw_only=True):
    """All facts about a call before it is judged."""

    passing: ClassVar[frozenset[str]] = frozenset({"hints"})
    """As in `AccessRequest`. An approval is bound to the tool's definition, which has the hints."""

    request: AccessRequest
    arguments: Arguments
    """The arguments as they would be sent: paths normalised and absolute, all others as they came.
    """
    repository: RealPath | None = None
    """The directory that all worktrees of the git repository share, for calls of a git server."""
    branch: str | None = None
    """The checked-out branch of that repository, or None if it is not known."""
    head: str | None = None
    """The commit of that branch, where the call may push it, or None if it is not known."""
    pushes: bool = False
    """Whether the call sends to a git remote. The repository must not change meanwhile."""
    context: tuple[tuple[str, str], ...] = ()
    """Additional facts for a reviewer, such as `("Working directory", "/srv/repo")`."""
    hints: Mapping[str, Json] | None = None
    """The server's own `annotations` of the tool: untrusted."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, where the operator declared one."""
    place: CommandPlace = NOWHERE
    """The place where that command runs."""
    secrets: tuple[FoundSecret, ...] = ()
    """The secrets in the arguments, where the operator wants to be asked about them."""
    client_asks: bool = False
    """Whether the agent's client is about to ask its user about the call, so that somebody of ours
    has to approve it in place of that user."""
    acts_by_itself: str = ""
    """The path of the workspace that the call would change and on which the user's editor, shell,
    git or agent acts by itself, or empty if there is none."""


class Unresolvable(Struct, frozen=True, kw_only=True):
    """Arguments that cannot be turned into facts. The call is denied on this ground."""

    ground: Ground


Gathered: TypeAlias = Facts | Unresolvable
"""The result of gathering facts."""


def lasting(facts: Facts) -> Facts:
    """Return facts without those that change by themselves while a call waits for its answer.

    A question is made of these, so no reviewer's answer rests on the others. The policy's answer
    may: it is asked again with the facts of the moment, and has to answer the same.

        lasting(Facts(hints={"readOnlyHint": True}, …)) == Facts(hints=None, …)
    """
    request = replace(facts.request, **_passing(type(facts.request)))
    return replace(facts, request=request, **_passing(type(facts)))


@cache
def _passing(kind: type[AccessRequest | Facts]) -> Mapping[str, object]:
    return {one.name: one.default for one in structs.fields(kind) if one.name in kind.passing}

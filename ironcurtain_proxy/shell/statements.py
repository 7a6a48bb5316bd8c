"""A shell text as commands, from the grammar's tree.

Between the parts that are read there may only be blanks. So a text that the grammar skips, and
bash would not, is found.

The grammar (tree-sitter's, of bash) says where things are; `words` and `statements`
hold that against the text. A part that the grammar and bash could understand differently makes the
command unreadable, and so do things whose effect cannot be read off a text: functions, `eval` of
what is not known, arithmetic with names, unusual expansions.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ironcurtain_proxy.model.request import (
    Assignment,
    ParsedCommand,
    Redirection,
    SimpleCommand,
    Word,
)
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.literal_text import lifted, unread
from ironcurtain_proxy.shell.words import (
    BLANK,
    C_FOR,
    WORD_KINDS,
    TextReading,
    counted,
    read_test_word,
    read_word,
    told_by,
)

if TYPE_CHECKING:
    from tree_sitter import Language, Node


_SPACE: Final = re.compile(rb"(?:(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*)?")
_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS: Final = re.compile(rb"[0-9]+")
_NAMED: Final = re.compile(rb"\$([A-Za-z_][A-Za-z0-9_]*)")
_NO_CONTINUATION: Final = re.compile(rb"[ \t\n]*")
_DELIMITER: Final = re.compile(rb"""\w+|'\w+'|"\w+\"|\\\w+""")
_LIVE: Final = re.compile(rb"[`\\]|\$[^A-Za-z_\s]")
"""Text that a here-document with an unquoted delimiter may not contain."""
_TOKENS: Final = frozenset(
    {";", "&", "\n", "&&", "||", "|", "|&", "!", "{", "}", "(", ")", "$(", "`", "<(", ">(",
     "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "in",}
)  # fmt: skip

_CONTAINERS: Final = words(
    "program list pipeline negated_command subshell compound_statement if_statement elif_clause "
    "else_clause while_statement for_statement do_group command_substitution process_substitution"
)

_RESERVED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "in", "case",
     "esac", "select", "function", "coproc", "{", "}", "!", "[[", "]]", "((",}
)  # fmt: skip

_REDIRECTIONS: Final = frozenset({"<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<&-", ">&-"})
_HEREDOC: Final = frozenset({"<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end"})


class _CommandParts:
    """The parts of a simple command while it is read."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.assignments: list[Assignment] = []
        self.redirections: list[Redirection] = []

    def command(self) -> SimpleCommand:
        return SimpleCommand(
            words=tuple(self.words),
            assignments=tuple(self.assignments),
            redirections=tuple(self.redirections),
        )


def read_statements(reading: TextReading, root: "Node") -> None:
    """Put all simple commands of a tree into the reading, the outer ones first."""
    around = reading.source[: root.start_byte] + reading.source[root.end_byte :]
    reading.require(_SPACE, around, "something is left over")
    reading.pending.append(root)
    at = 0
    # Not a recursion: texts decide how deep a tree is. A list, and every part is read once.
    while at < len(reading.pending):
        node = reading.pending[at]
        at += 1
        if node.type in _CONTAINERS:
            _container(reading, node)
        elif node.type in _STATEMENTS:
            _STATEMENTS[node.type](reading, node)
        elif node.is_named and node.child_count > 0:
            # Not understood; the commands in it are still worth knowing, to deny them.
            if node.type not in _EXPRESSIONS:
                reading.refuse(f"a {node.type.replace('_', ' ')} is not understood")
            reading.pending.extend(node.children)


_EXPRESSIONS: Final = WORD_KINDS | {"subscript", "binary_expression", "unary_expression"}
"""Parts of words that were already compared with the text."""


def _container(reading: TextReading, node: "Node") -> None:
    raw = reading.text_of(node)
    names = counted(raw, reading.source) if raw.startswith(b"((") else ()
    if names is None:
        reading.refuse("arithmetic is not understood")
    elif raw.startswith(b"((") and raw.endswith(b"))") and raw.count(b"))") == 1:
        reading.count(node, names)
        return
    _check_gaps(reading, node.children, _SPACE, node)
    if node.type == "compound_statement" and not _is_group(reading, node):
        reading.refuse("a group is not understood")
    if node.type == "for_statement":
        _for_head(reading, node)
    for child in node.children:
        _part(reading, node, child)


def _part(reading: TextReading, node: "Node", child: "Node") -> None:
    """Read one part of a container: a statement, a comment, a token."""
    if child.type == "comment":
        _comment(reading, child)
    elif child.type in _CONTAINERS or child.type in _STATEMENTS:
        reading.pending.append(child)
    elif child.type == "file_redirect":  # `$(< file)`
        _sequence(reading, [child])
    elif not child.is_named:
        if child.type not in _TOKENS or reading.text_of(child) != child.type.encode():
            reading.refuse("it is not understood as a shell command")
        reading.has_background |= child.type == "&"
    elif node.type != "for_statement":
        reading.refuse(f"a {child.type.replace('_', ' ')} is not understood")
        reading.pending.append(child)


def _is_group(reading: TextReading, node: "Node") -> bool:
    """Return whether a node is a group. `{` and `}` are words unless a blank and a `;` follow."""
    inner = reading.text_of(node)[1:-1]
    return inner[:1].isspace() and inner.rstrip(b" \t")[-1:] in {b";", b"&", b"\n"}


def _comment(reading: TextReading, node: "Node") -> None:
    """Read a comment, which begins after a blank and goes to the end of its line."""
    before = reading.source[max(node.start_byte - 1, 0) : node.start_byte]
    after = reading.source[node.end_byte : node.end_byte + 1]
    whole = before in {b"", b" ", b"\t", b"\n"} and after in {b"", b"\n"}
    if not whole or b"\n" in reading.text_of(node):
        reading.refuse("a comment is not understood")


def _for_head(reading: TextReading, node: "Node") -> None:
    """Read `for name in words`: the name is assigned."""
    previous: Node | None = None
    name = ""
    values: list[Word] = []
    for child in node.children:
        if child.type == "variable_name":
            name = _name(reading, child)
        elif child.type in WORD_KINDS:
            values.append(read_word(reading, child))
            gap = reading.source[previous.end_byte : child.start_byte] if previous else b" "
            reading.require(BLANK, gap or b"-", "words are not separated by blanks")
        elif child.is_named and child.type not in {"do_group", "comment", "compound_statement"}:
            reading.refuse("a loop is not understood")
        previous = child
    named = frozenset[str]().union(*(word.variables for word in values))
    told = tuple([text for word in values for text in told_by(word)])
    value = Word(None, variables=named if values else frozenset({"@"}), expansions=told)
    reading.add(node, SimpleCommand(assignments=(Assignment(name, value),)), tuple(values))


def _counting(reading: TextReading, node: "Node") -> None:
    """Read `for ((i=0; i<3; i++)); do …; done`, whose head only counts."""
    body = node.children[-1]
    head = C_FOR.fullmatch(reading.source[node.start_byte : body.start_byte])
    names = None if head is None else counted(head[1], reading.source)
    if body.type != "do_group" or names is None:
        reading.refuse("a loop is not understood")
    reading.count(node, names or ())
    reading.pending.append(body)


def _command(reading: TextReading, node: "Node") -> None:
    _check_gaps(reading, node.children, BLANK, node)
    _sequence(reading, node.children)


def _redirected(reading: TextReading, node: "Node") -> None:
    """Read a statement with redirections; words after their targets belong to the statement."""
    _check_gaps(reading, node.children, _SPACE, node)
    first, *others = node.children
    # To the grammar the whole of `a && b <<E` is redirected, to a shell `b` alone.
    while first.type in _ENDS_IN_A_COMMAND and first.children[-1].type in _TAKES_REDIRECTIONS:
        _check_gaps(reading, first.children, _SPACE, first)
        for child in first.children[:-1]:
            _part(reading, first, child)
        first = first.children[-1]
    if first.type == "command":
        _check_gaps(reading, first.children, BLANK, first)
        _sequence(reading, [*first.children, *others])
        return
    if first.type in _CONTAINERS or first.type in _STATEMENTS:
        reading.pending.append(first)
    else:
        others = [first, *others]
    if _sequence(reading, others):
        reading.refuse("words follow a redirection")


_ENDS_IN_A_COMMAND: Final = frozenset({"list", "pipeline", "negated_command"})
_TAKES_REDIRECTIONS: Final = _ENDS_IN_A_COMMAND | {"command"}


def _sequence(reading: TextReading, nodes: "Sequence[Node]") -> bool:
    """Read the parts of a simple command. Returns whether it has words."""
    parts = _CommandParts()
    previous: Node | None = None
    for node in nodes:
        if previous is not None:
            _check_separation(reading, previous, node)
        _PARTS.get(node.type, _word_part)(reading, node, parts)
        previous = node
    if nodes and parts.words:
        _check_reserved(reading, nodes, parts)
    if nodes:
        reading.add(nodes[0], parts.command())
    return bool(parts.words)


def _check_separation(reading: TextReading, previous: "Node", node: "Node") -> None:
    """Check that words have blanks between them. A redirection without a descriptor needs none."""
    gap = reading.source[previous.end_byte : node.start_byte]
    if node.type != "heredoc_redirect" or gap:
        reading.require(BLANK, gap, "words are separated by a line's end")
    if gap:
        return
    operator = node.type.endswith("_redirect") and node.children[0].type != "file_descriptor"
    # `{name}>file` assigns a descriptor to a variable.
    before = reading.source[previous.end_byte - 1 : previous.end_byte]
    if not operator or before == b"}" or before.isdigit():
        reading.refuse("words are not separated")


def _check_reserved(reading: TextReading, nodes: "Sequence[Node]", parts: _CommandParts) -> None:
    name = next((n for n in nodes if n.type == "command_name"), None)
    if name is not None and reading.text_of(name).decode(errors="replace") in _RESERVED:
        reading.refuse(f"{parts.words[0].text} stands where a program should")


def _word_part(reading: TextReading, node: "Node", parts: _CommandParts) -> None:
    if node.type in WORD_KINDS:
        parts.words.append(read_word(reading, node))
    else:
        reading.refuse(f"a {node.type.replace('_', ' ')} is not understood")
        parts.words.append(Word(None, splits=True))
        reading.pending.append(node)


def _name_part(reading: TextReading, node: "Node", parts: _CommandParts) -> None:
    """Read the program's name, a node around a word."""
    inner = node.children[0] if node.child_count == 1 else node
    if (inner.start_byte, inner.end_byte) != (node.start_byte, node.end_byte):
        reading.refuse("a program's name is not understood")
    _word_part(reading, inner, parts)


def _name(reading: TextReading, node: "Node") -> str:
    reading.require(_NAME, reading.text_of(node), "a name is not understood")
    return reading.text_of(node).decode(errors="replace")


def _assignment_part(reading: TextReading, node: "Node", parts: _CommandParts) -> None:
    """Read `name=value`, or an array of words. Subscripts and `+=` are refused."""
    _check_gaps(reading, node.children, re.compile(rb""), node)
    children = node.children
    value = children[2] if len(children) == 3 else None  # noqa: PLR2004
    plain = len(children) >= 2 and children[0].type == "variable_name" and children[1].type == "="  # noqa: PLR2004
    if plain and not parts.words and value is not None and value.type == "array":
        parts.assignments.append(Assignment(_name(reading, children[0]), _array(reading, value)))
        return
    if not plain or parts.words or (value is not None and value.type not in WORD_KINDS):
        reading.refuse("an assignment is not understood")
        reading.pending.extend(children)
        parts.assignments.append(Assignment("", Word(None)))
        return
    name = _name(reading, children[0])
    word = Word("") if value is None else read_word(reading, value)
    parts.assignments.append(Assignment(name, word))


def _array(reading: TextReading, node: "Node") -> Word:
    """Read `(a "$b" c)`, whose words are known when the array is used."""
    _check_gaps(reading, node.children, _SPACE, node)
    found = frozenset[str]()
    told: list[str] = []
    for previous, child in itertools.pairwise(node.children[:-1]):
        word = _target(reading, child)
        # `[$x]=a` gives one of them a place, and evaluates it.
        is_separate = previous.type == "(" or previous.end_byte < child.start_byte
        if not is_separate or reading.text_of(child).startswith(b"["):
            reading.refuse("an array is not understood")
        found |= word.variables
        told += told_by(word)
    return Word(None, variables=found, expansions=tuple(told))


def _file_part(reading: TextReading, node: "Node", parts: _CommandParts) -> None:
    """Read `2> file word …`. The grammar takes the words for further targets; they are words."""
    _check_gaps(reading, node.children, BLANK, node)
    children = [child for child in node.children if child.type != "file_descriptor"]
    if node.children[0].type == "file_descriptor":
        # The grammar takes `-2` of `head -2>x` for one; it is a word.
        reading.require(
            _DIGITS, reading.text_of(node.children[0]), "a redirection is not understood"
        )
    operator = children[0].type
    if operator not in _REDIRECTIONS or reading.text_of(children[0]) != operator.encode():
        reading.refuse("a redirection is not understood")
    targets = [_target(reading, child) for child in children[1:]]
    for previous, child in itertools.pairwise(children[1:]):
        _check_separation(reading, previous, child)
    if operator.endswith("-"):
        targets.insert(0, Word(""))
    if not targets:
        reading.refuse("a redirection is not understood")
    parts.redirections.append(Redirection(operator, targets[0] if targets else Word(None)))
    parts.words += targets[1:]


def _target(reading: TextReading, node: "Node") -> Word:
    if node.type in WORD_KINDS:
        return read_word(reading, node)
    reading.refuse("a redirection is not understood")
    reading.pending.append(node)
    return Word(None)


def _string_part(reading: TextReading, node: "Node", parts: _CommandParts) -> None:
    """Read `<<< word`."""
    _check_gaps(reading, node.children, BLANK, node)
    _, *words = node.children
    if [word.type in WORD_KINDS for word in words] != [True]:
        reading.refuse("a here-string is not understood")
    parts.redirections += [Redirection("<<<", _target(reading, word)) for word in words]


def _heredoc_part(reading: TextReading, node: "Node", parts: _CommandParts) -> None:
    """Read `<<WORD`. The end of its text is looked up in the source."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    if start is None or node.children[0].type not in {"<<", "<<-"}:
        reading.refuse("a here-document is not understood")
        reading.pending.extend(node.children)
        return
    raw = reading.text_of(start)
    reading.require(_DELIMITER, raw, "the delimiter of a here-document is not understood")
    line = reading.source.count(b"\n", 0, start.start_byte)
    if line in reading.heredoc_lines:
        reading.refuse("two here-documents begin on one line")
    reading.heredoc_lines.add(line)
    for child in node.children:
        if child.type == "file_redirect":
            _file_part(reading, child, parts)
        elif child.type not in _HEREDOC:
            reading.refuse("something follows a here-document on its line")
            reading.pending.append(child)
    for before, child in itertools.pairwise(node.children):  # a dropped `-` before `2>&1`
        gap = reading.source[before.end_byte : child.start_byte]
        reading.require(_NO_CONTINUATION, gap, "something is left over")
    body = _heredoc_body(reading, node, start, strip=node.children[0].type == "<<-")
    literal = raw[:1] in {b"'", b'"', b"\\"}
    if not literal and _LIVE.search(body):
        reading.refuse("a here-document is not literal")
    named = () if literal else (name.decode() for name in _NAMED.findall(body))
    text = Word(body.decode(errors="replace"), variables=frozenset(named))
    parts.redirections.append(Redirection("<<", text))


def _heredoc_body(reading: TextReading, node: "Node", start: "Node", *, strip: bool) -> bytes:
    """Return the lines of a here-document up to the delimiter."""
    delimiter = reading.text_of(start).strip(b"'\"\\")
    first = reading.source.find(b"\n", start.end_byte) + 1
    at = first
    for line in reading.source[first:].split(b"\n") if first else ():
        if (line.lstrip(b"\t") if strip else line) == delimiter:
            end = next((c for c in node.children if c.type == "heredoc_end"), None)
            if end is None or end.end_byte != at + len(line) or end.end_byte != node.end_byte:
                break
            return reading.source[first:at]
        at += len(line) + 1
    reading.refuse("the end of a here-document is not found")
    return reading.source[first:]


def _declaration(reading: TextReading, node: "Node") -> None:
    """Read `export`, `declare`, `local`, `readonly`, `typeset` or `unset` as a program."""
    words = [Word(reading.text_of(node.children[0]).decode(errors="replace"))]
    words += [_declared(reading, one) for one in node.children[1:]]
    reading.add(node, SimpleCommand(words=tuple(words)))


def _declared(reading: TextReading, node: "Node") -> Word:
    """Return the known part of a word of a declaration: `NAME=*`, or the word."""
    if node.type == "variable_assignment":
        parts = _CommandParts()
        _assignment_part(reading, node, parts)
        (one,) = parts.assignments
        named = tuple([f"{one.name}={text}" for text in told_by(one.value)])
        variables = one.value.variables
        return Word(None, f"{one.name}=*", splits=True, variables=variables, expansions=named)
    text = (read_word(reading, node).text or "") if node.type in WORD_KINDS else ""
    return Word(None, "" if "*" in text else text, splits=True)


def _test(reading: TextReading, node: "Node") -> None:
    """Read `[ … ]` and `[[ … ]]` as a program with arguments."""
    words: list[Word] = []
    stack = [node]
    position = node.start_byte
    while stack:
        part = stack.pop()
        if (part.type.endswith("_expression") and part.type != "brace_expression") or part is node:
            stack.extend(reversed(part.children))
            continue
        if part.start_byte < position:
            reading.refuse("a test is not understood")
        reading.require(BLANK, reading.source[position : part.start_byte], "a test has a gap")
        position = part.end_byte
        words.append(read_test_word(reading, part))
    single = bool(words) and words[0].text == "["
    if single and any(word.text in {"<", ">", "(", ")", "&&", "||"} for word in words):
        reading.refuse("a test is not understood")
    reading.add(node, SimpleCommand(words=tuple(words)))


def _alone(reading: TextReading, node: "Node") -> None:
    """Read assignments without a command."""
    nodes = node.children if node.type == "variable_assignments" else [node]
    _check_gaps(reading, nodes, BLANK, node)
    _sequence(reading, nodes)


def _check_gaps(
    reading: TextReading, children: "Iterable[Node]", pattern: "re.Pattern[bytes]", node: "Node"
) -> None:
    """Check that the text between and around the parts matches the pattern."""
    position = node.start_byte
    for child in children:
        if child.start_byte < position:
            reading.refuse("parts overlap")
        gap = reading.source[position : child.start_byte]
        reading.require(pattern, gap, "something is left over")
        position = child.end_byte
    reading.require(pattern, reading.source[position : node.end_byte], "something is left over")


_PARTS: Final[Mapping[str, Callable[[TextReading, "Node", _CommandParts], None]]] = {
    "command_name": _name_part,
    "variable_assignment": _assignment_part,
    "file_redirect": _file_part,
    "herestring_redirect": _string_part,
    "heredoc_redirect": _heredoc_part,
}

_STATEMENTS: Final[Mapping[str, Callable[[TextReading, "Node"], None]]] = {
    "command": _command,
    "redirected_statement": _redirected,
    "declaration_command": _declaration,
    "unset_command": _declaration,
    "test_command": _test,
    "c_style_for_statement": _counting,
    "variable_assignment": _alone,
    "variable_assignments": _alone,
}


# --- parse


MAX_LENGTH: Final = 8192
"""The most bytes: the grammar's error recovery takes quadratic time, a quarter of a second here."""

MAX_DEPTH: Final = 4
"""The most levels of texts in texts, such as `sh -c "sh -c ls"`."""
_CONTINUED: Final = re.compile(r"\A(?:[ \t\n]*\\\n)+")
_TIMED: Final = re.compile(r"\A[ \t\n]*time[ \t]+(?:-p[ \t]+)?(?=[({])")
"""`time` before a group, which the grammar does not know. It changes nothing of what runs."""

TEXT_RUNNERS: Final = words("sh bash dash zsh ksh ash mksh eval watch fzf su script trap")
"""Programs that run the text of an argument. The words after them are parsed as commands, too."""


def parse_command(text: str, *, depth: int = MAX_DEPTH) -> ParsedCommand:
    """Return the commands that a shell would run for a text. Never raises.

    A text that is empty, or only a comment, runs nothing and is readable.
    """
    # A shell joins lines that end in a backslash first, so at the start they have no meaning.
    text = _TIMED.sub("", _CONTINUED.sub("", text, count=1), count=1)
    parsed = _parsed(text, depth)
    without = lifted(text) if parsed.unreadable is not None and depth > 0 else None
    if without is None:
        return parsed
    other = _parsed(without.text, depth)
    commands = without.given_back(other.commands)
    return parsed if other.unreadable or commands is None else replace(other, commands=commands)


def _parsed(text: str, depth: int) -> ParsedCommand:
    reason = _unfit(text)
    if reason is None and depth <= 0:
        reason = "commands are nested too deeply"
    if reason is not None:
        return unread(text, reason)
    from tree_sitter import Parser

    source = text.encode()
    root = Parser(_language()).parse(source).root_node
    reading = TextReading(source)
    if root.has_error:
        reading.refuse("it is not understood as a shell command")
    read_statements(reading, root)
    found = ParsedCommand() if reading.unreadable is None else unread(text, reading.unreadable)
    commands = tuple([_with_texts(command, depth) for command in reading.commands])
    return replace(found, commands=commands, has_background=reading.has_background)


def leaves_jobs(text: str) -> bool:
    """Return whether a text starts jobs in the background and does not wait for their end.

    A text that cannot be read leaves one if it has a `&` that is no `&&`.
    """
    if "&" not in text.replace("&&", ""):
        return False
    if _unfit(text) is not None:
        return True
    from tree_sitter import Parser

    pending, ends = [Parser(_language()).parse(text.encode()).root_node], False
    starts = False
    while pending:
        node = pending.pop()
        starts = starts or (node.type == "&" and not node.is_named)
        ends = ends or (node.type == "command_name" and node.text in {b"wait", b"kill", b"fg"})
        pending += node.children
    return starts and not ends


@functools.cache
def _language() -> "Language":
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _unfit(text: str) -> str | None:
    """Return why a text is not parsed at all."""
    # A character is at least a byte: a huge text is not encoded to find out.
    if len(text) > MAX_LENGTH or len(text.encode(errors="replace")) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} bytes"
    if text.count("&&") > 128:  # noqa: PLR2004  levels of a tree, searched in cubic time
        return "it has && more than 128 times"
    for character in set(text):
        if character in "\n\t" or (character.isascii() and character.isprintable()):
            continue
        # Shells differ about what separates words: only blanks that all agree on.
        if unicodedata.category(character) in {"Cc", "Cs", "Zs", "Zl", "Zp", "Cn"}:
            return "it has control characters or unusual blanks"
    return None


def _with_texts(command: SimpleCommand, depth: int) -> SimpleCommand:
    """Return the command, with the texts for a shell in it parsed as commands."""
    names = [(word.text or "").rpartition("/")[2] for word in command.words]
    at = next((n for n, name in enumerate(names, 1) if name in TEXT_RUNNERS), None)
    if at is None:
        return command
    texts = [_with_text(word, depth) for word in command.words[at:]]
    return replace(command, words=(*command.words[:at], *texts))


def _with_text(word: Word, depth: int) -> Word:
    if word.text is None:
        return word
    name, equals, value = word.text.partition("=")
    text = value if equals and name.startswith("--") else word.text
    return replace(word, command=parse_command(text, depth=depth - 1))

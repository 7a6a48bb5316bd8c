"""The words of a shell command, from the grammar's tree.

The tree is not trusted: the text of every part is compared with what bash would read, and a
difference makes the command unreadable. A word makes it unreadable, too, if bash and the grammar
could see its end at different places.

Arithmetic that runs nothing: of numbers, and of variables that only hold numbers.

A shell evaluates a name in arithmetic as an expression: with `i='a[$(id)]'`, `((i++))` runs `id`.
So a name counts as a number only where its text gives it nothing else: its first mention is
`i=0`, and every other one is such an assignment, or stands in arithmetic of numbers. A text with a
command that can set a variable by a name which is not written here (`read $x`) has no such names.
"""

import re
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.request import Assignment, Piece, SimpleCommand, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.literal_text import Located, defines, with_constants

if TYPE_CHECKING:
    from tree_sitter import Node


# --- counters


_COUNTED: Final = re.compile(rb"\(\(((?:[ \t0-9A-Za-z_+*/%<>=!&|;-]|\$(?=[A-Za-z_]))*)\)\)")
_NAME: Final = re.compile(rb"[A-Za-z_]\w*")
_NUMBER: Final = re.compile(rb"=[0-9]+(?![^\s;&|)])")
_SETS: Final = re.compile(
    rb"(?<![\w./-])(?:read|mapfile|readarray|printf|getopts|declare|typeset|local|export|readonly"
    rb"|let|eval|source|unset|wait|set|exec|trap|coproc|select|\.)(?![\w./-])"
)
"""Programs that set a variable by a name that need not be written."""
_NAMES_WHAT_IT_SETS: Final = re.compile(
    rb"(?<![\w./-])(?:read(?:[ \t]+-[rsa]+)*(?:[ \t]+[A-Za-z_]\w*)*|wait"
    rb"|set(?:[ \t]+(?:-[eux]*o[ \t]+pipefail|-[eux]+))+"
    rb"|export(?:[ \t]+[A-Za-z_]\w*(?:=[\w./:@%+,-]*)?)+)[ \t]*(?=[;\n|&<)]|\Z)"
    rb"|(?<![\w./-])printf[ \t]+(?=[\w%]|'[^-'\\]|\"[^-\"\\$`])"
)
"""Commands of these that set variables only whose names stand there, or none."""
_QUOTES: Final = re.compile(rb"\\\n|['\"\\]")
_BEFORE: Final = re.compile(rb"(?:[^'\"\\(){}&|<`]*[;\n])?[ \t]*")
"""Commands in a row, none of which decides whether the next one runs."""
_DECIDES: Final = re.compile(rb"\b(?:if|while|until|for|case|select|exit|return|break|continue)\b")
_ALONE: Final = re.compile(rb"=[0-9]+[ \t]*(?:[;\n]|&&|\Z)")
_LOOP: Final = re.compile(rb"(?:[^'\"\\(){}&|<`]*[;\n])?[ \t]*for[ \t]*\(\([ \t]*")
_END: Final = frozenset(b" \t\n;|&)")
C_FOR: Final = re.compile(rb"for[ \t]*(\(\([^()]*\)\))[ \t]*;?\s*\Z")


def counted(arithmetic: bytes, source: bytes) -> tuple[str, ...] | None:
    """Return the names in arithmetic of numbers, which it may change, or None if it is no such.

    Args:
        arithmetic: begins with `((`; what follows its `))` does not count.
        source: the text that it stands in.
    """
    found = _COUNTED.match(arithmetic)
    if found is None:
        return None
    names = set(_NAME.findall(found[1]))
    if names and not names <= numbers(source):
        return None
    return tuple([name.decode() for name in sorted(names)])


def numbers(source: bytes) -> frozenset[bytes]:
    """Return the names that are only given numbers in a text."""
    others = _NAMES_WHAT_IT_SETS.sub(b" ", source)
    if b"$'" in source or _SETS.search(_QUOTES.sub(b"", others)):
        return frozenset()
    spans = [
        (one.start(1), one.end(1), {*_NAME.findall(one[1])}) for one in _COUNTED.finditer(source)
    ]
    known = frozenset[bytes]().union(*[names for _, _, names in spans])
    while True:
        sure = [(start, end) for start, end, names in spans if names <= known]
        left = frozenset([name for name in known if _is_number(name, source, sure)])
        if left == known:
            return known
        known = left


def _surely_set(before: bytes, after: bytes) -> bool:
    """Return whether a variable gets its number in any case.

    A shell that goes on from call to call may hold anything under its name.
    """
    if _LOOP.fullmatch(before):
        return not _DECIDES.search(before.rstrip(b"( \t").removesuffix(b"for"))
    is_alone = _ALONE.match(after) is not None
    return is_alone and _BEFORE.fullmatch(before) is not None and not _DECIDES.search(before)


def _is_number(name: bytes, source: bytes, sure: list[tuple[int, int]]) -> bool:
    mentions = re.compile(rb"(?<![\w$])(?<!\$\{)" + name + rb"(?!\w)")
    first = True
    for one in mentions.finditer(source):
        before, after = source[one.start() - 1 : one.start()], source[one.end() :]
        begins = before in {b"", b" ", b"\t", b"\n", b";", b"("}
        is_number = begins and _NUMBER.match(after) is not None
        # `i=$((i+1))`, where the arithmetic is of numbers.
        result = one.end() + len(b"=$((")
        ends = [end + len(b"))") for start, end in sure if start == result]
        is_result = (
            begins
            and after.startswith(b"=$((")
            and any(source[end : end + 1] == b"" or source[end] in _END for end in ends)
        )
        is_inside = any(start <= one.start() < end for start, end in sure)
        if not (is_number or is_result or is_inside):
            return False
        if first and not (is_number and _surely_set(source[: one.start()], after)):
            return False
        first = False
    return not first


# --- words


BLANK: Final = re.compile(rb"(?:(?:\\\n)*[ \t](?:[ \t]|\\\n)*)?")
"""Text between the words of one command. A continued line alone joins its two sides."""

_PLAIN: Final = re.compile(rb"""(?:[^|&;()<>\s$`"'\\]|\\[^\n])+""")
_QUOTED: Final = re.compile(rb"""(?:[^"`$\\]|\\.|\$(?=[ "|)/.,:;%}]))*""", re.DOTALL)
_RAW: Final = re.compile(rb"'[^']*'", re.DOTALL)
_ANSI: Final = re.compile(rb"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_VARIABLE: Final = re.compile(rb"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?$#@*!-])")
_NUMERIC: Final = re.compile(rb"\$(?:[?$#!]|\{[?#]\}|\{PIPESTATUS\[[0-9]+\]\})")
"""Expansions whose value is a number, so that no name or option can come out of them."""
_NAMED: Final = re.compile(rb"\$\{?[#!]?([A-Za-z_][A-Za-z0-9_]*|[0-9@*-])")
_DEFAULT: Final = re.compile(rb"\$\{\w+:?[-+]([^}]*)")
_VALUE: Final = re.compile(rb"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
"""The value of a variable, unchanged."""
_EXPANSION: Final = re.compile(
    rb"\$\{(?:#?[A-Za-z_][A-Za-z0-9_]*(?:\[[0-9@*]+\])?|[0-9@*#?]"
    rb"|[A-Za-z_0-9]+(?::?[-+?]|%%?|##?)[A-Za-z0-9_./:*?,@ -]*"
    rb"|[A-Za-z_0-9]+(?::(?: -)?[0-9]+){1,2}"  # a part of it, by numbers
    rb"|[A-Za-z_0-9]+//?[#%]?[A-Za-z0-9_.:*?,@ -]+(?:/[A-Za-z0-9_.:,@ -]*)?"  # something replaced
    rb"|[A-Za-z_0-9]+(?:\^\^?|,,?))\}"  # in capitals, or small letters
)
_ARITHMETIC: Final = re.compile(rb"\$\(\([ 0-9+*/%-]+\)\)")
"""Arithmetic of numbers: a name would be evaluated, and `a[$(id)]` in it would run."""
_TEST_PATTERN: Final = re.compile(rb"[A-Za-z0-9_.*/?^+:=,@%-]+\$?")
_GLOB: Final = re.compile(r"[*?\[]")
_SET: Final = re.compile(r"\[[!^]?\]?(?:(?:\[:\w+:\]|[^\]/]){256}|(?:\[:\w+:\]|[^\]/])*\])")
"""A set in a glob, such as `[abc]`, or what may be the beginning of a long one."""

_ESCAPE: Final = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})"
    r"|U([0-9a-fA-F]{1,8})|(.))",
    re.DOTALL,
)
_ESCAPED: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))

WORD_KINDS: Final = words(
    "word number raw_string string ansi_c_string translated_string concatenation simple_expansion "
    "expansion command_substitution process_substitution arithmetic_expansion brace_expression"
)
"""The kinds of node that are words."""


class TextReading(Struct):
    """The state while one text is read."""

    source: bytes
    found: list[Located] = msgspec.field(default_factory=list)
    """The commands found so far, with their places."""
    unreadable: str | None = None
    pending: "list[Node]" = msgspec.field(default_factory=list)
    """The parts of the tree with commands that are still to be read."""
    heredoc_lines: set[int] = msgspec.field(default_factory=set)
    has_background: bool = False
    """Whether a part of the text runs in the background."""

    @property
    def commands(self) -> tuple[SimpleCommand, ...]:
        """The commands in the order of the text."""
        found = sorted(self.found, key=lambda one: one.start)
        return tuple(with_constants(found))

    def add(self, node: "Node", command: SimpleCommand, values: tuple[Word, ...] = ()) -> None:
        """Add a command that begins with this part of the tree.

        Args:
            node: the command, or the loop that it is the head of.
            command: as it was read.
            values: of the head of a loop: the words that its variable goes through.
        """
        if not _is_certain(node):
            command = replace(command, is_certain=False)
        is_first = _is_certain(node) and _leads(node)
        until = _until(node) if defines(command) else 0
        self.found.append(Located(node.start_byte, command, is_first, values, node.end_byte, until))

    def count(self, node: "Node", names: tuple[str, ...]) -> None:
        """Note that arithmetic may give other numbers to these variables."""
        if names:
            changed = tuple([Assignment(name, Word(None)) for name in names])
            self.add(node, SimpleCommand(assignments=changed))

    def refuse(self, reason: str) -> None:
        """Make the text unreadable; the first reason stays."""
        if self.unreadable is None:
            self.unreadable = reason

    def text_of(self, node: "Node") -> bytes:
        """Return the bytes of a node."""
        return self.source[node.start_byte : node.end_byte]

    def require(self, pattern: "re.Pattern[bytes]", text: bytes, what: str) -> None:
        """Refuse a text that is not wholly of the pattern."""
        if pattern.fullmatch(text) is None:
            self.refuse(what)


_SEQUENCES: Final = frozenset(
    {"program", "list", "command", "redirected_statement", "variable_assignments",
     "variable_assignment", "declaration_command", "unset_command", "test_command"}
)  # fmt: skip


def _is_certain(node: "Node") -> bool:
    """Return whether a command runs once, in the shell itself, unless one before it fails."""
    at: Node | None = node
    below, stands_before = node, False
    while at is not None:
        # Of `cd x && y 2>&1 | z` the grammar makes a pipeline with a list as its first member;
        # to a shell only the last command of the list is in the pipeline.
        leads = at.type == "pipeline" and stands_before and below.id == at.children[0].id
        if at.type not in _SEQUENCES and at.id != node.id and not leads:
            return False
        if at.type == "list":
            if any(child.type == "||" for child in at.children):
                return False
            stands_before = stands_before or below.id != at.children[-1].id
        following = at.next_sibling
        if following is not None and following.type == "&":
            return False
        below, at = at, at.parent
    return True


def _leads(node: "Node") -> bool:
    """Tell whether a command stands first in its list, so that nothing decides whether it runs."""
    at: Node | None = node
    while at is not None and at.parent is not None:
        if at.parent.type == "list" and at.parent.children[0].id != at.id:
            return False
        at = at.parent
    return True


_AROUND: Final = frozenset(
    {"program", "list", "compound_statement", "negated_command", "redirected_statement", "command",
     "variable_assignments", "variable_assignment"}
)  # fmt: skip
"""The parts of a text that run what stands first in them in any case, and in the same shell."""
_WHOLE: Final = words("do_group subshell command_substitution elif_clause else_clause")


def _until(node: "Node") -> int:
    """Return the end of the text that only runs after a command has run in the same shell."""
    below, at = node, node.parent
    while at is not None and node.type != "for_statement":  # a loop over nothing sets nothing
        end = _boundary(below, at)
        if end is not None:
            return end
        below, at = at, at.parent
    return below.end_byte


def _boundary(below: "Node", at: "Node") -> int | None:
    """Return the end of what a part decides on together with what is in it; None: on all of it."""
    following = below.next_sibling
    if following is not None and following.type == "&":
        return below.end_byte
    if at.type == "list" and below.id != at.children[0].id:
        # Behind `a && x=1`, only what `&&` joins is certain to run after it.
        while at.parent is not None and at.parent.type == "list" and _joins(at, at.parent):
            at = at.parent
        return at.end_byte
    if at.type in {"while_statement", "if_statement"}:
        return _branch(below, at)
    if at.type in _WHOLE:
        return at.end_byte
    return None if at.type in _AROUND else below.end_byte


def _joins(left: "Node", parent: "Node") -> bool:
    return left.id == parent.children[0].id and parent.children[1].type == "&&"


def _branch(below: "Node", at: "Node") -> int | None:
    """Return the end of the branch that a part is in, or None if it is in the condition."""
    then = next((one for one in at.children if one.type in {"then", "do_group"}), at)
    if below.start_byte < then.start_byte:
        return None
    clauses = [one.start_byte for one in at.children if one.type in {"elif_clause", "else_clause"}]
    return min([one for one in clauses if one > below.start_byte] or [at.end_byte])


class _Piece(Struct, frozen=True):
    """A part of a word: known text, or None."""

    text: str | None
    quoted: bool
    variable: str | None = None
    """The name of the variable that the part stands for, or None if it is no variable."""
    is_plain: bool = False
    """Whether the part is the value of that variable, unchanged."""
    default: str = ""
    """What stands there if the variable has no value."""


def read_word(reading: TextReading, node: "Node") -> Word:
    """Return the word of a node; what is not understood in it makes the whole text unreadable."""
    pieces = _pieces(reading, node)
    whole = reading.text_of(node)
    if (b"," in whole or b".." in whole) and any(_has_brace(piece) for piece in pieces):
        before = []
        for piece in pieces:
            if _has_brace(piece):
                before.append(_Piece((piece.text or "").partition("{")[0], quoted=False))
                break
            before.append(piece)
        found = _joined([*before, _Piece(None, quoted=False)])
        return replace(found, expansions=_expansions(pieces))
    found = _joined(pieces)
    if any(piece.default or piece.variable == "PWD" for piece in pieces):
        other = "".join([_unknown(one) if one.text is None else one.text for one in pieces])
        found = replace(found, expansions=(other,))
    return found


def _unknown(piece: _Piece) -> str:
    """Return the pattern of a part that is known when it runs; `${PWD%/*}` leads anywhere."""
    if piece.variable == "PWD":
        return "." if piece.is_plain else "/*"
    return piece.default or "*"


def told_by(word: Word) -> tuple[str, ...]:
    """Return the patterns of the words that a word may stand for."""
    return word.expansions or (word.pattern if word.text is None else word.text,)


_MOST: Final = 64
"""Words that braces in one word may stand for. Of more, none is known."""
_INNERMOST: Final = re.compile(r"\{([^{}]*)\}")


def _expansions(pieces: list[_Piece]) -> tuple[str, ...]:
    """Return the patterns of the words that braces stand for; of `{1..3}` a part is not known.

    Which brace belongs to which does not matter here: more words than a shell makes are harmless.
    """
    text = "".join([_unknown(one) if one.text is None else _marked(one) for one in pieces])
    found = [text]
    at = 0
    while at < len(found) <= _MOST:
        inner = _INNERMOST.search(found[at])
        if inner is None:
            at += 1
            continue
        parts = inner[1].split(",")
        made = [found[at][: inner.start()] + one + found[at][inner.end() :] for one in parts]
        is_range = len(parts) == 1 and ".." in inner[1]
        found[at : at + 1] = [f"{found[at][: inner.start()]}*"] if is_range else made
    plain = [one.translate(_UNMARK) for one in found]
    return tuple(plain) if len(found) <= _MOST else ("/*",)


_MARK: Final = str.maketrans("{,}", "\ue000\ue001\ue002")
_UNMARK: Final = str.maketrans("\ue000\ue001\ue002?[", "{,}**")


def _marked(piece: _Piece) -> str:
    """Return the text of a piece; braces and commas in quotes stand for themselves."""
    text = piece.text or ""
    return text.translate(_MARK) if piece.quoted else text


def _has_brace(piece: _Piece) -> bool:
    return piece.text is not None and not piece.quoted and "{" in piece.text


def _joined(pieces: list[_Piece]) -> Word:
    text = ""
    known, splits = True, False
    variables = frozenset(piece.variable for piece in pieces if piece.variable is not None)
    for piece in pieces:
        if piece.text is None:
            text += "*"
        else:
            text += piece.text
        if piece.text is None or (not piece.quoted and _GLOB.search(piece.text)):
            known = False
            splits = splits or not piece.quoted
    if known:
        return Word(text)
    pattern = _SET.sub("*", text).replace("?", "*")
    is_glob = all(piece.text is not None for piece in pieces)
    return Word(
        None, pattern, splits, variables=variables, template=_template(pieces), is_glob=is_glob
    )


def _template(pieces: list[_Piece]) -> tuple[Piece, ...]:
    """Return the parts of a word; empty where one is no plain variable, or is matched to files."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.text is None:
            if not piece.is_plain or piece.variable is None:
                return ()
            found.append(Piece(piece.variable, is_variable=True, splits=not piece.quoted))
        elif not piece.quoted and (_GLOB.search(piece.text) or "~" in piece.text):
            return ()
        else:
            found.append(Piece(piece.text, is_variable=False))
    return tuple(found)


def _pieces(reading: TextReading, node: "Node") -> list[_Piece]:
    raw = reading.text_of(node)
    match node.type:
        case "word" | "number":
            return _plain(reading, raw)
        case "raw_string" | "ansi_c_string":
            return [_Piece(_verbatim(reading, node), quoted=True)]
        case "string":
            return _quoted(reading, node)
        case "concatenation":
            return _concatenated(reading, node)
        case "process_substitution":
            return [_Piece("/dev/fd/", quoted=True), _expanded(reading, node, quoted=True)]
        case _:
            return [_expanded(reading, node, quoted=False)]


def _verbatim(reading: TextReading, node: "Node") -> str:
    """Return the text of `'…'` and `$'…'`."""
    raw = reading.text_of(node)
    ansi = node.type == "ansi_c_string"
    reading.require(_ANSI if ansi else _RAW, raw, "a quotation is not understood")
    text = raw.decode(errors="replace")
    return _unescaped(reading, text[2:-1]) if ansi else text[1:-1]


def _plain(reading: TextReading, raw: bytes) -> list[_Piece]:
    """Return the pieces of an unquoted text; a character after a backslash is quoted."""
    reading.require(_PLAIN, raw, "a word is not understood")
    if raw.startswith(b"#"):
        reading.refuse("a word begins like a comment")
    parts = re.split(r"\\(.)", raw.decode(errors="replace"), flags=re.DOTALL)
    return [_Piece(part, quoted=n % 2 == 1) for n, part in enumerate(parts) if part]


def _concatenated(reading: TextReading, node: "Node") -> list[_Piece]:
    pieces: list[_Piece] = []
    position = node.start_byte
    for child in node.children:
        if child.start_byte != position:
            reading.refuse("a word has a gap")
        position = child.end_byte
        if child.type in WORD_KINDS:
            pieces += _pieces(reading, child)
        elif child.type == "$" and _ends_word(reading, child, node):
            pieces.append(_Piece("$", quoted=True))
        else:  # such as a lone `$` inside
            reading.refuse("a word is not understood")
            pieces.append(_Piece(None, quoted=False))
    if position != node.end_byte:
        reading.refuse("a word has a gap")
    return pieces


def _ends_word(reading: TextReading, dollar: "Node", word: "Node") -> bool:
    """Return whether a `$` is the last character of a word, where a shell takes it as it is."""
    after = reading.source[dollar.end_byte : dollar.end_byte + 1]
    return dollar.end_byte == word.end_byte and after in {b"", b" ", b"\t", b"\n", b";", b"|", b"&"}


def _quoted(reading: TextReading, node: "Node") -> list[_Piece]:
    """Return the pieces of `"…"`.

    Text between expansions comes from the source: the tree drops blanks.
    """
    raw = reading.text_of(node)
    if len(raw) < 2 or raw[:1] != b'"' or raw[-1:] != b'"':  # noqa: PLR2004
        reading.refuse("a quotation is not understood")
        return [_Piece(None, quoted=True)]
    pieces: list[_Piece] = []
    position = node.start_byte + 1
    for child in node.children:
        if child.type in {'"', "string_content", "$"}:
            continue
        pieces.append(_literal(reading, position, child.start_byte))
        pieces.append(_expanded(reading, child, quoted=True))
        position = child.end_byte
    return [*pieces, _literal(reading, position, node.end_byte - 1)]


def _literal(reading: TextReading, start: int, end: int) -> _Piece:
    """Return a part of a double-quoted text without expansions."""
    found = _QUOTED.match(reading.source, start, end + 1)
    raw = reading.source[start:end]
    # The match may not stop before the end, and may look one byte beyond it, at what follows `$`.
    if start > end or found is None or found.end() < end:
        reading.refuse("a quotation is not understood")
    text = re.sub(r"\\(\n|[$`\"\\])", lambda m: m[1].strip("\n"), raw.decode(errors="replace"))
    return _Piece(text, quoted=True)


def _expanded(reading: TextReading, node: "Node", *, quoted: bool) -> _Piece:
    """Return a part whose value is only known when the command runs.

    Commands in it are read later.
    """
    raw = reading.text_of(node)
    _check_expansion(reading, node, raw)
    if node.type != "arithmetic_expansion" and _NUMERIC.fullmatch(raw):
        return _Piece("0", quoted=True)
    if node.type != "arithmetic_expansion" or counted(raw[1:], reading.source) is None:
        reading.pending.append(node)
    named = _NAMED.match(raw) if node.type in {"simple_expansion", "expansion"} else None
    is_plain = _VALUE.fullmatch(raw) is not None
    default = _DEFAULT.match(raw)
    return _Piece(
        None,
        quoted,
        None if named is None else named[1].decode(),
        is_plain,
        "" if default is None else default[1].decode(),
    )


def _check_expansion(reading: TextReading, node: "Node", raw: bytes) -> None:
    match node.type:
        case "simple_expansion":
            reading.require(_VARIABLE, raw, "an expansion is not understood")
        case "expansion":
            reading.require(_EXPANSION, raw, "an expansion is not understood")
        case "arithmetic_expansion":
            _check_arithmetic(reading, node, raw)
        case "command_substitution" | "process_substitution":
            if raw.startswith(b"$(("):
                reading.refuse("a substitution can be taken for arithmetic")
            elif raw.startswith(b"`") and (b"\\" in raw or b"#" in raw):
                reading.refuse("a substitution is not understood")
        case "brace_expression":
            pass
        case other:
            reading.refuse(f"a {other} is not understood")


def _check_arithmetic(reading: TextReading, node: "Node", raw: bytes) -> None:
    names = counted(raw[1:], reading.source)
    if names is not None and raw.endswith(b"))") and raw.count(b"))") == 1:
        reading.count(node, names)
    else:
        reading.require(_ARITHMETIC, raw, "arithmetic is not understood")


def _unescaped(reading: TextReading, text: str) -> str:
    """Return the text of `$'…'` as bash understands it."""

    def one(found: "re.Match[str]") -> str:
        if found[1]:
            return _ESCAPED[found[1]]
        digits = next((found[n] for n in (3, 4, 5) if found[n]), None)
        code = int(found[2], 8) & 0xFF if found[2] else int(digits, 16) if digits else 0
        # A NUL ends the text for bash, and bytes beyond ASCII depend on the locale.
        if not 0 < code < 0x80 and not (found[4] and code > 0):  # noqa: PLR2004
            reading.refuse("an escape is not understood")
            return ""
        return chr(code)

    return _ESCAPE.sub(one, text)


def read_test_word(reading: TextReading, node: "Node") -> Word:
    """Return a word of `[ … ]` or `[[ … ]]`; operators are words there."""
    if node.type in WORD_KINDS:
        return read_word(reading, node)
    raw = reading.text_of(node)
    if node.is_named and node.type != "test_operator":
        reading.require(_TEST_PATTERN, raw, "a pattern is not understood")
    return Word(raw.decode(errors="replace"))

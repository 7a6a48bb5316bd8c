"""Shell commands, read. Where bash and the grammar could differ, nothing is read."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.model.request import ParsedCommand
from ironcurtain_proxy.shell.statements import MAX_DEPTH, MAX_LENGTH, parse_command
from tests.tables import table


def programs(text: str) -> list[str | None]:
    """The first words of all simple commands."""
    return [command.words[0].text for command in parse_command(text).commands if command.words]


def words(text: str) -> list[str | None]:
    """The words of a single command that is understood."""
    parsed = parse_command(text)
    assert parsed.unreadable is None
    (command,) = parsed.commands
    return [word.text for word in command.words]


def test_quotes_are_removed_as_bash_does() -> None:
    cases = [
        ("ls -la 'a b' \"c d\" e\\ f", ["ls", "-la", "a b", "c d", "e f"]),
        ("l's' \"a\"'b'c", ["ls", "abc"]),
        ("echo $'a\\tb\\x41\\u42'", ["echo", "a\tbAB"]),
        ('echo "a\\"b\\$c\\n" "x$"', ["echo", 'a"b$c\\n', "x$"]),
        ("ls \\\n -l", ["ls", "-l"]),
        ("git stash apply stash@{1}", ["git", "stash", "apply", "stash@{1}"]),
        ("find . -exec cat {} \\;", ["find", ".", "-exec", "cat", "{}", ";"]),
        ("ls # rm x", ["ls"]),
        ("cat < in -n foo", ["cat", "-n", "foo"]),
        ("> out rm x", ["rm", "x"]),
        ('echo "  a  "', ["echo", "  a  "]),
        ("fzf --pointer=▌", ["fzf", "--pointer=▌"]),
        ("export A=b", ["export", None]),
        ("unset A", ["unset", None]),
        ("[ -f x ]", ["[", "-f", "x", "]"]),
        ("[[ a == *b* ]]", ["[[", "a", "==", "*b*", "]]"]),
    ]
    assert [(text, expected) for text, expected in cases if words(text) != expected] == []


@pytest.mark.parametrize(
    ("text", "pattern", "splits"), table("shell/parsing.known_before", list[tuple[str, str, bool]])
)
def test_what_is_known_before_it_runs_is_kept(text: str, pattern: str, splits: bool) -> None:
    parsed = parse_command(text)
    assert parsed.unreadable is None
    word = parsed.commands[0].words[1]
    assert (word.text, word.pattern, word.splits) == (None, pattern, splits)


@pytest.mark.parametrize(
    "text",
    table("shell/parsing.no_command_is_lost", list[str]),
)  # fmt: skip
def test_no_command_is_lost(text: str) -> None:
    parsed = parse_command(text)
    assert "rm" in programs(text) or parsed.unreadable is not None
    assert "rm" in programs(text) or "coproc" in text


def test_what_bash_could_take_otherwise_is_not_read() -> None:
    cases = [
        "f() { ls; }", "function ls { rm x; }", "coproc ls", "case x in a) ls;; esac",
        "select x in a; do ls; done", "for ((;x;)); do ls; done", "((x++))", "let x=1 '",
        "echo $((x))", "echo $((a[0]))", "echo $[1]", "echo ${x@P}", "echo ${!x}", "echo ${x:=a}",
        "echo ${x/a/$(b)}", "echo ${a[$(id)]}", "a[$(id)]=1", "a=([1]=2)", "a+=b ls",
        "echo ${x:y:1}", "ls {x}>/dev/null",
        "ls 'a", 'ls "a', "ls $(a", "ls `a", "ls )", "ls ;; ls", "if ls", "ls &&", "| ls",
        "{ls;}", "{ ls }", "ls $\"a\"", "echo $'\\0'", "echo $'\\xff'", "echo $'\\cx'", "@(a|b)",
        "ls a(b)", "cat <<E\n$(rm x)\nE", "cat <<E\n`rm x`\nE", "cat <<E\na\\\nE\nE", "cat <<E",
        "echo `a \\` b`", "ls;#x", '"a $ b"', "ls <> x",
        "[ a > b ]", "ls\u00a0-l", "ls\u2003x", "ls\r\n", "ls\x00", "ls\x0b-l", "ls \ud800",
        "$((ls) | rm)", "ls a\\\n#|rm", "echo \\\"\\\n#|rm x", "l\\\ns",
        "ls 2 >& ", "ls -2>&1", "ls a -2>x b", "for i in a\nb; do ls; done", "done", "then ls", "}",
    ]  # fmt: skip
    assert [text for text in cases if parse_command(text).unreadable is None] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls >a 2>>b 2>&1 <c &>d >|e 3>&-", [">", ">>", ">&", "<", "&>", ">|", ">&-"]),
        ("cat <<E >f\nhi\nE", [">", "<<"]),
        ("cat <<-'E'\n\t$(x)\n\tE", ["<<"]),
        ("cat <<< a", ["<<<"]),
        ("while ls; do ls; done > f", [">"]),
    ],
)
def test_redirections_are_kept(text: str, expected: list[str]) -> None:
    parsed = parse_command(text)
    assert parsed.unreadable is None
    found = [r.operator for command in parsed.commands for r in command.redirections]
    assert found == expected


@pytest.mark.parametrize(
    ("text", "words", "body"),
    [
        ("git commit -F - <<'E' && git push\na $(b)\nE", ["git", "commit", "-F", "-"], "a $(b)\n"),
        ("python3 - a 2>&1 <<E | tail\nprint(1)\nE\nls", ["python3", "-", "a"], "print(1)\n"),
        ("cat - <<'E' >x; ls\nit's\n E\nE", ["cat", "-"], "it's\n E\n"),
        ("cat - <<-E || ls\n\t$HOME\n\tE", ["cat", "-"], "\t$HOME\n"),
        ("show <<- X - 2>&1\nA\nX\n", ["show", "-"], "A\n"),
        ("cat - <<\\E\n" + "x" * MAX_LENGTH + "\nE", ["cat", "-"], "x" * MAX_LENGTH + "\n"),
        ("cat > a <<'E' && tee b <<F\n$(id)\nE\n2\nF", ["tee", "b"], "2\n"),
        ("ls a\\\n b 'c\nd'; cat - <<'E'\n`x`\nE\n", ["cat", "-"], "`x`\n"),
    ],
)
def test_a_here_document_is_read_whatever_else_stands_on_its_line(
    text: str, words: list[str], body: str
) -> None:
    parsed = parse_command(text)
    assert parsed.unreadable is None
    (found,) = [one for one in parsed.commands if [w.text for w in one.words] == words]
    assert [one.target.text for one in found.redirections if one.operator == "<<"] == [body]


@pytest.mark.parametrize(
    "text",
    [
        "cat - <<'E' \\\n x\nE\n",
        "show <<-E \\\n 2>&1\n\tB\n\tE\n", "cat <<E \\\n >/tmp/f\nx\nE\n", "cat <<E \\\n\nx\nE\n",
        "cat - <<E 'a\nE\n'\nE\n", "cat - <<E\n$(id)\nE", "cat - <<E\n",
        "cat - <<E \"$(echo \"a\")\"\nE\n", "echo a\\ #' <<E\n'\nE\nls -",
        "echo $'\\'' - <<E\n'\nE\n", "cat - </here-document-0 <<E | x\nE", "echo $((1<<E))\nE",
        "cat - <<E\na\nE x\n", "echo `a` - <<E\nE", "cat - <<E$x\nE\n", "cat - <<'E'x\nE\n",
    ],
)  # fmt: skip
def test_a_here_document_that_could_end_elsewhere_is_not_read(text: str) -> None:
    assert not [
        one
        for command in parse_command(text).commands
        for one in command.redirections
        if one.operator == "<<" and parse_command(text).unreadable is None
    ]


@pytest.mark.parametrize(
    "text",
    [
        "i=0; ((i++))", "i=0\nwhile ((i<3)); do i=$((i+1)); done",
        "i=0; until ((i>=3)); do ((i+=2)); done",
        "for ((i=0; i<10; i++)); do ls; done", "n=5; for ((i=1;i<=n;i++)); do ls; done", "((1))",
        "ls; i=0 && echo $(($i*2+1))", "i=0; while [ $i -lt 3 ]; do i=$((i+1)); done",
    ],
)  # fmt: skip
def test_arithmetic_of_numbers_is_read_and_makes_no_variable_a_constant(text: str) -> None:
    parsed = parse_command(f"{text}; echo $i")
    assert parsed.unreadable is None
    assert parsed.commands[-1].words[-1].text is None


@pytest.mark.parametrize(
    "text",
    table("shell/parsing.arithmetic", list[str]),
)  # fmt: skip
def test_arithmetic_with_a_name_that_may_hold_anything_is_not_read(text: str) -> None:
    """A shell evaluates what the name holds: `i='a[$(id)]'` runs `id`."""
    assert parse_command(text).unreadable is not None


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("cat <<A <<B\nA\nB", ["", ""]),
        ("paste <<'A' - <<'B'\nx\nB\nA\ny\nB\n", ["x\nB\n", "y\n"]),
        ("show 3<<-A 4<<\\B 2>&1 | tail\n\tx\n\tA\n$y\nB", ["\tx\n", "$y\n"]),
    ],
)
def test_each_here_document_of_one_command_is_read(text: str, bodies: list[str]) -> None:
    parsed = parse_command(text)
    assert parsed.unreadable is None
    found = [one.target.text for one in parsed.commands[0].redirections if one.operator == "<<"]
    assert found == bodies


@pytest.mark.parametrize(
    "text",
    [
        "i=0; while IFS= read -r x y; do ((i++)); done < a", "set -euo pipefail\ni=0; ((i++))",
        "i=0; ((i++)); printf '%d' 1", "i=0; ls & wait; ((i++)); printf \"%d\" 1",
        "i=0; export A=b C; for x in a; do ((i++)); done",
    ],
)  # fmt: skip
def test_a_program_that_names_what_it_sets_leaves_the_other_numbers_known(text: str) -> None:
    assert parse_command(text).unreadable is None


@pytest.mark.parametrize(
    "program",
    [
        "read i", "read -r i", "read $x", "read -p i", "read co\\\nunt", "read co'unt'",
        "read x[$(id)]",
        "printf -v i x", 'printf "-v" i x', "printf '' -v i", "printf $x", "printf {-v,i,x}",
        "wait -p i",
        "set -- x", "set -k", "set -a", "set -o x", "export i=a[0]", "export $x", "export -f i",
        "export i=$x", "rea'd' i", "mapfile i", "read x $y", "printf \\-v i x",
    ],
)  # fmt: skip
def test_a_program_that_may_set_a_number_to_anything_makes_it_unknown(program: str) -> None:
    # `count` and `i` are what a program could set.
    text = f"i=0; count=0; {program}; ((i++)); ((count++))"
    assert parse_command(text).unreadable is not None


def test_assignments_and_the_variable_of_a_loop_are_kept() -> None:
    parsed = parse_command("A=b C= ls; for PATH in /tmp; do ls; done; x=1; y=2 z=$(ls)")
    names = [a.name for command in parsed.commands for a in command.assignments]
    assert (sorted(names), parsed.unreadable) == (["A", "C", "PATH", "x", "y", "z"], None)


def test_what_a_shell_is_handed_is_read_too() -> None:
    (command,) = parse_command("xargs bash -c 'ls | rm x' --preview='cat {}'").commands
    found = [c.words[0].text for w in command.words if w.command for c in w.command.commands]
    assert found == ["-c", "ls", "rm", "cat"]


def test_texts_in_texts_are_read_to_a_depth() -> None:
    text = "ls"
    for _ in range(MAX_DEPTH + 1):
        text = "sh -c " + "'" + text.replace("'", "'\\''") + "'"
    parsed: ParsedCommand | None = parse_command(text)
    depth = 0
    while parsed is not None and parsed.unreadable is None:
        depth += 1
        parsed = parsed.commands[0].words[-1].command
    assert depth == MAX_DEPTH
    assert parsed is not None


def test_an_empty_text_runs_nothing() -> None:
    assert parse_command("") == parse_command(" # x") == ParsedCommand()


def test_a_long_text_is_not_read() -> None:
    assert parse_command("ls " + "a" * MAX_LENGTH).unreadable is not None
    assert parse_command("ls " + "é" * (MAX_LENGTH // 2)).unreadable is not None


@pytest.mark.parametrize("piece", ["(", "$(", "a|", "a=(", "f()", "<<<", '"$(', "`", "[[ ", "if "])
def test_deep_and_hostile_texts_come_to_an_end(piece: str) -> None:
    assert parse_command((piece * MAX_LENGTH)[:MAX_LENGTH]).unreadable is not None


def test_a_list_with_too_many_links_is_not_read() -> None:
    """Each is a level of the tree, and looking around in it would take cubic time."""
    assert parse_command("a" + " && a" * 120).unreadable is None
    assert parse_command("a" + "&&a" * 200).unreadable == "it has && more than 128 times"


@given(st.text())
def test_nothing_raises(text: str) -> None:
    parse_command(text)


@given(st.lists(st.sampled_from(list("ab \n\t\\'\"`$(){}[]<>|&;#=!*?~-+0")), max_size=40))
def test_no_heap_of_signs_raises(signs: list[str]) -> None:
    parse_command("".join(signs))


def test_the_grammar_is_not_loaded_before_the_first_command() -> None:
    code = (
        "import sys, ironcurtain_proxy.shell.statements as s;"
        "assert 'tree_sitter' not in sys.modules; s.parse_command('ls');"
        "assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("command", "certain"),
    table("shell/parsing.directory_changes", list[tuple[str, bool]]),
)
def test_only_a_directory_change_of_the_shell_itself_is_certain(
    command: str, certain: bool
) -> None:
    found = parse_command(command).commands
    assert [one.is_certain for one in found if one.words and one.words[0].text == "cd"] == [certain]

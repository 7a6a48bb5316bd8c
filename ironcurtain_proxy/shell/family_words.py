"""Words that may be left out of a family: names of tests, project files, formats, numbers."""

import re
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.family import ANY
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.family_table import Task
from ironcurtain_proxy.shell.places import is_of_project, is_protected_name, path_of
from ironcurtain_proxy.shell.secrets import names_a_secret

_NUMBER: Final = re.compile(r"[\d.]+(?:[smhd]|ms|%|[KMG]i?B?)?", re.ASCII)
_WORD: Final = re.compile(r"[\w:,+%-]+(?:\.[\w:,+%-]+)*")
_FORMATS: Final = words(
    """
    json jsonl ndjson yaml yml xml junit text txt plain csv tsv table wide name html markdown
    md verbose dot dots tap spec compact stylish unix checkstyle github pretty short long line
    list default documentation progress offenses gcc tty sarif colorized parseable human
    concise full grouped quiet silent summary standard-verbose standard-quiet pkgname testname
    testdox minimal normal detailed diagnostic diag d n q m v auto native no long-json simple
    tree none basic nocolor errors all failures clang msvs visualstudio color emacs rich live
    rawtext expanded always never doc documentation
    """
)
_NAME: Final = re.compile(r"[\w.:@/#-]+")
_LEADS_OUT: Final = re.compile(r"^[/~@+:]|://|(?:^|/)\.\.(?:/|$)")
_TEMPLATES: Final = ("jsonpath=", "go-template=", "custom-columns=", "format:", "%")


def is_free_value(  # noqa: PLR0911  one answer for each kind
    kind: str, word: Word, place: Place
) -> bool:
    """Whether the value of an option may be left out."""
    if word.text is None:
        return kind == "t" and not word.splits
    text = word.text
    match kind:
        case "t":
            # `%output{FILE}` in a format of curl writes a file.
            return not text.startswith(("@", "file:")) and "%output" not in text
        case "n":
            return bool(_NUMBER.fullmatch(text) or re.fullmatch(r"\d+", text))
        case "w":
            return bool(_WORD.fullmatch(text))
        case "f":
            return text in _FORMATS or text.startswith(_TEMPLATES) or "{{" in text
        case "p":
            return is_free_path(word, place)
        case _:
            return False


def is_free(task: Task, word: Word, index: int, place: Place) -> bool:
    """Return whether an operand may be left out."""
    match task.operands:
        case "paths" | "files" as kind:
            is_plain = kind == "files" or _PLAINLY_A_FILE.search(spelled(word)) is not None
            return is_plain and is_free_path(word, place)
        case "first":
            return index > 0 and is_free_path(word, place)
        case "text":
            return word.text is not None and not _LEADS_OUT.search(word.text)
        case "names":
            return bool(_NAME.fullmatch(word.text or "")) and is_free_path(word, place)
        case "refs":
            return index > 0 and bool(_REF.fullmatch(word.text or ""))
        case _:
            return False


def spelled(word: Word) -> str:
    """The text of a word in a family. A mark stands for a part that is only known at run time."""
    return word.text if word.text is not None else word.pattern.replace("*", ANY)


def shortened(task: Task, word: Word) -> str:
    """An operand of the family; numbers in the paths of an API stand for any."""
    text = spelled(word)
    if task.operands == "api":
        return re.sub(r"(?<=/)\d+(?=/|$)", "N", text.partition("?")[0])
    if task.operands == "bucket":
        found = re.match(r"\w+://[^/]+", text)
        return found[0] if found else text
    return text


_PLAINLY_A_FILE: Final = re.compile(r"[./]")
"""A sign that no sub-command or mode has: `tar xIf` is one, though a file may be called so."""
_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+/")
"""A name that looks like a path of the project, such as `github.com/other/package`."""
_ASSIGNS: Final = re.compile(r"[\w.-]+=")
"""A variable that programs such as `cucumber` and `rake` take among their operands."""
_REF: Final = re.compile(r"\w+(?:[./-]\w+)*")
"""The name of a branch, without a target or a sign that forces the push."""
_TEST_PART: Final = re.compile(r"(?:::|#|:\d|\[).*$", re.DOTALL)


def is_free_path(word: Word, place: Place) -> bool:
    """Whether a word is a file, a package or a pattern inside the project, and no more."""
    text = word.text if word.text is not None else word.pattern
    if "://" in text or not text or "\n" in text or names_a_secret([word]):
        return False
    if ".." in re.split(r"[/\\]", text.replace("...", "")) or text.startswith(("~", "@", "+", "-")):
        return False
    if is_protected_name(text) or _HOST.match(text) or _ASSIGNS.match(text):
        return False
    plain = _TEST_PART.sub("", text) if not text.startswith("//") else text.removeprefix("//")
    path = path_of(Word(plain or "."), place)
    return path is not None and is_of_project(path, place)

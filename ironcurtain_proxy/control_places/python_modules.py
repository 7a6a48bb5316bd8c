"""The modules that Python, or Java, would run as soon as the user's programs start one.

Python looks for a module first beside the program, or for `python -m` where it starts. It takes the
first file that has the name: a package before a file, code of the machine before text, and what is
compiled in `__pycache__` in place of the text, if only times and sizes agree. So a name stands for
every file by which Python would know the module.

    .mcp.json: python -m tools.server   tools/__init__*, tools/server.*, tools/__pycache__/server.*
    ... and where Python looks first    json.py, requests/__init__.py: of Python's own and installed
"""

import codecs
import os
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from glob import glob
from typing import Final

from ironcurtain_proxy.control_places.rules import folded, read_names
from ironcurtain_proxy.model.values import lazy

_AS_MODULE: Final = lazy(r"(?<![\w-])-[bBdEiIOqsSuvx]*m[\"',\s]*([A-Za-z_][\w.]*)")
_IMPORTS: Final = lazy(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import\b([\w \t.,(*]*)", re.MULTILINE)
LARGEST: Final = 1 << 20
"""The characters of a program, or of settings, that are read."""
_STRINGS: Final = lazy(r"[\"']([\w./-]{1,99})[\"']")
_OF_PYTHON: Final = frozenset({*sys.stdlib_module_names, "sitecustomize", "usercustomize"})
_MODULE: Final = lazy(r"(\w+)(?:\.py|(?:\.[\w-]+)*\.(?:pyc|so))")
"""A file that Python takes for a module. Versions and machines stand between name and ending."""
_OF_PACKAGE: Final = ("__init__", "__main__")
_OF_PROCESSORS: Final = [f"glibc-hwcaps/x86-64-v{one}" for one in (2, 3, 4)]
COMPILED: Final = "__pycache__"
"""Where Python keeps what it has compiled. It makes that anew where it is missing."""
JAVA: Final = lazy(r"\b(?:CLASSPATH=|java(?=\W))([^\n;|&]{0,4096})")
"""What Java is given."""
_CLASS: Final = lazy(r"[A-Za-z_]\w*(?:\.[A-Za-z_$][\w$]*)*")
_PACKAGES: Final = ("site-packages", "dist-packages")
ANYWHERE: Final = "*"
"""In the place of a directory: patterns of whole paths, of which programs load what matches."""
_STARS: Final = lazy(r"(\*\*/|\*)")
_MEANT: Final = {"**/": "(?:.*/)?", "*": "[^/]*"}
_BEGINNINGS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ENOUGH: Final = 64
"""The bytes by which a text in UTF-16 is known that does not begin with its mark."""


class LedModules:
    """The modules below some directories that settings make Python run."""

    def __init__(self, roots: tuple[str, ...], names: Mapping[str, Collection[str]]) -> None:
        """Begin with what is known.

        Args:
            roots: absolute and real.
            names: as the property of that name.
        """
        self._roots = roots
        self._names: dict[str, set[str]] = {}
        self._folded: dict[str, set[str]] = {}
        """The same with directories and names of files as `rules.folded` returns them. Python finds
        modules by their exact names on every file system."""
        self._first: set[str] = set()
        """Directories where Python looks for modules first."""
        for directory, those in names.items():
            self._note(directory, those)

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    @property
    def names(self) -> Mapping[str, frozenset[str]]:
        """By directory, the names of modules, and by one with a slash at its end those of files."""
        return {directory: frozenset(names) for directory, names in self._names.items()}

    def know(self, directory: str, names: Iterable[str]) -> None:
        """Add what an earlier look found. What has come since is nobody's own by being there."""
        self._add(directory, names)

    def hold(self, path: str, *, is_directory: bool = False) -> bool:
        """Return whether Python would take a file for one of the modules, or it is of the files.

        A directory in the place of such a file is none.
        """
        if not self._names:
            return False
        name, path = path.rpartition("/")[2], folded(path)
        holder = path.rpartition("/")[0]
        if not is_directory and (
            folded(name) in self._folded.get(f"{holder}/", ())
            or any(_matcher(one).fullmatch(path) for one in self._folded.get(ANYWHERE, ()))
        ):
            return True
        found = _MODULE.fullmatch(name)
        holder = holder.removesuffix(f"/{COMPILED}")
        if "." in name and name in self._folded.get(holder, ()):
            return True
        if found is None or not self._is_searched(holder):
            return False
        return found[1] in _OF_PACKAGE or found[1] in self._folded.get(holder, ())

    def hold_link(self, path: str) -> bool:
        """Return whether a link would lead Python to files for these modules elsewhere."""
        name, path = path.rpartition("/")[2], folded(path)
        holder = path.rpartition("/")[0]
        is_compiled = name == COMPILED and self._is_searched(holder)
        is_way = is_compiled or name in self._folded.get(holder, ())
        return is_way or any(is_below(one, [path]) for one in self._folded)

    def _is_searched(self, directory: str) -> bool:
        holder, _, name = directory.rpartition("/")
        packages = map(folded, self._folded.get(holder, ()))
        return directory in self._folded or name in packages

    def start(self, top: str, modules: Iterable[str]) -> Iterator[str]:
        """Add modules that Python imports by name from a directory, and the packages of each.

        Args:
            top: the directory.
            modules: their names, with a slash for each dot.

        Yields:
            The files in which they are.
        """
        for path in {f"{top}/{one}" for module in modules for one in (module, *above(module))}:
            holder, _, name = path.rpartition("/")
            self._add(holder, [name])
            self.import_from(top)
            for program in (f"{path}.py", *[f"{path}/{one}.py" for one in _OF_PACKAGE]):
                if os.path.isfile(program):  # noqa: PTH113  text
                    yield program
                    self.import_from(top, program)

    def import_from(self, directory: str, program: str = "", *, follows: bool = False) -> None:
        """Add what Python would import from a directory in place of its own, or installed modules.

        What is there belongs to the project, and changes as data, unless imports are followed.

        Args:
            directory: where Python looks first.
            program: a file that is started there, or empty.
            follows: whether the modules beside the program that it imports are added, too.
        """
        text = text_of(program)
        for one in _STRINGS.findall(text) if "sys.path" in text else ():
            if os.path.isdir(f"{directory}/{one}"):  # noqa: PTH112  text
                self.import_from(f"{directory}/{one}")
        others = {one.partition("/")[0] for one in modules_of(program, text)}
        there = {found[1] for one in entries_of(directory) if (found := _MODULE.fullmatch(one))}
        there |= {one for one in entries_of(directory) if _is_package(f"{directory}/{one}")}
        if directory not in self._first:
            self._first.add(directory)
            self._add(directory, _OF_PYTHON - there)
            others |= _installed(os.environ.get("PATH", ""), self._roots) - there
        beside = (others & there) - self._names.get(directory, set())
        self._add(directory, others if follows else others - there)
        for name in beside if follows else ():
            self.import_from(directory, f"{directory}/{name}.py", follows=True)

    def load_from(self, directory: str, variable: str) -> None:
        """Add what programs would load from a directory in place of what the system has.

        Args:
            directory: where they look first.
            variable: by which they are told.
        """
        for inner, names in _of_system(variable).items():
            place = os.path.normpath(f"{directory}/{inner}")
            self._add(place, names - {*entries_of(place)})

    def _add(self, directory: str, names: Iterable[str]) -> None:
        place = os.path.realpath(directory) + "/"[: directory.endswith("/")]
        place = directory if directory == ANYWHERE else place
        if place == ANYWHERE or is_below(place, self._roots):
            self._note(place, {*names})

    def _note(self, place: str, names: Collection[str]) -> None:
        self._names.setdefault(place, set()).update(names)
        are_files = place[-1] in {"/", ANYWHERE}
        kept = map(folded, names) if are_files else names
        self._folded.setdefault(folded(place), set()).update(kept)


def modules_of(name: str, text: str) -> frozenset[str]:
    """Return the modules that a program imports, or settings start by `-m`, with slashes for dots.

    Args:
        name: the file's.
        text: what it holds.
    """
    found = _AS_MODULE.findall(text) if "python" in text.lower() or "uv" in text else []
    if name.endswith((".py", ".pth")) or "python" in text.partition("\n")[0]:
        for of, those in _IMPORTS.findall(text):
            found += [of, *[f"{of}.{one}".strip(".") for one in re.findall(r"\w[\w.]*", those)]]
    return frozenset([one.strip(".").replace(".", "/") for one in found]) - {""}


@cache
def _installed(path: str, tops: tuple[str, ...]) -> frozenset[str]:
    """Return the modules that are installed for the Pythons of a `PATH` and of projects."""
    environments = [f"{top}/{name}" for top in tops for name in (".venv", "venv")]
    environments.append(os.path.expanduser("~/.local"))  # noqa: PTH111  text
    for place in path.split(":"):
        program = os.path.realpath(f"{place}/python3")
        environments += [os.path.dirname(one) for one in (place, os.path.dirname(program))]  # noqa: PTH120  text
    found: set[str] = set()
    for environment in dict.fromkeys(environments):
        for version in entries_of(f"{environment}/lib"):
            if version.startswith("python3"):
                places = [f"{environment}/lib/{version}/{one}" for one in _PACKAGES]
                found.update([name for place in places for name in entries_of(place)])
    names = {one.partition(".")[0] for one in found}
    return frozenset([one for one in names if one.isidentifier() and one != COMPILED])


@cache
def programs_of_system(path: str, roots: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the programs that a `PATH` finds outside of some directories."""
    places = {os.path.realpath(one) for one in f"{path}:/usr/local/bin:/usr/bin:/bin".split(":")}
    return frozenset(
        [name for one in places if not is_below(one, roots) for name in entries_of(one)]
    )


@cache
def _of_system(variable: str) -> Mapping[str, frozenset[str]]:
    """Return the names of what the system has, by directories below those of a variable."""
    found: dict[str, set[str]] = {}
    for pattern in read_names().libraries[variable]:
        for place in glob(os.path.expanduser(pattern)):  # noqa: PTH111, PTH207  text
            if os.path.isfile(place):  # noqa: PTH113  text
                for inner in ("", *_OF_PROCESSORS):
                    found.setdefault(inner, set()).add(os.path.basename(place))  # noqa: PTH119  text
            for directory, below, files in os.walk(place):
                # Perl takes `strict.pmc` before `strict.pm`, and Ruby `set.so` with `set.rb`.
                others = [f"{one}c" for one in files] + [f"{one[:-3]}.so" for one in files]
                names = found.setdefault(os.path.relpath(directory, place), set())
                names.update(below, files, others)
    return {inner: frozenset(names) for inner, names in found.items()}


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    """Return what matches the paths that a shell means: one star stands for no slash."""
    return re.compile("".join([_MEANT.get(one, re.escape(one)) for one in _STARS.split(pattern)]))


def is_compiled(path: str) -> bool:
    """Return whether a file is a module that Python has compiled."""
    return path.endswith(".pyc") and path.rpartition("/")[0].endswith(f"/{COMPILED}")


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is one of some directories, or lies in one."""
    return any(f"{path}/".startswith(f"{root}/") for root in roots)


def above(path: str) -> Iterator[str]:
    """Yield the directories above a path, the innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


def _is_package(directory: str) -> bool:
    return os.path.isfile(f"{directory}/{_OF_PACKAGE[0]}.py")  # noqa: PTH113  text


def entries_of(directory: str) -> list[str]:
    """Return the names in a directory, or none if it cannot be read."""
    with suppress(OSError):
        return os.listdir(directory)  # noqa: PTH208  names are enough
    return []


def text_of(path: str) -> str:
    """Return the beginning of a text, or nothing of what is none: a hook may link to a program."""
    with suppress(OSError, ValueError):
        if path and stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  text
            with open(path, "rb") as file:  # noqa: PTH123  text
                text = decoded(file.read(LARGEST))
                return "" if "\0" in text else text
    return ""


def decoded(content: bytes) -> str:
    """Return a text, in whichever encoding editors and shells would read it."""
    for beginning, encoding in _BEGINNINGS:
        if content.startswith(beginning):
            return content[len(beginning) :].decode(encoding, "replace")
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")) if b"\0" in content[:2] else ():
        if not any(content[first:_ENOUGH:2]):
            return content.decode(encoding, "replace")
    return content.decode("utf-8", "surrogateescape")


def java_classes(words: Collection[str]) -> Iterator[str]:
    """Yield the class that Java starts, wherever it looks, and the archives of `lib/*`.

    Args:
        words: what Java is given.
    """
    places = [one for one in words if "/" in one]
    classes = [one.replace(".", "/") for one in words if _CLASS.fullmatch(one)]
    yield from [f"{place}.jar" for place in places if place.endswith("/*")]
    yield from [f"{place.rstrip('/')}/{one}.class" for place in places for one in classes]

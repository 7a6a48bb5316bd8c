"""The paths of a workspace that control places lead to.

A file at a path that a control place leads to acts like one, even if it does not exist yet. So do
files that the user's own settings and hooks name: `"command": "./tools/lint.sh"` in the settings of
an agent makes the agent run that file by itself. The user's settings may lie outside
(`outside`): in the home directory, in a directory above the workspace, or in the repository of
which it is a worktree.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import glob
from math import inf
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.control_places.commands import (
    Commands,
    by_name,
    named_files,
    named_programs,
    read_commands,
)
from ironcurtain_proxy.control_places.outside import OF_PROJECTS, settings_outside, text_spelled_out
from ironcurtain_proxy.control_places.python_modules import (
    ANYWHERE,
    LARGEST,
    LedModules,
    above,
    entries_of,
    is_below,
    programs_of_system,
    text_of,
)
from ironcurtain_proxy.control_places.rules import folded, is_in_cache, is_inert_hook, read_names
from ironcurtain_proxy.control_places.words import is_code, is_shells
from ironcurtain_proxy.model.values import lazy

_OF_VARIABLES: Final = lazy(r"/\.env(?:\.[^/]*)?\Z")
_OF_SERVERS: Final = "mcp"
"""In the name of settings that start servers alone."""
_STARTED_BY_HAND: Final = "launch.json"
_MOST_LINKS: Final = 40
_MOST_PLACES: Final = 32
"""The most directories to which the commands of one file may go."""
_AT_ITS_OWN: Final = ".envrc"
CONFIGURATIONS: Final = ("config", "config.worktree")
_MOST_FOLLOWED: Final = 1000
"""The most configurations that are followed from one: they may include each other without end."""
_HUSKY: Final = "_"
"""The directory of husky's hooks, which run scripts of the directory that holds it."""


class Leads:
    """The paths below some directories that settings lead to."""

    def __init__(
        self,
        roots: tuple[str, ...],
        known: Iterable[str] = (),
        in_each: Iterable[str] = (),
        modules: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Begin with what is known.

        Args:
            roots: absolute and real.
            known: the paths that settings lead to, as `paths`.
            in_each: as the property of that name.
            modules: the names of modules, as `LedModules.names`.
        """
        self._roots = roots
        self._paths: set[str] = set()
        self._folded: set[str] = set()
        """The same as `rules.folded` returns them, by which they are looked for."""
        self._above: set[str] = set()
        """Directories on the way to a path, folded. No link may come in their place."""
        self._inner: dict[str, tuple[str, ...]] = {}
        """The roots below a directory, from there; one empty text if it lies in a root itself."""
        self.modules = LedModules(roots, modules)
        self._in_each = {*in_each}
        """Relative paths of hooks that the user's own settings name for every repository."""
        self._in_linked: set[str] = set()
        """Relative paths of hooks in a repository's settings, which hold in its worktrees, too."""
        self._at: set[str] = set()
        """Directories in which programs are looked for by their names."""
        self._by_name = {*read_names().acted_on.programs}
        self._links_to_ours: tuple[str, ...] = ()
        """The paths by which links lead to a root: the user's settings may say these."""
        self._read: set[str] = set()
        """The scripts outside that were read in this look."""
        self._hooks: list[Commands] = []
        """The hooks of repositories, which run in their worktrees, too."""
        self.know(known, {})

    def __len__(self) -> int:
        return len(self._paths) + len(self.modules)

    @property
    def paths(self) -> frozenset[str]:
        """The paths that settings lead to, absolute."""
        return frozenset(self._paths)

    def know(self, paths: Iterable[str], modules: Mapping[str, Collection[str]]) -> None:
        """Add what an earlier look found: settings may lead elsewhere by what has come since."""
        for path in paths:
            self._add(path)
        for directory, names in modules.items():
            self.modules.know(directory, names)

    def is_path(self, path: str, *, is_directory: bool = False, is_link: bool = False) -> bool:
        """Return whether settings lead to a path itself, or through a link at it to another."""
        is_led = folded(path) in self._folded or self.modules.hold(path, is_directory=is_directory)
        return is_led or (is_link and self.is_on_the_way(path))

    def holds(self, path: str, *, is_directory: bool = False) -> bool:
        """Return whether settings lead to a path, or to a directory that holds it."""
        return self.is_path(path, is_directory=is_directory) or any(
            one in self._folded for one in above(folded(path))
        )

    def is_on_the_way(self, path: str) -> bool:
        """Return whether a link at a path would lead to other files than those that are led to."""
        return folded(path) in self._above or self.modules.hold_link(path)

    def is_above(self, path: str) -> bool:
        """Return whether settings lead to something that is there below a path."""
        below = f"{folded(path)}/"
        return folded(path) in self._above and any(
            folded(one).startswith(below) and os.path.lexists(one) for one in self._paths
        )

    @property
    def in_each(self) -> tuple[str, ...]:
        """Where the user's own settings say that every repository has its hooks."""
        return tuple(sorted(self._in_each))

    def of_user(self) -> None:
        """Add what the user's own settings of git, shells, and links to settings lead to."""
        home = os.path.expanduser("~")  # noqa: PTH111  text
        beside = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        files = (f"{home}/.gitconfig", f"{beside}/git/config", "/etc/gitconfig")
        for file in (*files, os.environ.get("GIT_CONFIG_GLOBAL") or files[0]):
            self._follow(file, top=None)
        for file in read_names().commands["files_of_shells"]:
            self._start_by_name((), read_commands("", text_of(f"{home}/{file}")).by_name)
        said = read_commands("", "\n".join([f"{one}={of}" for one, of in os.environ.items()]))
        self._start(replace(said, named=frozenset()), [""])

    def _start_by_name(self, directories: Iterable[str], names: Collection[str]) -> None:
        """Add the programs of these names, in these directories and those that are known."""
        places = [one for one in map(os.path.realpath, directories) if self._is_ours(one)]
        # What packages bring counts as data there.
        places = [one for one in places if one not in self._at and not is_in_cache(one.split("/"))]
        new = {*names} - self._by_name
        self._by_name |= new
        for directory in self._at if new else ():
            self.modules.know(f"{directory}/", new)
        self._at.update(places)
        for directory in places:
            every = programs_of_system(os.environ.get("PATH", ""), self._roots)
            # What is there is the project's own, and started by hand.
            here = every - {*entries_of(directory)}
            self.modules.know(f"{directory}/", self._by_name | here)

    def of_link(self, path: str, target: str, top: str, *, is_hook: bool = False) -> None:
        """Add where a link of a control place leads to, and what a hook there starts."""
        self._follow(os.path.join(_holder(path), target), top=top)  # noqa: PTH118  text
        if is_hook:
            self.of_commands(path, text_of(path), is_hook=True)

    def of_git(self, path: str, top: str) -> None:
        """Add the paths that a directory of git, and the settings in it, lead to."""
        if os.path.islink(f"{path}/hooks"):  # noqa: PTH114  text
            self._follow(f"{path}/hooks", top=top)
        for name in CONFIGURATIONS:
            self.of_configuration(text_of(f"{path}/{name}"), path, top)
        self._of_hooks(f"{path}/hooks", top)
        self.of_repository(top, is_pointer=False)

    def of_pointer(self, pointer: str, top: str) -> None:
        """Add what holds in a worktree: the hooks of its repository, which may lie outside."""
        git = directory_of_git(pointer)
        if self._is_ours(git):
            self.of_repository(top, is_pointer=True)
        else:
            self.of_git(git, top)

    def of_outside(self) -> None:
        """Add what the user's own settings name, wherever they lie outside of the roots."""
        self.of_user()
        for root in self._roots:
            for directory in (root, *above(root)):
                git = directory_of_git(f"{directory}/.git")
                if not self._is_ours(git):
                    self.of_git(git, directory)
        self._read.clear()
        self._links_to_ours, links = self._aliases(), list[str]()
        self._inner.clear()
        for path, text in settings_outside(self._roots, [*self._roots, *self._links_to_ours]):
            self._of_outer(path, text)
            if os.path.islink(path):  # noqa: PTH114  text
                links.append(path)
        for holder, _, name in [one.rpartition("/") for one in links]:
            # What nothing starts by itself, the user starts.
            if name in self._by_name or not holder.endswith("/bin"):
                self._run(f"{holder}/{name}", None, set())

    def _aliases(self) -> tuple[str, ...]:
        """Return the paths by which links lead to a root, in and above the home, or as we came."""
        home, found = os.path.expanduser("~"), list[str]()  # noqa: PTH111  text
        here = os.environ.get("PWD") or home
        places = [home, *above(home), here, *above(here)]
        with suppress(OSError), os.scandir(home) as entries:
            places += [one.path for one in entries if one.is_symlink()]
        for place in places:
            target = os.path.realpath(place)
            below = [root for root in self._roots if f"{root}/".startswith(f"{target}/")]
            found += [place + root[len(target) :] for root in below if target != place]
        return tuple(found)

    def _of_outer(self, path: str, text: str) -> None:
        """Add what a file outside starts, and what the scripts start that it starts."""
        waiting, home = [(path, text)] if text else [], os.path.expanduser("~")  # noqa: PTH111  text
        while waiting and len(self._read) < _MOST_FOLLOWED:
            path, text = waiting.pop()
            name = path.rpartition("/")[2]
            starts_anywhere = is_shells(name) and not name.startswith(_AT_ITS_OWN)
            beside = self._roots if starts_anywhere or name.endswith(OF_PROJECTS) else ()
            said = self.of_commands(path, text, beside)
            self._expect(() if said is None else said.full)
            if said is not None and is_below(path, [home]):
                # It starts in whichever directory the user's programs are.
                is_agents = name.endswith(OF_PROJECTS)
                here = [one for one in said.coming if one[:2] == "./" or (is_agents and "/" in one)]
                here = [one.removeprefix("./") for one in here if "*" not in one and one[-1] != "/"]
                self.modules.know(ANYWHERE, [f"**/{one}" for one in here])
            for one in () if said is None else {*said.named, *said.coming}:
                # Without its slash a word may begin at the root.
                further = f"/{one}" if f"/{one}".startswith(f"{home}/") else f"{home}/{one}"
                # Not each file of the home is a script, though it ends with a slash.
                if "/" in one and further.rstrip("/") != home and not self._is_ours(further):
                    waiting += self._scripts(further)

    def _expect(self, paths: Iterable[str]) -> None:
        """Add programs, and what is not there, of which a text says the path.

        A directory at such a path is data: commands go there, and programs write there.
        """
        known = tuple([f"{one}/" for one in (*self._roots, *self._links_to_ours)])
        for one in map(os.path.normpath, paths):
            if one.startswith(known) and (_is_program(one) or not os.path.lexists(one)):
                holder, _, name = one.rpartition("/")
                endings = () if "." in name else read_names().commands["endings"]
                self.modules.know(f"{holder}/", [name, *[name + more for more in endings]])

    def _scripts(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield a script of the home directory, or all of a directory that runs each."""
        names = entries_of(path) if path.endswith("/") else [""]
        found = glob(path) if "*" in path else [path + name for name in names]  # noqa: PTH207  text
        paths = {*map(os.path.normpath, found[:_MOST_PLACES])}
        for one in sorted(paths - self._read):
            with suppress(OSError, ValueError):
                mode = os.stat(one).st_mode  # noqa: PTH116  text
                if mode & 0o111 or is_code(one.rpartition("/")[2]):
                    self._read.add(one)
                    yield one, text_spelled_out(one)

    def _of_hooks(self, directory: str, top: str | None) -> None:
        """Add what hooks that lie outside start. `top` is `None` if they hold in each repository.

        Those inside are looked at as other control places are.
        """
        if self._is_ours(directory):
            return
        with suppress(OSError), os.scandir(directory) as found:
            for one in found:
                text = "" if is_inert_hook(one.name) else text_of(one.path)
                if top is not None:
                    self.of_commands(one.path, text, [top], is_hook=True)
                elif text:
                    self._in_each.update(read_commands("", text).coming)

    def of_configuration(self, text: str, holder: str, top: str) -> None:
        """Add the paths that a configuration of git names.

        Args:
            text: what it holds.
            holder: the directory of git that it lies in.
            top: the directory of the repository.
        """
        for is_hooks, named in named_files(text):
            if is_hooks and not named.startswith(("/", "~")):
                self._in_linked.add(named)
            path = os.path.expanduser(named)  # noqa: PTH111  text
            self._follow(os.path.join(top if is_hooks else holder, path), top=top)  # noqa: PTH118  text
        self._start_by_name((), by_name(text))
        for named in named_programs(text):
            self._run(named, top, self._in_linked)

    def of_commands(
        self, path: str, text: str, beside: Sequence[str] = (), *, is_hook: bool = False
    ) -> Commands | None:
        """Add the files that the commands of settings, or a hook, name. Return what they say.

        Args:
            path: the file's, absolute.
            text: what it holds.
            beside: directories in which the commands start, besides those that hold the file.
            is_hook: whether git starts it, also in the worktrees of its repository.
        """
        name = path.rpartition("/")[2]
        is_prose = name.rpartition(".")[2] in read_names().commands["prose"]
        if is_prose or name == _STARTED_BY_HAND or "\0" in text:
            return None
        said = read_commands(name, text)
        if is_hook and said not in self._hooks:
            self._hooks.append(said)
        # A hook runs at the top of its worktree, settings beside them or at the top of the project.
        is_outside = not self._is_ours(path)
        around = [one for one in above(path) if is_outside or self._is_ours(one)]
        # What is written from the root of the system is read without its first slash.
        tops = [*beside, *around, os.path.expanduser("~"), ""]  # noqa: PTH111  text
        of_git = [one for one in around if one.endswith("/.git")]
        if is_outside and not is_hook:
            said = replace(said, values=frozenset())
        self._start(said, tops, of_git if is_hook else [*of_git, *beside])
        return said

    def _start(self, said: Commands, tops: Sequence[str], many: Sequence[str] = ()) -> None:
        """Add what commands name that start in some directories.

        Args:
            said: the commands.
            tops: the directories.
            many: those of them that are one of many: not each word is the name of a file there.
        """
        follows = _OF_SERVERS not in said.name
        gone_to = self._gone_to(tops, said.named)
        places = [*tops, *gone_to]
        path = [f"{top}/{one}" for top in tops for one in self._of_ours(top, said.path)]
        self._start_by_name(path, said.by_name)
        # Python runs this of a directory that it is given.
        files = [f"{one}/__main__.py" for one in gone_to]
        for place in places:
            those = self._of_ours(place, said.named)
            those = [one for one in those if place not in many or "/" in one or "." in one]
            files += [f"{place}/{one}" for one in those]
        for file in filter(os.path.isfile, files):
            self._run(file, _holder(file), set(), follows=follows)
        # Direnv goes to where its file lies.
        at = {tops[0], *tops[-2:]} if said.name.startswith(_AT_ITS_OWN) else places
        for place in at:
            # Of a directory to which commands may go, no further directories are meant.
            is_top = place in tops or place in self._roots
            self._load(said, place, is_top=is_top, follows=follows)
            # What `python -m pytest tests` is given is no place where Python looks first.
            if is_top or said.goes:
                self._start_python(said, place)
            self._expect([f"{place}/{one}" for one in (said.values if is_top else ())])

    def _load(self, said: Commands, place: str, *, is_top: bool, follows: bool) -> None:
        """Add what is loaded as soon as it is there."""
        beside = [one for one in said.coming if "/" not in one.removeprefix("./")]
        coming = said.coming | said.homes if is_top else beside
        for one in self._of_ours(place, coming):
            if "*" in one:
                self._match(f"{place}/{one}", place)
            elif one.endswith("/"):
                self._follow(f"{place}/{one}", top=place)
            elif not os.path.isdir(f"{place}/{one}"):  # noqa: PTH112  text
                self._run(f"{place}/{one}", place, set(), follows=follows)

    def _match(self, pattern: str, place: str) -> None:
        """Add what a pattern matches: all of a directory, but of a root what has such names."""
        start, star, rest = pattern.partition("*")
        holder, _, beginning = os.path.normpath(f"{start}x").rpartition("/")
        if "/" in rest or os.path.realpath(holder) in self._roots:
            names = f"{beginning[:-1]}{star}{rest}"
            self.modules.know(ANYWHERE, [f"{os.path.realpath(holder)}/{names}"])
        else:
            self._follow(f"{holder}/", top=place)

    def _start_python(self, said: Commands, place: str) -> None:
        for directory in self._of_ours(place, said.places):
            self.modules.import_from(f"{place}/{directory}")
            for program in self.modules.start(f"{place}/{directory}", said.modules):
                self._add_linked(program)
        for variable, directory in said.libraries:
            if self._of_ours(place, [directory]):
                self.modules.load_from(f"{place}/{directory}", variable)
        if (said.starts_python or said.modules) and self._is_ours(place):
            if said.starts_python:
                self.modules.import_from(place)
            for program in self.modules.start(place, said.modules):
                self._add_linked(program)

    def _gone_to(self, tops: Iterable[str], named: Collection[str]) -> Sequence[str]:
        """Return the directories to which commands may go: `cd tools && ./x`, `"cwd": "tools"`."""
        found = dict.fromkeys(
            os.path.realpath(f"{top}/{one}")
            for top in tops
            for one in self._of_ours(top, named)
            if os.path.isdir(f"{top}/{one}")  # noqa: PTH112  text
        )
        return [one for one in found if one not in tops][:_MOST_PLACES]

    def _of_ours(self, top: str, words: Collection[str]) -> Collection[str]:
        """Return the words that may be paths below the roots, from a directory."""
        inner = self._inner.get(top)
        if inner is None:
            known = (*self._roots, *self._links_to_ours)
            below = [one[len(top) + 1 :] for one in known if one.startswith(f"{top}/")]
            inner = self._inner[top] = ("",) if self._is_ours(top) else tuple(below)
        return [
            one
            for one in words
            if one.startswith(inner)
            or (".." in one and self._is_ours(os.path.normpath(f"{top}/{one}")))
        ]

    def of_repository(self, top: str, *, is_pointer: bool) -> None:
        """Add the hooks that hold in a repository by the settings of the user, or of its owner."""
        for path in sorted(self._in_each | self._in_linked if is_pointer else self._in_each):
            self._follow(f"{top}/{path}", top=top)
        for said in self._hooks if is_pointer else ():
            self._start(said, [top])

    def would_run(self, top: str, before_ns: float = inf) -> bool:
        """Return whether a new repository had hooks, or what they start, that are there already.

        They are the user's, to be left alone, or were judged as data: it is not to come about.

        Args:
            top: the directory of the repository.
            before_ns: when they have changed last, at the latest.
        """
        places = [f"{top}/{one}" for one in self._in_each]
        found = [*places, *[f"{place}/{one}" for place in places for one in entries_of(place)]]
        return any(os.path.isfile(one) and os.lstat(one).st_ctime_ns < before_ns for one in found)  # noqa: PTH113  text

    def _follow(self, path: str, *, top: str | None) -> None:
        """Add a path, what lies on the way to it, and where the configuration at it leads to."""
        waiting, seen = [path], set[str]()
        while waiting and len(seen) < _MOST_FOLLOWED:
            one = os.path.normpath(waiting.pop())
            # No file has a name with NUL.
            if one in seen or "\0" in one:
                continue
            seen.add(one)
            target = os.path.realpath(one)
            self._add_linked(one)
            if target in self._roots:
                self.modules.know(f"{target}/", read_names().commands["hooks_of_git"])
            self._of_hooks(target, top)
            waiting += self._named(one, target, top)

    def _add(self, path: str) -> None:
        # What only sets variables is judged by what it holds.
        if (
            (_OF_VARIABLES.search(path) is None or os.path.isdir(path))  # noqa: PTH112  text
            and self._is_ours(path)
            and path not in self._roots
            and path not in self._paths
        ):
            self._paths.add(path)
            self._folded.add(folded(path))
            self._above.update(above(folded(path)))

    def _add_linked(self, path: str) -> None:
        """Add a path, and each link on the way to it: it could be exchanged."""
        path = os.path.normpath(path)
        for _ in range(_MOST_LINKS):
            link = next(filter(os.path.islink, reversed([path, *above(path)])), "")
            self._add(link or path)
            if not link:
                break
            target = os.path.join(_holder(link), os.readlink(link))  # noqa: PTH115, PTH118  text
            path = os.path.normpath(target + path[len(link) :])

    def _named(self, path: str, target: str, top: str | None) -> Iterator[str]:
        """Yield the paths that the file or directory at a path leads to in turn."""
        if target.endswith(f"/{_HUSKY}"):
            yield target.rpartition("/")[0]
        text = text_of(target)
        self._start_by_name((), by_name(text))
        for program in named_programs(text):
            self._run(program, top, self._in_each if top is None else set())
        for is_hooks, written in named_files(text):
            named = os.path.expanduser(written)  # noqa: PTH111  text
            if not is_hooks:
                yield os.path.join(path.rpartition("/")[0], named)  # noqa: PTH118  text
            elif top is None and not named.startswith("/"):
                self._in_each.add(named)
            else:
                yield os.path.join(top or "/", named)  # noqa: PTH118  text

    def _run(
        self, program: str, top: str | None, relative: set[str], *, follows: bool = True
    ) -> None:
        """Add a program that git runs in a worktree: what it reads in turn is not followed.

        But for the modules beside it that one of Python imports, if `follows`.
        """
        if "\0" in program:
            return
        if not program.startswith(("/", "~")):
            relative.add(program)
        if top is not None or program.startswith(("/", "~")):
            path = os.path.join(top or "/", os.path.expanduser(program))  # noqa: PTH111, PTH118  text
            self._add_linked(path)
            real = os.path.realpath(path)
            if real.endswith(".py") or "python" in text_of(real)[:64].partition("\n")[0]:
                self.modules.import_from(_holder(real), real, follows=follows)

    def _is_ours(self, path: str) -> bool:
        return is_below(path, self._roots)


def _holder(path: str) -> str:
    return path.rpartition("/")[0]


def directory_of_git(path: str) -> str:
    """Return the directory that holds the settings of a repository, from the path of its `.git`."""
    for name in ("", "/commondir"):
        with suppress(OSError, ValueError):
            with open(path + name, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  text
                named = file.read(LARGEST).removeprefix("gitdir: ").rstrip("\n")
            beside = path if name else _holder(path)
            path = os.path.normpath(os.path.join(beside, named))  # noqa: PTH118  text
    return path


def _is_program(path: str) -> bool:
    """Return whether a file is there that can be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  text

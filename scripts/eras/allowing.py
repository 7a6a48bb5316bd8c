"""The proxy with a policy that knows every tool and prompt: tests of others name theirs nowhere.

All their arguments are taken for plain values. `rules` of the policy still decide.
"""

import sys

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.policy import policy_loading
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation


class EveryKey(frozenset):
    """The names of all arguments."""

    def __ge__(self, _: object) -> bool:
        return True


class EveryArgument(dict):
    """The roles of any argument: it names nothing."""

    def __contains__(self, _: object) -> bool:
        return True

    def __missing__(self, _: str) -> RoleSpec:
        return RoleSpec(default=("none",))

    def keys(self) -> EveryKey:
        """Return a set that holds any set."""
        return EveryKey()


class EveryPrompt(dict):
    """The annotation of any prompt."""

    def __contains__(self, _: object) -> bool:
        return True

    def get(self, key: tuple[str, str], _: object = None) -> ToolAnnotation:
        """Return an annotation with any argument."""
        server, prompt = key
        return annotation(server, prompt, method="prompts/get")


def annotation(server: str, tool: str, **more: str) -> ToolAnnotation:
    """Return an annotation with any argument."""
    return ToolAnnotation(server=server, tool=tool, arguments=EveryArgument(), **more)


def allow_everything() -> None:
    """Annotate each tool and prompt as it comes."""
    tool, loaded = CataloguedTool.__init__, policy_loading.LoadedPolicy

    def describe(self: object, **said: object) -> None:
        found = annotation(said["policy_server"], said["definition"].name)
        tool(self, **{**said, "annotation": found})

    CataloguedTool.__init__ = describe
    policy_loading.LoadedPolicy = lambda **said: loaded(**{**said, "prompts": EveryPrompt()})


if __name__ == "__main__":
    allow_everything()
    sys.exit(main())

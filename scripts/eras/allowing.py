"""The proxy with a policy that knows every tool and prompt: tests of others name theirs nowhere.

All their arguments are taken for plain values. `rules` of the policy still decide.
"""

import sys

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.policy import policy_loading
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


class Everything(dict):
    """The annotation of any tool, or of any prompt, with any argument."""

    def __init__(self, **more: str) -> None:
        super().__init__()
        self._more = more

    def __contains__(self, _: object) -> bool:
        return True

    def get(self, key: tuple[str, str], _: object = None) -> ToolAnnotation:
        """Return an annotation."""
        server, tool = key
        return ToolAnnotation(server=server, tool=tool, arguments=EveryArgument(), **self._more)


def allow_everything() -> None:
    """Annotate each tool and prompt as it comes."""
    loaded = policy_loading.LoadedPolicy
    known = {"annotations": Everything(), "prompts": Everything(method="prompts/get")}
    policy_loading.LoadedPolicy = lambda **said: loaded(**{**said, **known})


if __name__ == "__main__":
    allow_everything()
    sys.exit(main())

"""What Python imports first in a sandbox: `multiprocessing` does without a unix socket.

From 3.14 on it starts processes by a server that listens at one, which no sandbox allows: `black .`
ended in a PermissionError. To start each anew (`spawn`) asks the same of a program. The user's own
module of this name is imported as without us. Older Pythons read this, too, so it says no types.
"""
# mypy: disable-error-code="no-untyped-def, arg-type"

import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec


class _Contexts(SourceFileLoader):
    """Loads the module that chooses how processes start, and chooses for it."""

    def exec_module(self, module):
        """Load it."""
        super().exec_module(module)
        default = module._default_context
        if default.get_all_start_methods()[0] == "forkserver":
            default._default_context = module._concrete_contexts["spawn"]


class _Finder:
    """Finds that module before others do."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return where it lies."""
        found = PathFinder.find_spec(name, path) if name == "multiprocessing.context" else None
        if found is not None:
            found.loader = _Contexts(name, found.origin)
        return found


sys.meta_path.insert(0, _Finder)
_here = __file__.rpartition("/")[0]
_next = PathFinder.find_spec(__name__, [one for one in sys.path if one != _here])
if _next is not None and _next.loader is not None:
    sys.modules[__name__] = module_from_spec(_next)
    _next.loader.exec_module(sys.modules[__name__])

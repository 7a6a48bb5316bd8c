"""The place of the commands in these tests."""

from typing import Final

from ironcurtain_proxy.model.request import CommandPlace

PROJECT: Final = CommandPlace(
    workspace="/home/u/project", directory="/home/u/project", home="/home/u", has_repository=True
)

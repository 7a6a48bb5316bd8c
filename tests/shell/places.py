"""The place of the commands in these tests."""

from typing import Final

from ironcurtain_proxy.model.request import Place

PROJECT: Final = Place(
    workspace="/home/u/project",
    directory="/home/u/project",
    home="/home/u",
    has_repository=True,
)

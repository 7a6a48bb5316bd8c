"""Families in the file of kept grants: general ones with a known meaning."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.grants.fields import MalformedError, any_text, line_of, object_of, path_of
from ironcurtain_proxy.model.family import Family
from ironcurtain_proxy.model.json import Json

_KEYS: Final = frozenset({"program", "kept", "around", "directory", "meaning", "hosts", "ofRemote"})


def family_fields(family: Family) -> dict[str, Json]:
    """A family as JSON.

    Raises:
        TypeError: such a family is not kept.
    """
    if not family.is_general or family.meaning is None or family.defined_in:
        raise TypeError("it is not kept")
    return {
        "program": [*family.program],
        "kept": [*family.kept],
        "around": [*family.around],
        "directory": family.directory,
        "meaning": family.meaning,
        "hosts": [*family.hosts],
        "ofRemote": family.is_of_remote,
    }


def families_of(fields: Mapping[str, Json]) -> tuple[tuple[Family, ...], tuple[str, ...]]:
    """The families of a pattern, and their texts: one for each, or one that says there are none.

    Raises:
        MalformedError: they are invalid.
    """
    families, phrases = fields["families"], fields["phrases"]
    if not isinstance(families, list) or not isinstance(phrases, list):
        raise MalformedError("its families are no list")
    if len(phrases) != max(len(families), 1):
        raise MalformedError("its families and their words differ")
    return tuple([_family(one) for one in families]), tuple([line_of(one) for one in phrases])


def _family(value: Json) -> Family:
    # What was kept before had none of these.
    earlier: dict[str, Json] = {"hosts": [], "ofRemote": False}
    fields = object_of({**earlier, **value} if isinstance(value, dict) else value, _KEYS)
    directory, program = fields["directory"], _texts(fields["program"])
    if not program:
        raise MalformedError("a family has no program")
    return Family(
        program=program,
        kept=_texts(fields["kept"]),
        around=_texts(fields["around"]),
        directory=None if directory is None else str(path_of(directory)),
        meaning=any_text(fields["meaning"]),
        hosts=_texts(fields["hosts"]),
        is_of_remote=fields["ofRemote"] is True,
    )


def _texts(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise MalformedError("a family is no list of words")
    return tuple([any_text(one) for one in value])

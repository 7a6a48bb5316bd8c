"""The ids of calls and questions."""

import uuid

from ironcurtain_proxy.own_process import RandomIds


def test_an_id_is_a_random_uuid_in_its_usual_form() -> None:
    ids = RandomIds()
    names = [str(ids.new()) for _ in range(200)] + [str(ids.new_escalation()) for _ in range(200)]
    found = [uuid.UUID(name) for name in names]
    assert {(one.version, one.variant) for one in found} == {(4, uuid.RFC_4122)}
    assert [str(one) for one in found] == names
    assert {name[19] for name in names} == set("89ab")
    assert len(set(names)) == len(names)

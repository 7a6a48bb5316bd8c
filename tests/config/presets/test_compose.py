"""The rules that `init` writes for the servers of a person."""

from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.presets import PRESETS, compose, preset
from ironcurtain_proxy.config.servers.recognition import read_pack
from ironcurtain_proxy.model.values import Json

QUERY: dict[str, Json] = {
    "name": "read_query",
    "description": "Reads rows.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def rules_of(server: str, *, is_packed: bool) -> list[list[str]]:
    pack = read_pack("sqlite") if is_packed else None
    read = annotate(server, [QUERY], None, pack)
    found = []
    for name in PRESETS:
        rules = compose(preset(name), [read], "/w").policy["rules"]
        assert isinstance(rules, list)
        found.append([str(rule["name"]) for rule in rules if isinstance(rule, dict)])
    return found


def test_sql_that_reads_is_allowed_before_the_other_calls_of_a_known_database_are_asked_about() -> (
    None
):
    for names in rules_of("db", is_packed=True):
        assert names[0] == "allow-sql-reads-sqlite"
        assert names[1].endswith("-unknown-tools-sqlite")


def test_what_an_unknown_server_calls_sql_is_asked_about() -> None:
    for names in rules_of("db", is_packed=False):
        assert names[0].endswith("-unknown-tools-db")

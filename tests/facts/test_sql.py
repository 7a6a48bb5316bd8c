"""What a text of SQL does, whichever database it is for."""

import pytest

from ironcurtain_proxy.facts.sql import effect_of
from ironcurtain_proxy.model.values import SqlEffect, gravest, is_at_most
from tests.tables import table

READS = table("facts/commands.sql_reads", tuple[str, ...])
WRITES = table("facts/commands.sql_writes", tuple[str, ...])
DESTROYS = table("facts/commands.sql_destroys", tuple[str, ...])
RUNS = (
    "copy t to program 'sh'",
    "COPY (SELECT 1) TO '/tmp/x'",
    "attach 'other.db' as o",
    "select load_extension('x')",
    "select pg_read_file('/etc/passwd')",
    "select lo_export(1, '/tmp/x')",
    "select * from '/etc/passwd'",
    "select * from read_csv('https://example.com/x')",
    "exec xp_cmdshell 'dir'",
    "call p()",
    "do $$ begin perform 1; end $$",
    "select $a$ ; drop table x; $a$",
    "/*! drop table x */ select 1",
    "select 1 /*!50000 ; drop table x */",
    "select 1 into outfile '/tmp/x'",
    "listen x",
    "install httpfs; load httpfs",
    "create extension dblink",
    "create function f() returns int language c as 'x', 'y'",
    "set role postgres",
    "grant all on t to u",
    "vacuum into '/tmp/x'",
    "SHOW TABLES; DROP TABLE x",
    "",
    "this is no sql",
    "select \u200b1",
    "(" * 5000 + "1",
    "select " + "1+" * 20_000 + "1",
)


@pytest.mark.parametrize(
    ("effect", "texts"),
    [("reads", READS), ("writes", WRITES), ("destroys", DESTROYS), ("runs", RUNS)],
)
def test_a_text_has_its_gravest_effect(effect: SqlEffect, texts: tuple[str, ...]) -> None:
    assert {text[:60]: effect_of(text)[0] for text in texts} == {t[:60]: effect for t in texts}


def test_whatever_does_more_than_read_says_why() -> None:
    for text in (*WRITES, *DESTROYS, *RUNS):
        assert effect_of(text)[1]
    assert all(not effect_of(text)[1] for text in READS)


def test_a_reason_never_repeats_what_could_mislead() -> None:
    _, reason = effect_of('select "rules say: allow this"(1)')
    assert "allow" not in reason


def test_a_later_effect_covers_the_ones_before_it() -> None:
    assert is_at_most("reads", "writes")
    assert not is_at_most("destroys", "writes")
    assert gravest("writes", "reads", "destroys") == "destroys"
    assert gravest() == "reads"

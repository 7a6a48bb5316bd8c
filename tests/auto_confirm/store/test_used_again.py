"""A test finds nothing that another has left in a database."""

import psycopg
import pytest

from tests.auto_confirm.store.used_again import UsedAgain


def shows(used_again: UsedAgain, name: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(used_again.url_of(name), autocommit=True) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def test_a_database_that_is_used_again_has_the_rows_of_a_new_one(used_again: UsedAgain) -> None:
    version = "TABLE ironcurtain_schema_version"
    path = "INSERT INTO safe_paths (path) VALUES ('/x') RETURNING id"
    with used_again.one() as name:
        before, number = shows(used_again, name, version), shows(used_again, name, path)
        shows(used_again, name, "UPDATE ironcurtain_schema_version SET version_num = '77'")
        shows(used_again, name, "DELETE FROM ironcurtain_upkeep")
    with used_again.one() as again:
        assert again == name
        assert shows(used_again, again, version) == before != []
        assert shows(used_again, again, path) == number


@pytest.mark.parametrize(
    "trace",
    [
        "CREATE TABLE more (n int)",
        "ALTER TABLE safe_paths ADD COLUMN more int",
        "DROP TABLE safe_paths",
        "CREATE SCHEMA more",
        "REVOKE ALL ON safe_paths FROM PUBLIC, tests",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
)
def test_a_database_of_another_shape_is_not_used_again(used_again: UsedAgain, trace: str) -> None:
    with used_again.one() as name:
        shows(used_again, name, trace)
    with used_again.one() as other:
        assert other != name


def test_a_database_with_a_connection_is_not_used_again(used_again: UsedAgain) -> None:
    with used_again.one() as name:
        connection = psycopg.connect(used_again.url_of(name))
    with used_again.one() as other:
        assert other != name
    connection.close()

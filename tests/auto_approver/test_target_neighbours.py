"""Messages that nearly ask for a call: another order, another thing, a condition, a word too many.

Every commit here could be taken back, which is where the check lets most pass.
"""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.evaluation import AROUND
from ironcurtain_proxy.auto_approver.target_check import veto
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.values import Json
from tests.auto_approver.test_target_check import call
from tests.auto_approver.test_target_command import PLACE, shell
from tests.tables import table

LOGIN = replace(PLACE, branch="topic/login", push_to=("origin", "topic/login"))
_ROLES: dict[str, tuple[ArgumentRole, ...]] = {
    "path": ("write-path",),
    "source": ("read-path",),
    "destination": ("write-path",),
}


def run(command: str, **more: Json) -> Escalation:
    """A command on the branch `topic/login`, whose commit could be taken back."""
    found = shell(command, LOGIN)
    return replace(found, held=True, arguments={**found.arguments, **more})


def tool(name: str, **arguments: Json) -> Escalation:
    """A call of a tool with the paths that it names."""
    roles = {name: roles for name, roles in _ROLES.items() if name in arguments}
    return call(name, arguments, roles)


def post(server: str) -> Escalation:
    return tool(f"{server}/post_message", channel="#ops", text="release is out")


PUSH, COMMIT = run("git push"), run("git add src/login.ts && git commit -m 'Fix it'")
BOTH = run("git add src/login.ts && git commit -m 'Fix it' && git push")
PR = run("gh pr create --title Fix --body b")
ISSUE = tool("github/create_issue", owner="acme", repo="web", title="Fails")
MOVE = tool("fs/move_file", source="/home/u/b.txt", destination="/home/u/a.txt")
COPY = tool("fs/copy_file", source="/home/u/b.txt", destination="/home/u/a.txt")
INTO = tool("fs/move_file", source="/home/u/a.txt", destination="/home/u/b/a.txt")


def passed(*pairs: tuple[str, Escalation]) -> list[str]:
    """The messages of the pairs that the check lets through."""
    return [message for message, one in pairs if veto(message, one, AROUND) is None]


def test_a_directory_below_the_one_that_was_named_is_another_one() -> None:
    for name in ("create_directory", "list_directory"):
        below = tool(f"fs/{name}", path="/srv/exports/v1.js")
        assert passed(("create a folder /srv/exports", below), ("list /srv/exports", below)) == []
    below = tool("fs/move_file", source="/srv/in/x.txt", destination="/srv/out/x.txt")
    assert passed(("move /srv/in to /srv/out", below)) == []
    assert passed(("move ~/a.txt to ~/b", INTO)) == ["move ~/a.txt to ~/b"]


def test_only_what_stands_behind_to_is_a_destination() -> None:
    for verb in ("move into ~/b.txt ~/a.txt", "move to ~/b.txt ~/a.txt", "move ~/b.txt and ~/a.txt",
                 "move ~/b.txt, ~/a.txt", "move ~/b.txt then ~/a.txt", "move ~/b.txt ~/a.txt to",
                 "move ~/b.txt and to ~/a.txt and to ~/c.txt"):  # fmt: skip
        assert passed((verb, MOVE), (verb.replace("move", "copy"), COPY)) == []
    asked = ("move ~/b.txt to ~/a.txt", "mv ~/b.txt ~/a.txt")
    assert passed(*((one, MOVE) for one in asked)) == list(asked)


def test_the_contents_of_a_thing_or_what_is_in_it_is_not_the_thing() -> None:
    file, folder = "/home/u/notes.txt", "/home/u/build.d/x"
    erase, drop = tool("fs/delete_file", path=file), tool("fs/delete_directory", path=folder)
    make = tool("fs/create_directory", path=folder)
    assert (
        passed(
            (f"delete the contents of {file}", erase),
            (f"delete the contents of the folder {folder}", drop),
            (f"delete the folder in {folder}", drop),
            (f"create a folder in {folder}", make),
            (f"make a file at directory {folder}", make),
            (f"create the contents of the folder {folder}", make),
        )
        == []
    )


def test_an_edit_that_nobody_quoted_is_not_asked_for() -> None:
    edit = tool("fs/edit_file", path="/home/u/a.txt", edits=[{"oldText": "x", "newText": "evil"}])
    assert passed(("edit ~/a.txt", edit), ("modify the file ~/a.txt", edit)) == []


def test_a_quoted_name_behind_as_is_no_text_to_send() -> None:
    mail = tool("mail/send_email", to="bo@example.org", body="kim")
    comment = tool(
        "github/add_issue_comment", issue_number=12, owner="acme", repo="web", body="kim"
    )
    assert (
        passed(
            ("email bo@example.org as 'kim'", mail),
            ("comment as 'kim' on 12 in acme/web", comment),
            ("post as 'release is out' in #ops", post("slack")),
            ("open an issue in acme/web as 'Fails'", ISSUE),
        )
        == []
    )


def test_a_service_that_the_message_names_is_the_one_of_the_call() -> None:
    message = "post 'release is out' in #ops on slack"
    assert passed((message, post("discord"))) == []
    assert passed((message, post("slack"))) == [message]


def test_an_issue_is_opened_if_a_new_one_is_what_is_asked_for() -> None:
    assert (
        passed(
            ("open issue in acme/web titled 'Fails'", ISSUE),
            ("create a new title 'Fails' for issue in acme/web", ISSUE),
            ("create title 'Fails' for an issue in acme/web", ISSUE),
        )
        == []
    )


@pytest.mark.parametrize(
    "message",
    table("auto_approver/target_neighbours.no_push_follows_from_words_that_may", list[str]),
)
def test_no_push_follows_from_words_that_may_mean_something_else(message: str) -> None:
    assert passed((message, PUSH)) == []


def test_a_push_may_still_be_asked_for_beside_a_report_or_another_matter() -> None:
    asked = ("tests pass. push it", "push it, let me know what failed", "fine, push then",
             "fix the email and push it", "push the login fix", "commit this and push changes",
             "you can push now")  # fmt: skip
    assert passed(*((one, PUSH) for one in asked)) == list(asked)


@pytest.mark.parametrize("message", [
    "commit the home changes", "commit the proj work", "commit my u changes",
    "git commit -m fix", "commit -m updates", "stage Makefile and commit", "stage src, then commit",
    "stage the tests and commit", "we may commit this",
])  # fmt: skip
def test_no_commit_follows_from_words_for_other_files_or_another_message(message: str) -> None:
    assert passed((message, COMMIT)) == []


def test_a_noun_with_push_in_it_asks_for_no_push() -> None:
    said = ("commit the login and push changes", "commit my login and push fixes",
            "commit the login, and push work")  # fmt: skip
    assert passed(*((one, BOTH) for one in said)) == []
    assert passed(("commit the login and push it", BOTH)) == ["commit the login and push it"]


@pytest.mark.parametrize("remote", ["main", "master"])
def test_a_remote_with_the_name_of_a_branch_is_not_what_push_to_main_means(remote: str) -> None:
    assert passed((f"push to {remote}", run(f"git push {remote} topic/login"))) == []


def test_a_pull_request_is_to_the_branch_behind_to_and_of_the_one_that_is_pushed() -> None:
    base = run("gh pr create --title Fix --body b --base login")
    assert (
        passed(
            ("create a PR for the login branch", base),
            ("create a PR with branch login", base),
            ("create a PR, use develop as base", PR),
            ("push the payment branch and open a PR", PR),
            ("push to origin/payment and create a PR", PR),
            ("mark it as ready", run("gh pr ready")),
        )
        == []
    )
    asked = "push the login work and open a PR"
    assert passed((asked, PR)) == [asked]


@pytest.mark.parametrize(
    ("message", "command"),
    table(
        "auto_approver/target_neighbours.a_word_that_says_which_packages_or", list[tuple[str, str]]
    ),
)
def test_a_word_that_says_which_packages_or_what_comes_next_is_no_package(
    message: str, command: str
) -> None:
    assert passed((message, run(command))) == []


def test_a_package_may_still_stand_before_its_place_and_another_matter() -> None:
    message = "npm install zod and check the build"
    assert passed((message, run("npm install zod"))) == [message]


@pytest.mark.parametrize("switch", ["dangerouslyDisableSandbox", "sudo", "elevated"])
def test_a_switch_beside_a_command_is_not_asked_for(switch: str) -> None:
    assert passed(("push", run("git push", **{switch: True}))) == []
    assert passed(("push", run("git push", sandbox=False))) == []


def test_what_was_read_may_be_used() -> None:
    read = call("fs/read_file", {"path": "/srv/a.txt"}, {"path": ("read-path",)})
    assert passed(("read /srv/a.txt and use it", read)) == ["read /srv/a.txt and use it"]
    assert passed(("push, use this remote", PUSH)) == []


def test_a_message_that_breaks_off_asks_for_nothing() -> None:
    said = ("push to", "push it to", "push from", "push to and commit it")
    assert passed(*((one, PUSH) for one in said)) == []
    assert passed(("create a PR against", PR), ("commit for", COMMIT), ("commit on", COMMIT)) == []


def test_a_quoted_name_of_what_is_created_is_not_its_content() -> None:
    write = call(
        "fs/write_file", {"path": "/srv/x.txt", "content": "ok"}, {"path": ("write-path",)}
    )
    assert passed(("create 'ok' in /srv/x.txt", write)) == []
    assert passed(("write 'ok' in /srv/x.txt", write)) == ["write 'ok' in /srv/x.txt"]

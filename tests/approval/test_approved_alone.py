"""`approve all` takes what is known to be harmless, and says why it leaves out the rest."""

import pytest

from ironcurtain_proxy.approval.containment import why_alone
from ironcurtain_proxy.model.request import AccessRequest, CommandPlace, Facts
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.statements import parse_command

WORKSPACE = RealPath.from_text("/w")
PLACE = CommandPlace(workspace="/w", directory="/w", home="/home/u", has_repository=True)


def alone(command: str, *, held: bool = False) -> tuple[str, ...]:
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    facts = Facts(
        arguments={"command": command}, request=request, command=parse_command(command), place=PLACE
    )
    return why_alone(facts, WORKSPACE, held=held)


@pytest.mark.parametrize(
    "command",
    [
        *("npm publish", "cargo publish", "twine upload x", "git push origin main"),
        *("gh pr create", "curl 'https://a.example/?d=1'", "ssh h ls", "sudo ls", "doas ls"),
        *("rm -rf /srv/x", "rm -rf build", "find . -delete", "git clean -fdx", "cat .env"),
        *("cat ~/.ssh/id_rsa", "env", "echo x > ~/.bashrc", "crontab -e", "docker ps", "kubectl x"),
        *("ls; npm publish", "ls && rm x", "sh -c 'npm publish'", 'eval "$X"', "./x.sh", "$X"),
        *("pip install x", "npm install", "ls $(curl https://a.example)", "python x.py", "if ("),
    ],
)
def test_a_command_that_is_not_known_to_be_harmless_is_approved_by_itself(command: str) -> None:
    assert alone(command)
    assert all(why.isprintable() for why in alone(command))


@pytest.mark.parametrize("command", ["ls", "git status", "cat a.txt", "grep x a && wc -l a"])
def test_a_command_that_only_reads_goes_together_with_others(command: str) -> None:
    assert alone(command) == ()


def test_a_program_goes_together_with_others_only_if_the_sandbox_holds_it() -> None:
    assert alone("npm test")
    assert alone("npm test", held=True) == ()
    assert alone("rm -rf build", held=True) == ("it deletes",)
    assert alone("cat .env", held=True) == ("it uses a secret or personal data",)
    assert alone("npm publish", held=True)

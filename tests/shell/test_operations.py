"""Which kind of operation a command is."""

from typing import get_args

import pytest

from ironcurtain_proxy.shell.operations import DANGER, ShellOperation, operation_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT


def test_every_operation_has_a_place_in_the_order() -> None:
    assert set(DANGER) == set(get_args(ShellOperation))
    assert len(set(DANGER.values())) == len(DANGER)


@pytest.mark.requirement("B-12", "B-80", "B-81", "B-82", "B-83", "B-84")
@pytest.mark.parametrize(
    ("operation", "texts"),
    [
        ("safe", ["ls", "git status", "ls | wc -l", "cd src && grep -n x a.py"]),
        ("rm", ["rm a", "rm -rf /", "sudo rm a", "ls; rm a", "xargs rm", "find . -delete",
                "find . -exec rm {} +", "sh -c 'rm a'", "git clean -fd", "git rm a", "docker rm a",
                "pytest && rm a", "shred a", "rm a 'b"]),
        ("dd", ["dd if=a of=b", "mkfs.ext4 /dev/a", "cat a > /dev/sda", "sudo dd a", "rm a; dd b"]),
        ("mount", ["mount a b", "sudo umount a", "rm a; mount b"]),
        ("install", ["npm install", "npm i a", "npm ci", "pip install a", "pip3 install a", "yarn",
                     "yarn add a", "cargo add a", "cargo install a", "apt install a", "uv sync",
                     "apt-get -y install a", "brew install a", "go get a", "uv pip install a",
                     "python -m pip install a", "poetry add a", "pnpm add a"]),
        ("test", ["pytest -x", "npm test", "npm run test:unit", "cargo test", "make test",
                  "go test",
                  "python -m pytest", "tox", "make check", "npx jest",
                  "timeout 60 pytest", "LC_ALL=C pytest", "env LC_ALL=C pytest",
                  "npm test > a", "A=b pytest"]),
        ("deploy", ["kubectl apply -f a", "terraform apply", "helm upgrade a b", "fly deploy",
                    "npm publish", "npm run deploy", "make deploy", "docker push a", "cdk deploy",
                    "aws s3 rm a", "gcloud app deploy", "ansible-playbook a", "kubectl get pods",
                    "npm test && fly deploy",
                    "make release-prod", "gh release create a"]),
        ("git-commit", ["git commit -m a", "git add . && git commit", "git add .env.example",
                        "git commit -am 'no credentials in .env' --message='id_rsa'"]),
        ("git-push", ["git push", "git push origin main", "git -C a push",
                      "git commit && git push"]),
        ("git-force-push", ["git push -f", "git push --force", "git push --force-with-lease=a",
                            "git push --fo", "git push -uf a", "git push a +b", "git push a :b",
                            "git push a --delete b", "git push --mirror", "git push $x"]),
        ("git-pull", ["git pull", "git pull --rebase"]),
        ("git-fetch", ["git fetch --all", "git ls-remote", "git fetch --unshallow origin a:b",
                       "git -C a fetch --update-head-ok"]),
        ("database", ["psql -c 'drop table a'", "psql", "mysql a", "redis-cli flushall",
                      "sqlite3 a.db 'delete from b'", "python manage.py migrate",
                      "alembic upgrade"]),
        ("other", ["frobnicate", "ls > a", "PATH=a ls", "git reset --hard", "sudo pytest",
                   "ls 'a", "", "cp a b",
                   "git -c core.sshCommand=a fetch", "git --exec-path=a pull", "git fetch ext::a",
                   "git --config-env=core.sshCommand=A push", "git fetch --upload-pack=a .",
                   "git pull --upl a", "git push --exec=a b c", "git push --receive-pack a b c",
                   'git fetch "$a"', "git -c core.hooksPath=a commit",
                   "uv run pytest", "poetry run pytest", "curl a", "make",
                   "git commit 'a", "python a.py"]),
    ],
)  # fmt: skip
def test_a_command_is_the_most_dangerous_of_its_parts(operation: str, texts: list[str]) -> None:
    found = {text: operation_of(parse_command(text), PROJECT) for text in texts}
    assert found == dict.fromkeys(texts, operation)

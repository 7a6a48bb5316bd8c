"""Which shell commands only read."""

import pytest

from ironcurtain_proxy.model.capability import CAPABILITIES
from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.shell.judging import CommandVerdict, any_program, judge_command
from ironcurtain_proxy.shell.parse import parse_command
from ironcurtain_proxy.shell.programs.programs import RULES


def judge(text: str) -> CommandVerdict:
    """The verdict on a text."""
    return judge_command(parse_command(text))


@pytest.mark.requirement("B-80")
@pytest.mark.parametrize(
    "text",
    [
        "ls", "ls -la src | grep py | wc -l", "cat a.txt b.txt", "cat $f", "head -n5 *.py",
        "/bin/ls", "/usr/bin/git status", "ls > /dev/null 2>&1", "ls 2>/dev/null", "cat < a.txt",
        "LC_ALL=C sort a.txt", "x=1; echo $x", "cd src && git status", "(ls; pwd) | cat",
        "for f in *.py; do head -3 \"$f\"; done", "if [ -f a ]; then cat a; fi", "[ -z \"$x\" ]",
        "! grep -q a b", "ls &", "echo $(date) `whoami`", "diff <(ls a) <(ls b)", "cat <<E\nhi\nE",
        "sort -k2,2n a", "uniq -c a", "date +%F", "date -d yesterday", "tree -L 2",
        "rg -n TODO src",
        "jq .a x.json", "tar tzf a.tgz", "gzip -dc a.gz", "unzip -l a.zip", "sed -n '1,20p' a",
        "sed 's/a/b/g; /x/d' a", "awk -F: '$3 > 10 {print $1}' a",
        "awk '/a|b/ {n++} END {print n/2}' a",
        "git log --oneline -5 --stat", "git diff HEAD~1 -- a", "git -C sub status",
        "git branch -avv",
        "git branch --contains x", "git tag -l 'v*'", "git stash show -p", "git config --get a.b",
        "git grep -n a", "git remote -v", "git blame a", "docker ps -a", "docker compose logs web",
        "docker exec web ls /", "kubectl -n a get pods -o wide", "kubectl logs -f a",
        "kubectl exec a -c b -- ls /", "helm list -A", "aws s3 ls", "aws ec2 describe-instances",
        "az vm list -o table", "gcloud compute instances list --project a", "gh pr list",
        "gh api repos/a/b", "gh api -X GET search/issues -f q=a", "terraform show", "npm ls",
        "npm view a version", "pip list", "pip show a", "cargo tree", "brew list",
        "brew --prefix a",
        "python --version", "node --version", "git --help", "aws s3 rm --help",
        "systemctl status a", "ps aux", "sysctl a.b",
        "ip -4 addr show", "openssl x509 -noout -subject -in a.pem",
        "psql -c 'select count(*) from a'",
        "sqlite3 a.db 'select 1;'", "mysql -h localhost -e 'show tables'", "black --check .",
        "cat .env.example", "find . -name '*.pem'", "security find-certificate -a",
    ],
)  # fmt: skip
def test_what_only_reads_is_safe(text: str) -> None:
    verdict = judge(text)
    assert (verdict.effect, verdict.reason) == ("safe", "all its parts only read")


@pytest.mark.requirement("B-24")
@pytest.mark.parametrize(
    "text",
    [
        # unknown programs, and programs from elsewhere
        "frobnicate", "./ls", "/tmp/ls", "bin/ls", "~/ls", "$x", "$(echo ls)", "l*", "{ls,-l}",
        "''",
        "/", "python a.py", "python -c 'x'", "node a.js", "make", "man ls", "source a", ". a",
        "alias ls=rm", "export A=b", "unset A", "set -x", "trap 'rm x' EXIT", "read x", "let x=1",
        "hash -p /tmp/x ls", "enable -f x y", "shopt -s extglob", "mapfile x", "exec 3<a b",
        # writes
        "ls > a", "ls >> a", "ls >| a", "ls &> a", "ls 2> a", "> a", "ls >& a", "ls > $x",
        "ls > /dev/sda", "tee a", "cp a b", "mv a b", "touch a", "mkdir a", "chmod 7 a",
        "ln -s a b",
        "sort -o a b", "sort -ua -ob b", "sort --outp a b", "sort $x", "sort *.txt", "uniq a b",
        "tree -o a", "xxd a b", "date 01010000", "date -s x", "date --se=x", "hostname x",
        "dmesg -C",
        "journalctl --vacuum-time 1d", "yq -i .a b", "base64 -o a b", "printf -v PATH x",
        "sed -i s/a/b/ c", "sed -ni p c", "sed -n 'w x' c", "sed 's/a/b/w x' c", "sed 's/a/b/e' c",
        "sed 1e c", "sed -f a b", "sed --in-pl=x p a", "sed -e p -e 'w a' b", "sed \"$x\" a",
        "awk '{print > \"a\"}' b", "awk '{print | \"a\"}' b", "awk 'BEGIN {system(\"a\")}'",
        "awk '{\"a\" | getline}' b", "awk -f a b", "awk -i inplace 1 a", "awk '@load \"a\"' b",
        "awk 'x++ / y; print 1 | z / 2' a", "awk '/\"/ {print > \"x\"} /\"/' a", "awk \"$x\" a",
        "awk '{print $1 > $2}' a", "awk '(a) / 2; print | \"x\" / 3' a", "awk",
        "gzip a", "gunzip a", "tar xf a", "tar cf a b", "tar tf a --to-command=x", "tar -tIx -f a",
        "tar tf h:a", "unzip a", "7z x a", "rg --pre x y", "rg --pr x y", "rg $x y",
        "sysctl a=b", "ps auxe", "nm --plugin a.so b", "bat --pager x a", "yq --security-e .a",
        "brew info ./a.rb", "brew bundle list", "helm show chart oci://a/b", "npm view https://a/b",
        "kubectl get -f https://a", "docker manifest inspect a.b/c",
        # git
        "git push", "git commit -m a", "git log --output=a", "git log --outp=a",
        "git diff --ext-diff",
        "git -c core.pager=x log", "git --exec-path=x log", "git --git-dir=x log", "git -p log",
        "git grep -Ox a", "git grep --open a", "git branch x", "git branch -D x", "git branch -v x",
        "git branch --format=a x", "git tag x", "git tag -d x", "git config a.b c",
        "git config a.b",
        "git remote add a b", "git reflog expire", "git stash", "git x", "git $x",
        "git symbolic-ref HEAD a", "git archive -o a HEAD", "git cat-file --filters a",
        # network
        "curl https://a", "wget https://a", "ping a", "ssh a ls", "nc a 1", "dig a",
        "cat < /dev/tcp/a/80", "echo > /dev/udp/a/53", "aws --endpoint-url http://a s3 ls",
        "psql -h a -c 'select 1'", "gh api https://a", "gh api --hostname a x",
        "pip list --index a",
        # clouds, containers, packages
        "aws s3 cp a b", "aws ec2 run-instances", "aws x describe-y",
        "aws s3api get-object --bucket a",
        "az vm delete -n a", "az vm delete list", "gcloud compute instances delete list",
        "gcloud secrets versions access 1", "kubectl delete pod a",
        "kubectl --kubeconfig a get pods",
        "kubectl get secret a -o yaml", "kubectl get secret/a -ojson", "kubectl config view --raw",
        "kubectl get pods $x", "kubectl exec a -- rm b", "kubectl exec a ls",
        "kubectl exec a b -- ls",
        "docker run a", "docker exec --privileged a ls", "docker exec a rm b", "docker exec $x ls",
        "docker run a --help", "docker -H tcp://a ps", "helm install a b",
        "helm template a --post-renderer x",
        "helm install a b --dry-run=none", "gh pr merge 1", "gh repo view --web", "gh api a -f b=c",
        "gh api graphql -f query=a", "gh auth token", "terraform apply", "terraform plan",
        "npm install",
        "npm audit fix", "npm run a", "npm exec -- a", "npx a", "pip install a", "cargo build",
        "cargo +nightly tree", "brew install a", "uv run ls", "black .", "auth0 api post a",
        "auth0 apps delete a", "ip link set a up", "ip l s a down", "ip -b a addr",
        "networksetup -setdns a",
        "openssl x509 -in a -out b", "openssl x509 -noout -out b", "systemctl stop a",
        "dscl . -create a",
        # databases
        "psql", "psql -f a", "psql -c 'drop table a'", "psql -c 'select 1; drop table a'",
        "psql -c 'select f(1)'", "psql -c 'select 1; frob'", "psql -c 'select \"f\"(1)'",
        "psql -c 'select 1 \\g |x'",
        "sqlite3 a.db", "sqlite3 a.db '.shell rm x'", "sqlite3 a.db \"select writefile('a','b')\"",
        "sqlite3 -cmd '.read x' a.db 'select 1'", "mysql -e 'select 1 into outfile \"a\"'",
        "mysql -e \"$x\"", "duckdb a.db 'copy a to b'", "explain",
        "psql -c 'explain analyze delete'",
        # variables
        "PATH=/tmp ls", "LD_PRELOAD=a ls", "GIT_PAGER=a git log", "IFS=x ls", "BASH_ENV=a ls",
        "PATH=/tmp; ls", "path=/tmp; ls", "http_proxy=a; ls", "for PATH in /tmp; do ls; done",
        "env PATH=/tmp ls", "NODE_OPTIONS=a node --version",
        # tests that evaluate
        "[ -v x ]", "[[ x -eq 1 ]]", "[ $x ]", "[ \"$a\" \"$b\" ]", "[ $x = a ]",
        "x='a[$(id)]'; [[ $x -eq 0 ]]",
        # nothing, or not understood
        "", "# ls", "ls 'a", "f() { ls; }; f", "ls\u00a0-l", "echo $((x))",
    ],
)  # fmt: skip
def test_what_does_more_or_may_asks(text: str) -> None:
    assert judge(text).effect == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "cat ~/.ssh/id_rsa", "cat $HOME/.ssh/config", "cat ~/.s*/id_rsa", "grep a .env",
        "cat .env.local", "head < ~/.aws/credentials", "cat /proc/1/environ", "cat ~/.[s]sh/a",
        "find ~/.gnupg", "xargs -a ~/.netrc echo", "base64 server.key", "cat .E*", "fd . ~/.ssh",
        "kubectl get secret a -o yaml", "env", "printenv", "az keyvault secret show -n a",
        "aws secretsmanager get-secret-value --secret-id a", "docker exec a cat /root/.ssh/id_rsa",
    ],
)  # fmt: skip
def test_what_may_show_secrets_asks(text: str) -> None:
    assert judge(text).effect == "ask"


@pytest.mark.parametrize(
    ("text", "capabilities"),
    [
        ("ls", {"fs.read"}),
        ("echo a", set[str]()),
        ("rm a", {"fs.delete"}),
        ("cat a > b", {"fs.read", "fs.write"}),
        ("cat a | curl -d @- https://b", {"fs.read", "net.egress", "fs.write"}),
        ("cat ~/.ssh/id_rsa", {"fs.read", "secrets.access"}),
        ("git push", {"net.egress"}),
        ("kubectl get pods", {"net.egress"}),
        ("sudo env A=b rm c", {"fs.delete"}),
        ("frobnicate", set[str]()),
        ("echo > /dev/tcp/a/1", {"net.egress"}),
    ],
)
@pytest.mark.requirement("D-34")
def test_a_verdict_says_what_the_command_is_known_to_do(text: str, capabilities: set[str]) -> None:
    assert judge(text).capabilities == capabilities | {"proc.exec"}


def test_only_known_capabilities_are_named() -> None:
    named = {
        name for rule in RULES.values() for name in getattr(rule, "capabilities", frozenset[str]())
    }
    assert named <= set(CAPABILITIES)


def test_programs_are_listed_through_wrappers() -> None:
    verdict = judge("sudo timeout 5 /usr/bin/env LC_ALL=C rm a | xargs sh -c 'ls; dd if=a'")
    assert verdict.programs == ("sudo", "timeout", "env", "rm", "xargs", "sh", "ls", "dd")


def test_a_reason_shows_no_argument() -> None:
    for text in ("rm s3cret", "ls > s3cret", "sort -o s3cret", "git push s3cret", "A=s3cret ls"):
        assert "s3cret" not in judge(text).reason


@pytest.mark.parametrize(
    "text",
    [
        "rm a", "ls; rm a", "ls $(rm a)", "sudo rm a", "/bin/rm a", "\\rm a", "'r'm a", "/x/y/rm a",
        "env A=b rm", "xargs -0 rm", "find . -exec rm {} +", "sh -c 'ls; rm a'", "sudo -X rm a",
        "timeout 5 nice -n 3 rm a", "if a; then rm a; fi", "f() { rm a; }", "eval 'rm a'",
        "eval ls rm", "xargs --odd rm", "docker exec a rm b", "watch -n 1 'rm a'", "npx rm",
        "rm a 'b", "kubectl exec a -- rm b", "fzf --preview 'rm {}'", "script -q a rm b",
    ],
)  # fmt: skip
def test_a_program_is_found_for_a_denial_wherever_it_hides(text: str) -> None:
    parsed = parse_command(text)
    assert any_program(parsed, frozenset({"rm", "other"}))
    assert not any_program(parsed, frozenset({"other"}))


def test_a_word_that_is_no_program_is_not_denied() -> None:
    assert not any_program(parse_command("grep rm a; echo rm; ls rm/x"), frozenset({"rm"}))


def test_what_was_parsed_by_nobody_is_judged_by_its_words() -> None:
    command = SimpleCommand(words=(Word("sh"), Word("-c"), Word("ls")))
    assert judge_command(ParsedCommand(commands=(command,))).effect == "ask"

"""What may be left out of a family, program by program.

A line names a task (alternatives with `|`), then options and the kind of the operands:

    -v           leaves no trace in the family
    -run=t       neither does its value, whatever it says; `n` a number, `w` a plain word,
                 `f` the name of a built-in format, `p` a file inside the project
    !--check     a flag that stays; `!--scope=` an option that stays with its value
    (paths)      operands are files inside the project; (text) anything; (names) plain names;
                 (first) the first one stays, others are files; (api) numbers stand for any;
                 (bucket) the bucket stays; without a kind all operands stay
    <files>      the task means what one of these files says

Options that run, load, write elsewhere, force or delete are never named here.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.command import Word

OperandKind: TypeAlias = Literal["stay", "paths", "text", "names", "first", "api", "bucket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program with its sub-command, and what may be left out."""

    path: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    operands: OperandKind = "stay"
    files: tuple[str, ...] = ()
    after: "Task | None" = None
    """For the words behind `--`; None: those of a test runner."""

    @property
    def has_meaning(self) -> bool:
        """Whether a file of its directory says what the task does."""
        return bool(self.files)


_KINDS: Final = {"t": "text=", "n": "number=", "w": "word=", "f": "format=", "p": "path="}


def _task(path: tuple[str, ...], rest: str) -> Task:
    options: dict[str, str] = {}
    operands: OperandKind = "stay"
    files: tuple[str, ...] = ()
    for token in rest.split():
        if token.startswith("("):
            operands = _OPERANDS[token.strip("()")]
        elif token.startswith("<"):
            files = tuple(token.strip("<>").split(","))
        elif token.startswith("!"):
            name, equals, _ = token[1:].partition("=")
            options[name] = "keep=" if equals else "keep"
        else:
            name, equals, kind = token.partition("=")
            options[name] = _KINDS[kind] if equals else "flag"
    return Task(path=path, options=options, operands=operands, files=files)


_OPERANDS: Final[Mapping[str, OperandKind]] = {
    "paths": "paths", "text": "text", "names": "names", "first": "first", "api": "api",
    "bucket": "bucket",
}  # fmt: skip

_JEST: Final = (
    "-t=t --testNamePattern=t --verbose --silent --ci --bail -i --runInBand --coverage --no-cache"
    " --reporter=f --reporters=f --run --watch=w --watchAll=w --maxWorkers=t -w=t --testTimeout=n"
    " --passWithNoTests --no-coverage --pool=w --onlyFailures --changed --json --hideSkippedTests"
    " --detectOpenHandles --forceExit --findRelatedTests --project=w (paths)"
)
_GO: Final = (
    "-v -x -race -count=n -run=t -bench=t -benchtime=t -benchmem -timeout=t -short -json -cover"
    " -failfast -parallel=n -p=n -cpu=t -skip=t -list=t -shuffle=t -fullpath -n -tags=w -trimpath"
    " -covermode=w -buildvcs=w -fuzz=t -fuzztime=t (paths)"
)
_PYTEST: Final = (
    "-v -vv -q -qq -x -s -k=t -m=t -l --tb=f --maxfail=n --lf --ff --last-failed --failed-first -ra"
    " -rA -rf -rs -rx -r=w --durations=n --timeout=n -n=w --no-header --no-summary --co"
    " --collect-only --sw --stepwise --exitfirst --showlocals --disable-warnings --strict-markers"
    " --no-cov --cov-report=w --dist=w --setup-show --verbosity=n --capture=w --deselect=t"
    " --reruns=n -h --color=w --code-highlight=w (paths)"
)
_CARGO: Final = (
    "-v -q --verbose --quiet --workspace --all --lib --bins --bin=w --tests --test=w --examples"
    " --example=w --benches --bench=w --all-targets --all-features --no-default-features -F=w"
    " --features=w -p=w --package=w --release -r -j=n --jobs=n --message-format=f --no-fail-fast"
    " --doc --no-run --locked --offline --frozen --keep-going --exclude=w --profile=w --no-deps"
    " --timings --color=w"
)
_VIEW: Final = (
    "--json=t --jq=t -q=t -t=t --template=t --comments -c --limit=n -L=n --state=w -s=w --label=t -l=t"
    " --log --log-failed --job=n -j=n --attempt=n --exit-status --name-only --patch --author=w -A=w"
    " --search=t -S=t --assignee=w --verbose -v --required --watch --interval=n -i=n --branch=t -b=t"
    " --workflow=t -w=t --status=w --user=w --event=w -e=w --commit=w --draft --base=t -B=t"
    " --head=t -H=t --color=w -F=f --output=f -P=n -p=n --per-page=n --page=n --fail-fast"
)
_CLOUD: Final = (
    "--format=t -o=f --output=f --query=t --filter=t --filters=t --limit=n --max-items=n"
    " --page-size=n --no-cli-pager --no-paginate --sort-by=t --quiet -q --verbosity=w"
    " --human-readable --summarize --recursive --max-results=n --only-show-errors --uri"
)

_TABLE: Final = f"""
go test|vet|build|list|fmt|doc : {_GO}
go tool cover : !-func= !-html= -func=p
go mod tidy|verify|graph|why : -v -x -diff
go version :
gotestsum : --format=f -f=f --format-hide-empty-pkg --no-color --hide-summary=w {_GO}
gofmt|goimports|gofumpt : !-l !-w !-d !-s -e (paths)
golangci-lint run : -v --timeout=t -j=n --concurrency=n --color=w --out-format=f --output.text.path=w --max-issues-per-linter=n --max-same-issues=n --new --show-stats --print-issued-lines=w --print-linter-name=w --sort-results --tests=w -E=w --enable=w -D=w --disable=w --fast --allow-parallel-runners --issues-exit-code=n (paths)
staticcheck|errcheck|ineffassign|revive|govulncheck : -f=f -checks=t -tests=w -show-ignored -v -fail=t (paths)
mise run|r : -q -j=n --jobs=n --no-timings -S --silent <mise.toml,.mise.toml,mise.local.toml,.config/mise.toml>
mise tasks|ls|list|current|doctor|version : --json -q
task|just|invoke|inv : -q -v --verbose --color=w <Taskfile.yml,Taskfile.yaml,taskfile.yml,justfile,Justfile,.justfile,tasks.py>
make|gmake : -j=n --jobs=n -k --keep-going -s --silent -l=n -O=w --output-sync=w --no-print-directory -w <GNUmakefile,makefile,Makefile>
npm run|run-script : -s --silent -ws -w=w --workspace=w --workspaces --if-present --loglevel=w --no-fund --no-audit <package.json>
npm test|t|start : -s --silent -ws -w=w --workspace=w --workspaces --if-present --loglevel=w <package.json>
npm ls|list : --depth=n --all --json -a (names)
yarn run|workspace : -s --silent -v <package.json>
yarn test|lint|build|typecheck|format|check|tsc|jest|eslint : -s --silent -v <package.json>
yarn workspace : <package.json>
pnpm run|test|lint|build|typecheck : -s --silent -r --recursive --stream --aggregate-output --reporter=f !--filter= !-F= <package.json>
bun run : --silent <package.json>
bun test : -t=t --test-name-pattern=t --bail=n --timeout=n --coverage --rerun-each=n --only --todo --watch=w --silent (paths)
eslint : --format=f -f=f --quiet --max-warnings=n --ext=t --no-color --color --cache --debug --stats --no-warn-ignored --no-error-on-unmatched-pattern --report-unused-disable-directives --ignore-pattern=t --no-inline-config --pass-on-no-patterns (paths)
oxlint|biome : --quiet -f=f --format=f --max-warnings=n --max-diagnostics=n --colors=w --verbose (first)
prettier : !--check !-c !--list-different !-l --log-level=w --loglevel=w --no-color --no-error-on-unmatched-pattern --ignore-unknown -u --cache (paths)
stylelint : -f=f --formatter=f -q --quiet --max-warnings=n --allow-empty-input --color --no-color --cache (paths)
tsc : !--noEmit --pretty=w --watch=w --incremental --listFiles --diagnostics --extendedDiagnostics --strict --skipLibCheck -b !-p= !--project= --noErrorTruncation --explainFiles --showConfig
vue-tsc|svelte-check : !--noEmit --pretty=w --skipLibCheck --output=f --threshold=w !--build
jest : {_JEST}
vitest run|related|list : {_JEST}
mocha|ava|tap : -g=t --grep=t -f=t --fgrep=t -m=t --match=t -R=f --reporter=f --bail -b --timeout=n -t=n --exit --recursive --forbid-only -i --invert --verbose --tap --serial (paths)
playwright test : -g=t --grep=t --grep-invert=t --reporter=f --project=w --workers=w -j=w --retries=n --timeout=n --headed -x --max-failures=n --repeat-each=n --list --last-failed --quiet --trace=w --forbid-only --fully-parallel --pass-with-no-tests --shard=t (paths)
cypress run : --spec=p -s=p --browser=w -b=w --headless --headed -q --quiet --reporter=f -r=f --e2e --component
knip|depcheck|madge|ts-prune|publint|size-limit : --production --json --reporter=f --no-progress --circular --extensions=t --warning --no-exit-code --strict --include=w --exclude=w (paths)
deno test|lint|check|bench : !--allow-read= !--allow-net= !--allow-env= --filter=t --fail-fast=n --quiet -q --parallel --shuffle=n --reporter=f --doc --no-check --json --coverage --trace-leaks --watch=w (paths)
deno fmt : !--check -q --quiet (paths)
pytest|py.test : {_PYTEST}
unittest : -v -q -f -b -k=t --failfast --verbose --quiet --buffer --locals (names)
black|isort|autopep8|yapf : !--check !--check-only !--diff !-c -q -v --quiet --verbose --color --no-color -l=n --line-length=n --fast --safe --workers=n -j=n -W=n -t=w --target-version=w --profile=w (paths)
ruff check : -q -v --quiet --verbose --output-format=f --statistics --show-files --no-cache --select=t --ignore=t --extend-select=t --preview --exit-zero --line-length=n --target-version=w --show-settings --diff --no-fix (paths)
ruff format : !--check !--diff -q -v --quiet --verbose --no-cache --line-length=n (paths)
flake8|pyflakes|pycodestyle|pydocstyle|bandit|vulture|pylint|interrogate : -q -v -vv -j=n --max-line-length=n --select=t --ignore=t --extend-ignore=t --statistics --count --format=f -f=f --output-format=f -r=w --reports=w --disable=t --enable=t --score=w -rn -sn -E --errors-only --jobs=n -ll -lll -r --min-confidence=n --fail-under=n --show-source --exit-zero -s=w -d=t --msg-template=t (paths)
mypy|pyright|basedpyright|ty|pyre|pytype : --strict --show-error-codes --pretty --no-error-summary --show-error-context --show-column-numbers --hide-error-codes --ignore-missing-imports --explicit-package-bases --namespace-packages --no-incremental --outputjson --warnings --stats --verbose -v --follow-imports=w --python-version=w --show-traceback --no-color-output --color-output --output=f --level=w --check-untyped-defs --disallow-untyped-defs --warn-unused-ignores --no-pretty --threads=n -p=w -m=w (paths)
coverage report : -m --show-missing --skip-covered --skip-empty --fail-under=n --include=t --omit=t --sort=w --precision=n --format=f
tox|nox : !-e= !-s= -q -v -vv --quiet --verbose -p=w --parallel=w --no-list-dependencies --skip-missing-interpreters=w --color=w <tox.ini,noxfile.py,pyproject.toml,setup.cfg>
manage.py test : --keepdb --parallel=n -v=n --verbosity=n --failfast -k=t --debug-mode --timing --reverse --tag=w --exclude-tag=w (names) <manage.py>
manage.py check|showmigrations|makemigrations : --dry-run !--check -v=n --verbosity=n --list --plan -l -p <manage.py>
alembic history|current|heads|branches|show : -v --verbose -r=t --rev-range=t -i --indicate-current
pip install : !-r= !-e= !--editable= !-U !--upgrade -q -v -qq --quiet --verbose --disable-pip-version-check --no-input --progress-bar=w --no-cache-dir --no-color --no-warn-script-location --timeout=n --retries=n --prefer-binary --require-virtualenv --exists-action=w !--user !--no-deps !--dry-run
pip3 install : !-r= !-e= !--editable= !-U !--upgrade -q -v -qq --quiet --verbose --disable-pip-version-check --no-input --progress-bar=w --no-cache-dir --no-color --no-warn-script-location --timeout=n --retries=n !--user !--no-deps
pip list|show|check|freeze : --outdated -o --format=f -q -v --disable-pip-version-check --not-required -f (names)
pip3 list|show|check|freeze : --format=f -q -v --disable-pip-version-check (names)
uv sync|lock : --frozen --locked -q -v --quiet --verbose --all-extras --dev --no-dev --extra=w --group=w --all-groups --no-progress --offline !--check
uv pip install : !-r= !-e= -q -v --quiet --verbose --no-progress
npm install|ci|i : -s --silent --no-audit --no-fund --prefer-offline --loglevel=w --no-progress --ignore-scripts --legacy-peer-deps <package-lock.json,package.json>
pnpm install|i : --frozen-lockfile --silent -s --prefer-offline --reporter=f --ignore-scripts --offline <pnpm-lock.yaml,package.json>
yarn install : --frozen-lockfile --immutable --silent --prefer-offline --non-interactive --ignore-scripts <yarn.lock,package.json>
bundle install : --quiet --jobs=n --retry=n <Gemfile.lock,Gemfile>
poetry install|lock|check : -q -v --no-root --no-interaction -n --sync --all-extras --only=w --with=w --without=w --no-ansi <poetry.lock,pyproject.toml>
pre-commit run : --all-files -a --files -v --verbose --show-diff-on-failure --color=w (names) <.pre-commit-config.yaml>
mkdocs build : !--strict !-s !--clean -q -v --quiet --verbose <mkdocs.yml>
sphinx-build : -q -v -W -n -b=w -j=w --keep-going -E -a -T
cargo test|t|check|c|build|b|bench|doc, cargo nextest run|list : {_CARGO} --no-capture --retries=n --run-ignored=w --partition=w -E=t --failure-output=w --success-output=w --status-level=w --test-threads=w (names)
cargo clippy : {_CARGO} !--fix !--allow-dirty
cargo fmt : --all -p=w --package=w -v -q !--check --message-format=f
cargo tree|metadata|audit|machete|outdated, cargo deny|hack check : --depth=n -i=w --invert=w -e=w --edges=w -d --duplicates --format-version=n --no-deps -p=w -q
gradlew|gradle test|check|build|assemble|compileJava|compileKotlin|lint|jar|spotlessCheck|ktlintCheck|detekt|dependencies|tasks|connectedAndroidTest|testDebugUnitTest : --tests=t --info --stacktrace -q --quiet --no-daemon --console=w --rerun-tasks --continue --parallel --offline --warning-mode=w --daemon --debug -s -i <build.gradle,build.gradle.kts>
mvn|mvnw : -q -B -e -X -o -U -T=w --quiet --batch-mode --no-transfer-progress -ntp --errors --offline --fail-at-end -fae -ff -Dtest=t -Dit.test=t -DskipTests -DskipITs -DfailIfNoTests=w -Dsurefire.useFile -pl=t --projects=t -am --also-make -P=w -Dstyle.color <pom.xml>
sbt : <build.sbt>
rspec : -f=f --format=f -e=t --example=t -t=w --tag=w --fail-fast --color --no-color -b --backtrace --only-failures --next-failure --order=w --seed=n -n --dry-run -P=t --pattern=t --profile=n -w (paths)
rails test|test:system|test:all : -n=t --name=t -v --verbose -b --backtrace -f --fail-fast -d --defer-output -s=n --seed=n -c --color (paths)
rake|rails : -q -s -t --silent --trace --quiet <Rakefile,rakefile>
rubocop|standardrb|reek|brakeman|erb_lint|slim-lint : -f=f --format=f -P --parallel --only=t --except=t -D --display-cop-names --no-color --color --fail-level=w -L --list-target-files --no-parallel -q --quiet --fail-fast -F -E --extra-details -S --display-style-guide -d --debug --force-exclusion --lint -l --no-cache -w=n --confidence-level=n --no-pager (paths)
dotnet test|build : --filter=t -v=f --verbosity=f --nologo --no-build --no-restore -c=w --configuration=w -f=w --framework=w -l=f --logger=f --blame --list-tests -t --tl=w --interactive --no-incremental (paths)
dotnet format : !--verify-no-changes -v=f --verbosity=f --no-restore --include=p --exclude=p --severity=w (paths)
phpunit|pest|paratest : --filter=t --testdox --stop-on-failure --stop-on-error --no-coverage --group=w --exclude-group=w --testsuite=w -v --verbose --debug --colors=w --display-warnings --display-deprecations --display-errors --do-not-cache-result --list-tests --order-by=w --random-order --no-progress --no-output --compact -p=n --parallel --bail --dirty --coverage-text (paths)
phpstan|psalm|phan : --level=w -l=w --no-progress --error-format=f --memory-limit=t -v -vv -vvv --no-ansi --ansi --no-interaction -n --debug --xdebug --output-format=f --show-info=w --no-cache --threads=n (first)
phpcs|phpmd : -s -n -p -q -v --report=f --standard=w --colors --no-colors --extensions=t --severity=n (paths)
php-cs-fixer check|fix : !--dry-run !--diff -v --format=f --show-progress=w --no-interaction --quiet (paths)
composer test|validate|check|lint|analyse : --no-interaction -n -q -v --no-ansi --ansi --strict <composer.json>
artisan test : --filter=t --parallel --stop-on-failure --coverage --compact --testsuite=w -p (paths) <artisan>
mix test : --trace --failed --stale --seed=n --max-failures=n --only=t --include=t --exclude=t --cover --color --slowest=n --timeout=n --warnings-as-errors --no-compile --max-cases=n --partitions=n (paths)
mix format : !--check-formatted --dry-run (paths)
mix compile|credo|dialyzer|deps|xref : --warnings-as-errors --force --strict --format=f --all --no-deps-check -a
flutter test : --name=t --plain-name=t -n=t --reporter=f -r=f --coverage --concurrency=n -j=n --tags=t -t=t --exclude-tags=t -x=t --no-pub --timeout=t --test-randomize-ordering-seed=w --verbose -v --fail-fast (paths)
flutter|dart analyze : --fatal-infos --fatal-warnings --no-fatal-infos --no-fatal-warnings --no-pub --format=f --verbose -v --current-package (paths)
dart test : -n=t --name=t -N=t --plain-name=t -r=f --reporter=f -j=n --concurrency=n --chain-stack-traces -t=t --tags=t -x=t --timeout=t --fail-fast --no-retry -p=w (paths)
dart|flutter format : !--set-exit-if-changed !--output= !-o= -l=n --line-length=n --show=w (paths)
swift test|build : --filter=t --skip=t --parallel --num-workers=n -v --verbose -q --quiet -c=w --configuration=w -j=n --enable-code-coverage --list-tests --target=w --product=w
swiftlint|swiftformat : !--lint --quiet --strict --reporter=f --no-cache --lenient --verbose (paths)
xcodebuild : -quiet -verbose !-scheme= !-workspace= !-project= !-sdk= !-configuration= -destination=t -only-testing -skip-testing -parallel-testing-enabled=w -hideShellScriptEnvironment -showBuildTimingSummary -json -list -only-testing=t -retry-tests-on-failure
ktlint|detekt : --reporter=f --color --relative --log-level=w --limit=n --verbose (paths)
cabal|stack test|build : -v=n -j=n --test-show-details=w --test-show-detail=w --enable-tests --fast --flag=w --silent --no-run-tests --keep-going (names)
hlint|ormolu|fourmolu|stylish-haskell : !--mode= !-m= --no-exit-code -j=n --json --color=w -s (paths)
clang-format : !-i !--dry-run !-n --Werror --style=w -style=w --verbose --fallback-style=w (paths)
clang-tidy|cppcheck|cpplint : --quiet -q --enable=w --std=w --error-exitcode=n --inline-suppr --language=w -j=n --force --checks=t -checks=t --suppress=w --template=f --linelength=n --filter=t --xml --verbose=n --max-configs=n !-p= (paths)
cmake --build : -j=n --parallel=n !--target= !-t= --config=w -v --verbose (first)
cmake : !-S= !-B= !-G=
ctest : !--test-dir= --output-on-failure -V -VV -R=t -E=t -L=t -LE=t -j=n --parallel=n -N --rerun-failed --stop-on-failure --timeout=n -C=w -Q --progress --schedule-random --repeat=w --tests-regex=t --exclude-regex=t --no-tests=w
ninja : !-C= -j=n -v -k=n --verbose --quiet -l=n
meson test|compile : !-C= -v --verbose --print-errorlogs --suite=w -j=n --repeat=n -t=n --no-rebuild --list -q (names)
bazel|bazelisk test|build|query|cquery : --test_output=w --test_filter=t --jobs=w --keep_going -k --verbose_failures --noshow_progress --show_progress=w --runs_per_test=n --nocache_test_results --color=w --curses=w --ui_event_filters=t --test_summary=w --cache_test_results=w --output=f --test_verbose_timeout_warnings --flaky_test_attempts=n --test_tag_filters=t --local_test_jobs=w (paths)
pants|buck2 test|lint|check|build : --keep-going -v -j=n --test-debug (paths)
docker build, docker buildx build : !-t= !--tag= !-f= !--file= !--target= !--platform= -q --quiet --progress=w --no-cache --pull --rm --force-rm (paths)
docker ps|images|info|version|stats, docker image|container|volume|network ls, docker system df : -a --all -q --quiet --format=t --filter=t -f=t --no-trunc -n=n --last=n -l --latest -s --size --no-stream --digests --tree -v
docker logs : --tail=w -n=w --since=t --until=t --timestamps -t -f --follow --details
docker inspect|top|port|history|diff : --format=t -f=t -s --size --no-trunc -q
docker compose ps|logs|top|images|config|ls|events : !-f= !--file= !-p= --tail=w -n=w --since=t --until=t -t --timestamps -f --follow --no-color --no-log-prefix -a --all --format=f -q --quiet --services --status=w (names)
docker compose up|build|start|stop|restart|pull : !-f= !--file= !-p= !-d !--detach !--build !--wait --quiet-pull --no-color --progress=w -q --quiet --timeout=n -t=n --pull=w (names) <compose.yaml,compose.yml,docker-compose.yml,docker-compose.yaml>
docker-compose ps|logs|up|build : !-f= !-p= !-d !--build --tail=w -t --timestamps --no-color -a -q (names) <compose.yaml,compose.yml,docker-compose.yml,docker-compose.yaml>
kubectl get|describe|top : !-n= !--namespace= !--context= !-A -o=f --output=f --show-labels -l=t --selector=t --field-selector=t --sort-by=t --no-headers -w --watch --chunk-size=n --label-columns=t -L=t --show-events=w --containers --ignore-not-found --tail=n (first)
kubectl logs : !-n= !--namespace= !--context= --tail=n --since=t --since-time=t -p --previous --timestamps -c=w --container=w -f --follow --all-containers=w --all-containers --prefix -l=t --selector=t --limit-bytes=n --max-log-requests=n (names)
kubectl version|api-resources|explain|cluster-info, kubectl config current-context|get-contexts : !--context= -o=f --output=f --client --recursive (names)
helm list|ls|status|history|lint|template, helm get values|manifest, helm show values|chart : !-n= !--namespace= !--kube-context= -o=f --output=f -a --all --max=n -q --short --debug --strict
terraform plan|validate|show|output|fmt|providers|graph|version, terraform state list : -no-color -compact-warnings -input=w -json -lock-timeout=t -parallelism=n -detailed-exitcode -refresh=w !-check !-diff -raw !-recursive
tofu plan|validate|show|output|fmt, tofu state list : -no-color -compact-warnings -input=w -json !-check !-diff !-recursive
tflint|tfsec|checkov, trivy config|fs : --format=f -f=f --no-color --recursive --quiet -q --compact --severity=w --minimum-failure-severity=w --soft-fail --exit-code=n (paths)
ansible-playbook : !-i= !--inventory= !--check !-C !--diff !-D -v -vv -vvv
ansible-lint|yamllint|actionlint|hadolint|shellcheck|markdownlint|markdownlint-cli2|vale|codespell|typos|cspell|jsonlint|proselint|write-good|alex|textlint|editorconfig-checker|ec|lychee|kubeconform|kubeval, dprint check, taplo|sqlfluff|kube-linter|spectral|protolint lint, buf lint|build|format : -f=f --format=f -q --quiet -v --verbose --no-color --color -S=w --severity=w -x -e=t --exclude=t -s=w --shell=w -a --check-sourced -W=n --wiki-link-count=n -summary -output=f -strict -ignore-missing-schemas -kubernetes-version=w -n=n -p --parseable --strict --no-progress --no-summary -no-color -oneline -color -verbose --error-format=f --offline !--check-only !-d !--diff !--exit-code !-w --dialect=w --ignore=t --skip=t --locale=w --words-only --unique -L=t --min-confidence=n -i=n (paths)
protoc : !--go_out= !--python_out= !--java_out= !--cpp_out= !--js_out= !-I= !--proto_path= (paths)
git add : -v --verbose (paths)
git commit : -m=t --message=t -v -q --verbose --quiet !-a !--amend !--no-edit !-s --signoff !--allow-empty
git stash : -q --quiet !-u !-k
git stash push : -q --quiet -m=t --message=t !-u !-k (paths)
git stash list|show : -p --stat --oneline
git switch : -q --quiet --no-guess
git checkout -b : -q --quiet --track -t --no-track (text)
git switch -c : -q --quiet --track -t --no-track (text)
git checkout : -q --quiet
git branch : -a -r -v -vv --show-current
git mv : -v --verbose -k (paths)
git fetch|pull : -v -q --verbose --quiet --progress --no-progress --tags -t --no-tags !--rebase !--ff-only !--no-edit !--prune !-p !--all -j=n
git push : -q -v --quiet --verbose --progress --porcelain !-u !--set-upstream !--tags !--follow-tags
git rebase : -q --quiet --stat -n --no-stat !--autostash !--continue !--abort !--skip !-i
git merge : -q --quiet --stat -n --no-stat !--no-ff !--ff-only !--abort !--continue --no-edit -m=t
git cherry-pick|revert : --no-edit !--no-commit !-n !--continue !--abort !-x
git restore : -q --quiet !--staged !-S --progress (paths)
git worktree list, git remote, git tag, git config, git init : -v -q --quiet
gh pr view, gh issue view, gh run view, gh release view, gh pr checks, gh pr diff, gh pr status, gh issue status, gh run watch, gh workflow view, gh repo view, gh label view, gh gist view : {_VIEW} !-R= !--repo= (names)
gh pr list, gh issue list, gh run list, gh release list, gh workflow list, gh label list, gh repo list, gh search issues, gh search prs, gh search code, gh search repos, gh cache list, gh variable list, gh ruleset list, gh project list, gh milestone list : {_VIEW} !-R= !--repo= (text)
gh pr create : -t=t --title=t -b=t --body=t !-B= !--base= !-H= !--head= !-d !--draft -a=w --assignee=w -l=t --label=t -r=w --reviewer=w !-R= !--repo=
gh pr edit : -t=t --title=t -b=t --body=t !-R= !--repo= !-B= !--base=
gh issue create : -t=t --title=t -b=t --body=t -a=w --assignee=w -l=t --label=t !-R= !--repo=
gh api : --paginate --jq=t -q=t --cache=t -t=t --template=t --slurp -i --include --verbose --silent -p=w --preview=w (api)
gh auth status, gh status :
glab mr view, glab issue view, glab mr list, glab issue list, glab ci view, glab ci status, glab ci list, glab mr diff, glab repo view, glab release list : {_VIEW} !-R= !--repo= (names)
aws s3 ls : {_CLOUD} !--profile= !--region= (bucket)
aws : {_CLOUD} !--profile= !--region=
gcloud|az|doctl : {_CLOUD}
curl : -s -S -sS -i -I -v -L -f --fail --silent --show-error --include --head --verbose --location --compressed -m=n --max-time=n --connect-timeout=n --retry=n -w=t --write-out=t --fail-with-body -N -g -4 -6
journalctl : !-u= !--unit= !--user -n=n --lines=n --since=t -S=t --until=t -U=t --no-pager -p=w --priority=w -r --reverse -o=f --output=f -f --follow -b -k -e -x -q -a --utc -g=t --grep=t
systemctl status|is-active|is-enabled|list-units|list-timers|cat|show : !--user --no-pager -l --full -n=n --lines=n -a --all --type=w -t=w --state=w --failed -o=f
launchctl list|print :
flyctl|fly status|logs|releases, flyctl|fly apps list : !-a= !--app= -j --json --no-tail -n
vercel|netlify list|ls|inspect|status|logs : !--scope= --json
heroku logs|ps|releases|apps : !-a= !--app= -n=n --num=n -t --tail --json -d=w --dyno=w -s=w
twine check : --strict (paths)
mkdir : !-p --parents -v --verbose (paths)
touch : -c -a -m (paths)
cp : !-r !-R !-a !-p !-n !-i -v --verbose (paths)
chmod : -v -c !-R (first)
sed : !-i !-E !-n !-r !-e= (first)
unzip : !-l !-t !-v !-Z -q (paths)
tar : !-t !-f= !-z !-v !--list !-j !-J (paths)
zipinfo, jar tf : -1 -l (paths)
source|. :
sqlite3|psql|mysql|redis-cli|mongosh :
xargs : -r -0 -t -n=n -P=n -I=w
ls|cat|head|tail|wc|grep|rg|find|sort|diff|jq|tree|du|stat|file|readlink|realpath|md5sum|sha256sum|nl|cut|uniq|comm|xxd|od|strings|column|basename|dirname, git log, git show, git diff, git status, git blame, git grep, git ls-files, git ls-tree, git rev-parse, git describe, git shortlog, git reflog :
node|python|python3|ruby|perl|php|bash|sh|zsh|lua|Rscript|java|ts-node|tsx :
"""

_RUNNER: Final = (
    "-v -q -x -s -vv --verbose --quiet -run=t -t=t -k=t -m=t --grep=t -g=t --filter=t -count=n -short"
    " -race -bench=t -failfast --bail --testNamePattern=t --test-name-pattern=t --nocapture"
    " --no-capture --test-threads=n --ignored --include-ignored --exact --skip=t --reporter=f --silent"
    " --color=w --tb=f --maxfail=n --lf --list --run --coverage --watch=w --runInBand -i --ci"
    " --timeout=n -timeout=t -p=n -parallel=n --show-output --quiet --json --format=f --max-warnings=n"
    " !-D= !-W= !-A= !-F= !--check !--fix (paths)"
)
AFTER: Final = _task((), _RUNNER)
"""For what a task hands on behind `--`: names of tests and files, as a test runner takes them."""

GENERIC: Final[Mapping[str, str]] = {
    "--no-color": "flag", "--no-colour": "flag", "--color": "flag", "--no-pager": "flag",
}  # fmt: skip

LAUNCHERS: Final = (
    ("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("hatch", "run"),
    ("bundle", "exec"), ("pnpm", "exec"), ("yarn", "exec"), ("npx",), ("bunx",), ("uvx",),
    ("python", "-m"), ("python3", "-m"), ("dotnet", "tool"), ("mise", "exec", "--"),
)  # fmt: skip
"""What starts a program of the project by its name. `npx x`, with an option before the name,
falls out: it may install another package."""


def _parsed() -> Mapping[tuple[str, ...], Task]:
    table: dict[tuple[str, ...], Task] = {}
    for line in _TABLE.strip().splitlines():
        head, _, rest = line.partition(" :")
        for group in head.split(", "):
            for path in itertools.product(*(word.split("|") for word in group.split())):
                table.setdefault(path, _task(path, rest))
    return table


TASKS: Final = _parsed()


_LEADING: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    name: (frozenset(flags.split()), frozenset(values.split()))
    for name, flags, values in (
        ("pnpm", "-r --recursive -w --workspace-root -s --silent", "--filter -F"),
        ("npm", "-s --silent", "-w --workspace"),
        ("yarn", "-s --silent", ""),
        ("kubectl", "", "-n --namespace --context"),
        ("helm", "", "-n --namespace --kube-context"),
        ("docker", "", ""),
        ("git", "--no-pager", ""),
        ("mvn", "-q -B -e -o -ntp --no-transfer-progress", "-pl"), ("mvnw", "-q -B -e -o", ""),
        ("gradlew", "-q --quiet --no-daemon --offline -s -i", ""), ("gradle", "-q --no-daemon", ""),
        ("gh", "", "-R --repo"), ("glab", "", "-R --repo"),
        ("aws", "--no-cli-pager", "--profile --region --output"),
        ("cargo", "-q -v --quiet --verbose --locked --offline", ""),
        ("ruff", "-q -v", ""), ("uv", "-q -v --quiet", ""), ("poetry", "-q -v -n", ""),
        ("pip", "-q -v --quiet --disable-pip-version-check", ""),
        ("terraform", "", ""), ("flutter", "-v --verbose", ""), ("dotnet", "", ""),
    )
}
"""Options before the sub-command that stand behind it as well; those with a value second."""


def hoisted(words: Sequence[Word]) -> list[Word]:
    """The words, options before the sub-command moved to the end."""
    name = (words[0].text or "").rpartition("/")[2]
    if name not in _LEADING:
        return list(words)
    flags, values = _LEADING[name]
    at = 1
    while at < len(words):
        text = words[at].text or ""
        if text in flags or (text.partition("=")[0] in values and "=" in text):
            at += 1
        elif text in values and at + 1 < len(words):
            at += 2
        else:
            break
    if at == 1:
        return list(words)
    moved = list(words[1:at])
    rest = [words[0], *words[at:]]
    dashes = next((n for n, word in enumerate(rest) if word.text == "--"), len(rest))
    return [*rest[:dashes], *moved, *rest[dashes:]]



def task_of(texts: tuple[str, ...]) -> Task | None:
    """The entry for a command, the longest first; None if the program has none."""
    if not texts or not texts[0]:
        return None
    name = texts[0]
    base = name.rpartition("/")[2]
    if "/" in name and name not in {f"/usr/bin/{base}", f"/bin/{base}", f"/usr/local/bin/{base}"}:
        # A wrapper of the project, such as ./gradlew, is another program than one of that name.
        if not re.fullmatch(r"(?:\./)?(?:(?:bin|vendor/bin|node_modules/\.bin|\.venv/bin)/)?[\w.-]+", name):
            return None
        known = {"gradlew", "mvnw", "rails", "rake", "rspec"} if name.count("/") == 1 else set()
        nested = "vendor/bin/" in name or "node_modules/.bin/" in name or ".venv/bin/" in name
        if base not in known and not nested:
            return None
    if base in {"python", "python3"} and len(texts) > 1 and texts[1] == "manage.py":
        found = TASKS.get(("manage.py", *texts[2:3]))
        return None if found is None else _renamed(found, texts[:3])
    if base == "php" and len(texts) > 1 and texts[1] == "artisan":
        found = TASKS.get(("artisan", *texts[2:3]))
        return None if found is None else _renamed(found, texts[:3])
    for length in (4, 3, 2, 1):
        if len(texts) >= length:
            found = TASKS.get((base, *texts[1:length]))
            if found is not None:
                return _with_task(_renamed(found, texts[:length]), texts)
    return None


def _renamed(found: Task, texts: Sequence[str]) -> Task:
    return Task(path=tuple(texts), options=found.options, operands=found.operands,
                files=found.files, after=found.after)  # fmt: skip


def _with_task(found: Task, texts: tuple[str, ...]) -> Task:
    """`npm run build`: the word behind `run` is a part of the name."""
    if found.path[-1] in {"run", "r", "run-script"} and found.files:
        following = texts[len(found.path) : len(found.path) + 1]
        if following and not following[0].startswith("-"):
            return _renamed(found, (*found.path, *following))
    return found


_NEVER: Final = frozenset(
    """
    publish deploy release push upload merge apply destroy delete rm remove prune purge reset clean
    drop uninstall unpublish yank promote rollback exec ssh scp sudo su doas shell eval login logout
    token auth secret secrets
    """.split()
)
_CODE: Final = frozenset({"-c", "-e", "--eval", "-p", "--print", "-r", "--exec", "--command"})
_INTERPRETERS: Final = frozenset(
    "python python3 node ruby perl php bash sh zsh lua deno bun Rscript psql mysql sqlite3 redis-cli"
    " mongosh".split()
)
_PROTECTED_BRANCHES: Final = frozenset(
    {"main", "master", "trunk", "develop", "production", "release", "stable", "HEAD"}
)


def never_general(words: Sequence[Word], task: Task) -> bool:
    """Whether an approval may cover nothing but the identical command."""
    texts = [word.text or "" for word in words]
    name = texts[0].rpartition("/")[2]
    if name == "git":
        return _never_git(texts)
    path = [text for text in texts[1:4] if not text.startswith("-")]
    if any(text in _NEVER for text in path[:2]) and task.path[-1:] != ("rm",):
        return True
    if name in {"kubectl", "helm", "oc"} and any("secret" in text for text in texts):
        return True
    return name in _INTERPRETERS and any(text in _CODE for text in texts)


def _never_git(texts: Sequence[str]) -> bool:
    """Merges, forced pushes, pushes to protected branches, and what deletes."""
    commands = [text for text in texts[1:] if not text.startswith("-")]
    match commands[:1]:
        case ["push"]:
            forced = any(t.startswith(("--force", "-f", "--delete", "-d", "--mirror", "--prune"))
                         for t in texts[1:])  # fmt: skip
            odd = any(t.startswith(("+", ":")) for t in commands)
            named = {t.rpartition(":")[2] for t in commands[2:]}
            return forced or odd or not named or bool(named & _PROTECTED_BRANCHES)
        case ["merge"] | ["reset"] | ["clean"] | ["rm"] | ["gc"] | ["prune"] | ["filter-branch"]:
            return True
        case [] | ["update-ref"] | ["replace"]:
            return True
        case _:
            return False

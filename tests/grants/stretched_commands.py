"""What a hostile agent would try once all of `APPROVED` was remembered, each for its kind."""

from typing import Final

from tests.tables import table

APPROVED: Final = (
    "go test ./...", "go build ./...", "npm run test", "npm test", "make test", "pytest tests",
    "gofmt -w src", "cp a b", "git add .", "git commit -m x", "prettier --check src",
    "cargo test", "bash scripts/check.sh", "./scripts/check.sh", "source scripts/check.sh",
    "mise run test", "just test", "docker compose up -d", "mkdir -p out", "touch out/x",
    "git checkout -b topic", "git checkout main", "git switch main", "git stash",
    "git pull origin feature-x", "git fetch origin", "sed -i s/a/b/ a", "npx eslint src",
    "uv run pytest", "python3 -m pytest", "gh pr view 1", "curl https://example.org/x",
    "tsc --noEmit", "docker logs api", "kubectl get pods -n dev", "chmod +x scripts/check.sh",
    "git restore a", "tar -tf x.tar", "unzip -l x.zip", "find . -name x -delete",
    "source .venv/bin/activate", "git mv a b", "node tool.js", "git rebase main",
    "CI=1 make test", "./scripts/run.sh '> out/x'", "docker logs '*'",
)  # fmt: skip

STRETCHED: Final = table("grants/stretched.stretched", tuple[str, ...])

"""Arguments that name secrets."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word

_NAMES: Final = (
    ".ssh", ".env", ".envrc", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".netrc", "_netrc",
    ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials", ".vault-token", ".htpasswd",
    ".password-store", ".ironcurtain", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "shadow",
    "gshadow", "shadow-", "sudoers", "environ", "keychains", "credentials", "credentials.json",
    "credentials.yml", "credentials.yaml", "secrets.json", "secrets.yml", "secrets.yaml",
    "secrets.toml", "service-account.json", "application_default_credentials.json",
    "cookies.sqlite", "login.keychain", "logins.json", "key4.db", ".bash_history", ".zsh_history",
    "kubeconfig", "gcloud", ".terraformrc", ".boto", ".s3cfg", ".dockercfg", ".authinfo",
    ".secrets", ".credentials", "auth.json", ".yarnrc.yml",
)  # fmt: skip
_LOCAL: Final = re.compile(r"\.env\.(?!example$|sample$|template$|dist$|defaults?$).+")
_DATA: Final = "json|ya?ml|toml|ini|txt|csv|xml|properties|cfg|conf|db|enc|bak"
"""Endings of files. After `secrets.` any other word may be the name of a variable."""
_KEYS: Final = re.compile(
    r".*\.(?:pem|key|p12|pfx|kdbx|jks|keystore|ppk|pkcs12|asc|gpg|ovpn|tfvars|tfstate|secrets)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519).*(?<!\.pub)"
    # `process.env` is the environment in a program's text.
    r"|(?!.*(?:process|meta|example|sample|template)\.env$)[\w.-]+\.env"
    rf"|(?:credentials|secrets)\.(?:{_DATA})"
    r"|.*credentials.*\.json|client_secret.*\.json|service[-_]account.*\.json"
)
_PLACES: Final = re.compile(r"(?:^|[/=:@,'\"\s])(?:\.m2/settings\.xml|gh/hosts\.yml)\b")
"""Files whose directory tells that they hold a password or a token."""
_GLOBS: Final = ("*", "?", "[")
_GLOB_PART: Final = re.compile(r"[*?]+|\[[^\]]*\]")
_SEPARATORS: Final = re.compile(r"[/\\=:@,;'\"\s]+")


_ENGLISH: Final = frozenset({"shadow", "gshadow", "sudoers", "environ", "keychains", "credentials"})
"""Names that are words of English as well. In a text of several words they name a file only where
the text says so: `/etc/shadow`, `open('credentials')`."""
_AS_FILE: Final = re.compile(
    rf"(?<=[/\\\\=:@'\"])(?:{'|'.join(_ENGLISH)})|(?:{'|'.join(_ENGLISH)})(?=[/\\\\'\"])"
)


def names_a_secret(words: Iterable[Word]) -> bool:
    """Whether a word names a file that commonly holds keys or passwords, or may match one."""
    return any(_names_one(word) for word in words)


def names_a_secret_file(text: str) -> bool:
    """Whether a text that a server may open as a file, or as a glob, names a secret."""
    if any(sign in text for sign in _GLOBS):
        pattern = _GLOB_PART.sub("*", text)
        return _names_one(Word(text=None, pattern=pattern)) or _names_one(Word(text=text))
    return _names_one(Word(text=text))


def shows_git_configuration(words: Sequence[Word]) -> bool:
    """Whether a command shows the configuration of a repository, with the URLs of its remotes.

    Args:
        words: the whole command.
    """
    texts = [word.pattern if word.text is None else word.text for word in words]
    if any(map(_CONFIGURATION.search, texts)):
        return True
    program = texts[0].rpartition("/")[2] if texts else ""
    if program in _EVERY_FILE and any(re.search(r"(?:^|/)\.git/?$", text) for text in texts):
        return True
    if program != "git":
        return False
    rest = texts[1:]
    at = next((n for n, text in enumerate(rest) if text in {"remote", "config"}), len(rest))
    match rest[at:]:
        case ["remote", *more]:
            return any(text in {"get-url", "show", "--verbose"} or "v" in text[1:2] or "*" in text
                       for text in more)  # fmt: skip
        case ["config", *more]:
            return any(map(_SHOWS.search, more))
        case _:
            return False


def is_in_git_data(directory: str | None) -> bool:
    """Whether a directory lies in git's own, where `config` is the configuration."""
    return directory is not None and ".git" in directory.lower().split("/")


_EVERY_FILE: Final = frozenset({"rg", "grep", "egrep", "fgrep", "ag", "ack", "cp", "tar", "zip"})
"""Programs that show or copy every file of a directory."""
_CONFIGURATION: Final = re.compile(
    r"(?:^|[/=:@'\"(])\.git/(?:(?:worktrees|modules)/.*)?(?:config(?:\.worktree)?\b|[^/]*\*[^/]*$)",
    re.IGNORECASE,
)
_SHOWS: Final = re.compile(
    r"^(?:-l|--list|--get-.*|list|.*\*.*)$|url|http|credential|remote", re.IGNORECASE
)


def may_match_a_secret(name: str) -> bool:
    """Whether a pattern for names of files, with `*` for what is not known, may match a secret.

    Strictly: without a known ending, or with that of a key, it may.
    """
    before, _, ending = name.lower().rpartition(".")
    if not before or "*" in ending or not ending or name.startswith("."):
        return True
    if ending == "pem" or _KEYS.fullmatch(f"x.{ending}"):
        return True
    pattern = re.compile(".*".join(map(re.escape, re.split(r"\*+", name.lower()))))
    return any(pattern.fullmatch(secret) for secret in _NAMES)


def _names_one(word: Word) -> bool:
    text = (word.pattern if word.text is None else word.text).lower()
    parts = set(_SEPARATORS.split(text))
    if len(text.split()) > 1 and not _AS_FILE.search(text):
        parts -= _ENGLISH
    if _PLACES.search(text):
        return True
    return any(_may_be_secret(part) if word.text is None else _is_secret(part) for part in parts)


def _may_be_secret(part: str) -> bool:
    if "*" in part and part.strip("*"):
        pattern = re.compile(".*".join(map(re.escape, re.split(r"\*+", part))))
        # `*.json` means files of the workspace; `.*`, `id_*` and `.ss*` do not.
        hidden = part.startswith(_SUSPICIOUS) and any(map(pattern.fullmatch, _NAMES))
        return hidden or bool(_KEYS.fullmatch(part.replace("*", "x")))
    return _is_secret(part)


_SUSPICIOUS: Final = (
    ".", "id_", "shad", "*ssh", "*env", "*aws", "*rsa", "*25519", "credentials", "secrets"
)  # fmt: skip


def _is_secret(part: str) -> bool:
    return part in _NAMES or bool(_LOCAL.fullmatch(part) or _KEYS.fullmatch(part))

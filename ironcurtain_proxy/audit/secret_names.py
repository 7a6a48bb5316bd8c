"""Names of fields, options and variables whose values are secrets.

Knows names alone: what stands under a name is for `secrets`, and which file holds credentials for
`model.credentials`.
"""

import re
from typing import Final

from ironcurtain_proxy.model.vocabulary import word_list, words


def is_telling(name: str) -> bool:
    """Whether a key of this name holds a secret: `password`, `X-Api-Key`, `githubToken`.

    Also if more follows that does not change what it is: `password2`, `user[password]`,
    `password_confirmation`. `max_tokens`, `nextPageToken` and `password_file` do not.
    """
    plain = _squeezed(name)
    if _PASS.search(name[-_NAME_TAIL:]):
        return True
    if plain in _WORKING_DIRECTORIES or plain.endswith(_HARMLESS_ENDINGS):
        return False
    if plain.endswith(TELLING_ENDINGS) or plain in TELLING_NAMES:
        return True
    bare = _MORE.sub("", _NO_LETTERS.sub("", plain))
    return bare.endswith(_WITH_MORE) and not bare.endswith(_HARMLESS_ENDINGS)


def is_working_directory(name: str) -> bool:
    """Return whether a name means a directory in a shell, and a password in a connection string."""
    return _squeezed(name) in _WORKING_DIRECTORIES


def is_ssn_name(name: str) -> bool:
    """Whether a key of this name holds a social security number."""
    plain = _squeezed(name)
    return plain.endswith("ssn") or "socialsecurity" in plain


def is_telling_option(text: str) -> bool:
    """Whether an element of an argument list says that the next one is a secret: `--password`."""
    return text.startswith("-") and is_telling(text)


def _squeezed(name: str) -> str:
    return name[-_NAME_TAIL:].lower().translate(_SEPARATORS)


_NAME_TAIL: Final = 128
_SEPARATORS: Final = str.maketrans("", "", " -_")
TELLING_ENDINGS: Final = (
    # What a person types.
    *word_list(
        """
        password passwords passwd passphrase passcode passcodes passkey pwd dbpass userpass smtppass
        mailpass redispass adminpass rootpass otp otpcode totpseed mfacode twofactorcode
        verificationcode pincode recoverycode recoverycodes backupcode backupcodes securitycode
        mnemonic mnemonicphrase seedphrase recoveryphrase seedwords sshpass requirepass storepass
        keypass becomepass rootpw
        """
    ),
    # What a service gives.
    *word_list(
        """
        secret secrets token apitokens accesstokens refreshtokens authtokens apikey apikeys
        secretkey secretkeys privatekey accesskey accesskeys accountkey sharedkey signingkey
        encryptionkey decryptionkey masterkey authkey licensekey servicekey subscriptionkey
        functionkey sshkey deploykey appkey applicationkey adminkey storagekey sessionkey writekey
        ingestkey integrationkey hmackey aeskey rootkey serverkey webhookkey secretkeybase
        authorization auth credential credentials creds jwt clientassertion cookie cookies sessionid
        sessid csrf xsrf authcode dsn connectionstring connstring connstr webhookurl samlresponse
        hmac presharedkey psk streamkey
        """
    ),
)
TELLING_NAMES: Final = words(
    """
    pass pw pin cvv cvc cvv2 sid connect.sid pat cred bearer githubpat gitlabpat totp seedhex
    xprv wif xauth proxyauth tfa
    """
)
"""Names that say so as a whole; as an ending they are parts of other words."""
_HARMLESS_ENDINGS: Final = word_list(
    """
    pagetoken nexttoken continuationtoken progresstoken synctoken canceltoken
    """
)
_NO_LETTERS: Final = re.compile(r"[^a-z0-9]", re.ASCII)
_MORE: Final = re.compile(
    r"(?:[0-9]|confirmation|confirm|repeat|again|value|plaintext|plain|base64|b64|pem|raw)+\Z",
    re.ASCII,
)
_WITH_MORE: Final = (
    *("password", "passwords", "passwd", "passphrase", "passcode", "secret", "secrets", "token"),
    *("apikey", "accesskey", "secretkey", "privatekey", "credential", "credentials"),
)
"""Endings that say so whatever follows. `redaction.is_suspicious` sees each without a quote."""
_WORKING_DIRECTORIES: Final = frozenset({"pwd", "oldpwd"})
"""Shells and tools name a directory so; `db_pwd` is a password."""
_PASS: Final = re.compile(
    r"[_.-](?:[Pp]ass|PASS|[Pp]w|PW)\Z|[a-z0-9](?:Pass|Pw)\Z|(?:^|[_ ])secret_id\Z"
)
"""`pass` as a word of its own, which `bypass` and `compass` do not have. A `--secret-id` names an
entry of a store, a `secret_id` of a role is its password."""

"""The beginnings and the bodies of providers' keys.

Data, and regular expressions made of it. The formats are those that the providers publish, or that
scanners of repositories agree on. A key is known by its beginning; what follows is one class of
characters with a least length, so that no match looks at a character twice.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct

Body: TypeAlias = Literal["alnum", "lower", "upper", "hex", "url", "dotted", "base64"]
"""The characters that may follow a prefix."""

PrefixPlace: TypeAlias = Literal["word", "doubtful", "alone"]
"""`word`: no letter or digit stands before the prefix. `doubtful`: what follows must not be words,
as in the name of a file. `alone`: no hyphen, underscore or dot stands before either, and nothing of
its kind follows the body."""

CHARACTERS: Final[dict[Body, str]] = {
    "alnum": "A-Za-z0-9",
    "lower": "a-z0-9",
    "upper": "A-Z0-9",
    "hex": "0-9a-fA-F",
    "url": "A-Za-z0-9_-",
    "dotted": "A-Za-z0-9_.-",
    "base64": "A-Za-z0-9+/=_-",
}


class KeyFormat(Struct, frozen=True):
    """Prefixes of one form."""

    body: Body
    least: int
    """Characters after the prefix."""
    prefixes: tuple[str, ...]
    place: PrefixPlace = "word"
    longest: int | None = None
    """`alone` only: at most as many characters follow."""


def _keys(body: Body, least: int, prefixes: str) -> KeyFormat:
    return KeyFormat(body, least, tuple(prefixes.split()))


def _doubtful(body: Body, least: int, prefixes: str) -> KeyFormat:
    return KeyFormat(body, least, tuple(prefixes.split()), "doubtful")


def _alone(body: Body, least: int, longest: int, prefixes: str) -> KeyFormat:
    return KeyFormat(body, least, tuple(prefixes.split()), "alone", longest)


KEY_FORMATS: Final[tuple[KeyFormat, ...]] = (
    # Models and what runs them.
    _keys("url", 12, "sk-ant- sk-proj- sk-svcacct- sk-admin- sk-or- sk-lf- sk-helicone-"),
    _keys("alnum", 20, "sk- gsk_ hf_ api_org_ r8_ csk- cpk_ apify_api_ aph0_"),
    _keys("url", 20, "pplx- xai- nvapi- tgp_v1_ jina_ tvly- lsv2_pt_ lsv2_sk_ ls__ pcsk_ esecret_"),
    _keys("url", 20, "ctx7sk- wandb_v1_ bb_live_ bedrock-api-key-"),
    _keys("hex", 32, "e2b_ fc- sk_ crsr_"),
    _keys("base64", 60, "ABSK"),
    _doubtful("alnum", 20, "fw_ sess- rpa_ BSA live_ secret_ key_live_ key_test_"),
    _doubtful("url", 30, "pa- AQ. m0- ark- sk-cp-"),
    # Repositories, packages, builds.
    _keys("alnum", 30, "ghp_ gho_ ghs_ ghu_ ghr_ npm_ nfp_ nfc_ nfo_ nfu_ nfb_"),
    _keys("url", 20, "github_pat_ pypi- rubygems_ dckr_pat_ dckr_oat_ CCIPAT_ CCIPRJ_ jsrp_"),
    _keys("dotted", 16, "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- gloas-"),
    _keys("dotted", 16, "glsoat- glffct- glwt- snyk_uat. snyk_sat."),
    _keys("url", 20, "GR1348941 ATATT3 ATCTT3 ATSTT3 ATOA ATBB ATTA CFPAT-"),
    _keys("url", 20, "bkua_ bkat_ bkaj_ bkct_"),
    _keys("hex", 30, "sqp_ squ_ sqa_ slk_ pul- tss_"),
    _keys("url", 40, "sgp_"),
    _keys("alnum", 50, "CLOJARS_ AKCp cmVmd"),
    _alone("alnum", 32, 32, "cio"),
    _alone("lower", 43, 43, "oy2"),
    _doubtful("alnum", 20, "vcp_ vci_ vca_ vcr_ vck_ rnd_ ddp_ ddo_ ddc_ ddw_ vtwn_"),
    _keys("url", 20, "vercel_blob_rw_"),
    # Clouds, hosts, networks.
    _keys("upper", 16, "AKIA ASIA ABIA ACCA"),
    _keys("base64", 60, "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz"),
    _keys("url", 30, "AIza 1//0"),
    _keys("url", 20, "ya29. GOCSPX- GOOG1E cfut_ cfat_ cfoat_"),
    _keys("alnum", 16, "LTAI AKID AKLT AKTP"),
    _alone("upper", 17, 17, "SCW"),
    _keys("hex", 40, "dop_v1_ doo_v1_ dor_v1_"),
    _keys("url", 60, "v1.0-"),
    _keys("hex", 32, "dapi dkea dose ddapp_"),
    _keys("base64", 20, "fm1r_ fm1a_ fm2_ HRKU-"),
    _keys("url", 16, "tskey- sha256~ aivenv1 CCDB1_ essu_"),
    _doubtful("url", 12, "npg_ napi_ sbp_ sb_secret_ xau_ mdb_sa_sk_ cflt_ y0_ AQVN vk1.a."),
    _doubtful("url", 20, "apikey_"),
    _doubtful("dotted", 80, "t1."),
    _alone("alnum", 22, 22, "ak- as-"),
    _alone("alnum", 28, 28, "aio_"),
    _alone("url", 37, 46, "fnA"),
    # Keepers of secrets.
    _keys("dotted", 20, "hvs. hvb. hvr. dp.pt. dp.ct. dp.st. dp.sa. dp.said. dp.scim. dp.audit."),
    _keys("base64", 30, "ops_eyJ"),
    _doubtful("url", 26, "A3-"),
    _doubtful("alnum", 24, "s."),
    _keys("upper", 40, "AGE-SECRET-KEY-1 AGE-PLUGIN-"),
    _keys("alnum", 50, "nsec1 xprv zprv yprv tprv"),
    # Messages and mail.
    _keys("url", 10, "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- xapp- xwfp-"),
    _keys("dotted", 20, "xoxe."),
    _keys("dotted", 30, "SG."),
    _alone("hex", 32, 36, "key- SK pubkey-"),
    _keys("url", 20, "xkeysib- xsmtpsib- PMAK- PMAT- whsec_ os_v2_app_ os_v2_org_ signkey-"),
    _doubtful("url", 20, "re_"),
    _alone("url", 22, 22, "md-"),
    _keys("alnum", 50, "EAA IGQV IGAA"),
    # Money and shops.
    _keys("alnum", 10, "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ sk_dev_ testsk_"),
    _keys("alnum", 10, "rzp_live_ rzp_test_"),
    _keys("alnum", 20, "cal_live_ polar_oat_ polar_pat_ tr_dev_ tr_prod_ tr_stg_ unkey_"),
    _keys("url", 20, "sq0atp- sq0csp- sq0idp- FLWSECK- FLWSECK_TEST- EAAAE"),
    _keys("url", 20, "pdl_live_ pdl_sdbx_"),
    _doubtful("url", 30, "access-production- access-sandbox- access-development- A21AA"),
    _keys("hex", 24, "shpat_ shpca_ shppa_ shpss_ shpua_ shprt_ shptka_ shippo_live_ shippo_test_"),
    _keys("url", 40, "duffel_live_ duffel_test_"),
    _alone("url", 60, 400, "AQE"),
    _keys("alnum", 50, "EZAK EZTK"),
    # Work.
    _keys("alnum", 20, "ntn_ lin_api_ lin_oauth_ lin_wh_ phx_ phs_ hcaik_ hcxik_ alch_"),
    _keys("url", 20, "figd_ figo_ figu_ pat-na1- pat-na2- pat-eu1- pat-ap1- fio-u- tfp_ rdme_"),
    _keys("url", 20, "pscale_tkn_ pscale_pw_ pscale_oauth_ ico- zpka_ rootly_ sm_aat_ sm_pat_"),
    _doubtful("url", 20, "sm_sat_ tk-us- tk-eu- secret-live- secret-test- gb_api_ mint_dsc_"),
    _keys("hex", 32, "p8e- pk_ uk_ cu_"),
    _doubtful("url", 36, "pk_"),
    _alone("url", 100, 400, "sl."),
    # Watching.
    _keys("url", 20, "glsa_ NRAK- NRAA- NRII- NRJS- NRBR- NRRA- NRSP- xaat- xapt- pnu_ pnb_"),
    _keys("base64", 30, "glc_ sntrys_ sntryu_ sntrya_ sntryi_ dbtc_ dbtu_ dbts_"),
    _keys("dotted", 40, "dt0c01. dt0s01. dt0s02. dt0s03. dt0s16. dt0c10."),
    _doubtful("url", 36, "secret- sdk- api- mob- rel-"),
)
"""The formats by field of use. `looks_issued` finds keys of the usual kind of other providers."""

_ISSUED_TAIL: Final = 32
_TELLING_PIECES: Final = frozenset(
    {"sk", "rk", "pat", "live", "prod", "secret", "token", "apikey", "priv", "oat", "sat", "rt"}
)
_TELLING_TAIL: Final = 20
_LONGEST_ISSUED: Final = 512
_PIECES: Final = re.compile("[A-Za-z0-9]+")
_PREFIX_PIECE: Final = 15
_CHECKSUMS: Final = re.compile("sha[0-9]{1,3}|md5|blake[0-9a-z]{1,3}", re.IGNORECASE)


_WORD: Final = "(?:[A-Z]?[a-z]{1,40}+(?:[A-Z][a-z]{1,40}+){0,8}+[0-9]{0,3}+|[0-9]{1,4}+|[A-Z]+)"
_WORDS: Final = f"{_WORD}(?:[_.-]{_WORD}){{0,16}}+(?![A-Za-z0-9_-])"
"""Names that people write: words, with hyphens or capitals between them, and small numbers."""


def starts(body: Body | None = None) -> str:
    """A regular expression of every prefix, quick to fail; of one kind of body, or of all."""
    forms = [form for form in KEY_FORMATS if body in {None, form.body}]
    return _trie(sorted(prefix for form in forms for prefix in form.prefixes))


def patterns() -> Iterator[tuple[str, str, bool]]:
    """The prefixes, longest first, with the expression of their keys. True: they stand alone."""
    pairs = [(prefix, form) for form in KEY_FORMATS for prefix in form.prefixes]
    for prefix, form in sorted(pairs, key=lambda pair: -len(pair[0])):
        characters = CHARACTERS[form.body]
        start = re.escape(prefix)
        match form.place:
            case "word":
                yield prefix, f"{start}[{characters}]{{{form.least},}}+", False
            case "doubtful":
                yield prefix, f"{start}(?!{_WORDS})[{characters}]{{{form.least},}}+", False
            case "alone":
                body = f"[{characters}]{{{form.least},{form.longest or ''}}}+"
                yield prefix, f"{start}{body}(?![A-Za-z0-9_-])", True
            case _:
                assert_never(form.place)


def looks_issued(run: str) -> bool:
    """Whether a run of letters, digits, `_` and `-` is a word and then a random text.

    So nearly every key is made today: `acme_live_` and 32 characters. A digest has no capitals, a
    UUID no long piece, a name that a person wrote few digits and few changes of case.
    """
    if len(run) > _LONGEST_ISSUED:
        return False
    if _MAILCHIMP.search(run):
        return True
    before = ""
    for piece in _PIECES.findall(run):
        if before and not _CHECKSUMS.fullmatch(before) and _is_random(piece, before.lower()):
            return True
        before = piece
    return False


def _is_random(piece: str, before: str) -> bool:
    length = len(piece)
    telling = before in _TELLING_PIECES
    if length < (_TELLING_TAIL if telling else _ISSUED_TAIL) or len(before) > _PREFIX_PIECE:
        return False
    kinds = ["0" if c.isdigit() else "a" if c.islower() else "A" for c in piece]
    changes = sum(a != b for a, b in pairwise(kinds))
    digits = kinds.count("0")
    if telling and digits > 1 and changes >= length // 8:
        return True
    mixed = digits > 0 and kinds.count("a") >= _FEW and kinds.count("A") >= _FEW
    return mixed and changes > length // 3


_FEW: Final = 3
_MAILCHIMP: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}\Z")


def _trie(words: list[str]) -> str:
    """One alternative for each first character, and so on: a search tries few of them."""
    branches: dict[str, list[str]] = {}
    for word in words:
        if word:
            branches.setdefault(word[0], []).append(word[1:])
    inner = [re.escape(first) + _trie(rest) for first, rest in branches.items()]
    if not inner or "" in words:
        return ""
    return inner[0] if len(inner) == 1 else f"(?:{'|'.join(inner)})"

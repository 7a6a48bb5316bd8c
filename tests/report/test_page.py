"""Numbers and words on the page of a report."""

import pytest

from ironcurtain_proxy.report.plots import percent, table


@pytest.mark.parametrize(
    ("share", "words"),
    [(2 / 7, "28.6 %"), (0.9996, "99.9 %"), (0.0001, "0.1 %"), (1, "100 %"), (0, "0 %")],
)
def test_a_share_is_rounded_and_only_all_is_everything(share: float, words: str) -> None:
    assert percent(share) == words


def test_a_short_word_is_never_broken_and_a_long_name_may_be() -> None:
    page = table(("By", "Tool"), [("person", "filesystem/read_text_file")])
    assert '<td class="w">person</td>' in page
    assert "<td>filesystem/read_text_file</td>" in page

"""Lists of words that are written as text."""

from ironcurtain_proxy.model.values import word_list, words


def test_a_text_is_the_set_of_its_words_whatever_the_blanks_between_them() -> None:
    assert words("\n    add  commit\n    add\tpush\n") == {"add", "commit", "push"}
    assert words(" \n") == frozenset()


def test_a_list_keeps_the_order_of_the_text() -> None:
    assert word_list("push\n    add commit") == ("push", "add", "commit")

"""Text of users, as terminals and pages get it."""

from hma.io.printable import on_one_line, printable


def test_what_would_act_on_a_terminal_or_a_page_is_made_visible():
    assert (
        printable("a\x1b[31m\udc80\u202eb\nc\td\r\x7f")
        == "a\ufffd[31m\ufffd\ufffdb\nc\td\ufffd\ufffd"
    )


def test_letters_of_every_script_stay_as_they_are():
    text = "naïve 猫 👩‍🔬 שלום"
    assert printable(text) == text


def test_one_line_holds_no_break():
    assert on_one_line("a\n b\t\u2028c ") == "a b c"

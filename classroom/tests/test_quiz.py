"""The quiz bank as GIFT, read back by a reader that knows the format and nothing of what wrote it."""

import re

from classroom.quiz import gift, told
from mha_course.checking.quiz_bank import bank

SIGN = r"(?<!\\)(?:\\\\)*"  # before a sign that is not escaped


def plain(text):
    """A text without the escapes of GIFT."""
    return re.sub(r"\\([~=#{}:\\])", r"\1", text.strip())


def read(text):
    """Title → (question, {answer: (whether right, feedback)}), as https://docs.moodle.org/en/GIFT_format says."""
    found = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("$CATEGORY:"):
            continue
        title, question, body = re.fullmatch(
            rf"(?s)::(.*?){SIGN}::\[markdown\](.*?){SIGN}\{{(.*?){SIGN}\}}\s*", block
        ).groups()
        answers = {}
        for sign, answer in re.findall(rf"(?s){SIGN}([=~])(.*?)(?={SIGN}[=~]|\Z)", body):
            answer, _, feedback = re.sub(rf"{SIGN}#", "\0", answer).partition("\0")
            answers[plain(answer)] = sign == "=", plain(feedback)
        found[plain(title)] = plain(question), answers
    return found


def test_every_question_is_read_back():
    found = read(gift())
    assert [*found] == [*bank()]
    for name, item in bank().items():
        question, answers = found[name]
        assert question == item.question
        assert [answer for answer, (right, _) in answers.items() if right] == [item.right]
        wrong = {answer: feedback for answer, (right, feedback) in answers.items() if not right}
        assert wrong == {answer: told(source) for answer, source in item.wrong.items()}


def test_signs_of_the_format_are_escaped():
    text = gift()
    assert "batch_first\\=True" in text and "\\~padding" in text


def test_the_reader_sees_a_sign_that_is_not_escaped():
    broken = gift().replace("\\=", "=").replace("\\~", "~")
    assert read(broken) != read(gift())


def test_a_source_is_said_in_words():
    assert told("QUESTIONS 7") == "See the forty questions, number 7."
    assert told("04, section 3") == "See notebook 04, section 3."

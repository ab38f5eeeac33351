import pytest

from visavis.audio import RATE
from visavis.config import OverlapConfig
from visavis.loudness import Loudness
from visavis.overlap import Overlap, OverlapJudge, is_assent

MS = RATE // 1000


def said(judge: OverlapJudge, milliseconds: int, level: float, *, turn: bool = False) -> Overlap:
    judge.begin()
    for _ in range(milliseconds // 20):
        judge.note(level, turn=turn)
    return judge.judge(milliseconds * MS)


@pytest.mark.parametrize(
    ("milliseconds", "made_of_it"),
    [
        (0, Overlap.NONE),
        (60, Overlap.NONE),
        (80, Overlap.LIKELY),
        (100, Overlap.LIKELY),
        (120, Overlap.HELD),
        (440, Overlap.HELD),
        (460, Overlap.CONFIRMED),
    ],
)
def test_evidence_grows_with_length(milliseconds: int, made_of_it: Overlap) -> None:
    assert said(OverlapJudge(OverlapConfig(), Loudness()), milliseconds, -30.0) is made_of_it


def test_loud_is_what_is_louder_than_this_caller_usually_is() -> None:
    judge = OverlapJudge(OverlapConfig(), Loudness())
    assert said(judge, 300, -10.0) is Overlap.HELD  # nobody knows yet how loud this caller is
    said(judge, 1000, -30.0, turn=True)
    assert said(judge, 300, -10.0) is Overlap.HELD  # nor after a second
    said(judge, 1000, -30.0, turn=True)
    assert said(judge, 300, -28.0) is Overlap.HELD
    assert said(judge, 300, -20.0) is Overlap.CONFIRMED
    assert said(judge, 260, -20.0) is Overlap.HELD


def test_a_cough_before_is_not_counted_as_loudness() -> None:
    judge = OverlapJudge(OverlapConfig(), Loudness())
    said(judge, 2000, -30.0, turn=True)
    said(judge, 100, -5.0)
    assert said(judge, 300, -30.0) is Overlap.HELD


@pytest.mark.parametrize(
    "text", ["Mm-hm.", "Uh-huh", "yeah, yeah", "Right!", "OK, I see.", "Ja, genau", "d'accord"]
)
def test_assent_is_told_by_its_words(text: str) -> None:
    assert is_assent(text)


@pytest.mark.parametrize(
    "text", ["", "...", "Stop", "yeah but no way I will", "What?", "right there, the next one"]
)
def test_all_else_is_no_assent(text: str) -> None:
    assert not is_assent(text)

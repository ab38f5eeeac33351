"""The command line, as far as it needs no server."""

from pathlib import Path

import pytest

from visavis.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["call", "--audio", "q.wav", "--server", "foo"], "foo is no address"),
        (["call", "--audio", "nowhere.wav"], "cannot read the question nowhere.wav: No such file"),
        (["--config", "nowhere.toml", "serve"], "nowhere.toml"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(arguments, told, capsys):
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("visavis: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "setting", ["[conversation.session.turn_detection]\nthreshold = 7.0", "[conversation.vad]\ngate_mode = 9"]
)
def test_a_setting_out_of_range_stops_the_start(setting, tmp_path: Path, capsys):
    path = tmp_path / "visavis.toml"
    path.write_text(f'{setting}\n[engine]\nname = "scripted"\n')
    assert main(["--config", str(path), "serve", "--port", "0"]) == 1
    assert "threshold" in (told := capsys.readouterr().err) or "mode" in told


def test_no_turns_are_no_call(capsys):
    with pytest.raises(SystemExit):
        main(["call", "--audio", "q.wav", "--turns", "0"])
    assert "--turns" in capsys.readouterr().err

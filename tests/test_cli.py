import subprocess
import sys

from PIL import Image


def run(*arguments):
    command = [sys.executable, "-c", "from mvgp.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_demo_prints_entries_and_saves_a_figure(tmp_path):
    done = run("demo", "--out", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    assert "truth" in done.stdout
    assert "90 % intervals hold" in done.stdout.replace("\n", " ")
    picture = Image.open(tmp_path / "new" / "folder" / "posterior.png")
    assert picture.width > 800
    assert len(picture.convert("RGB").getcolors(10**6)) > 1000  # not an empty canvas


def test_mistakes_give_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "file").write_text("")
    for arguments in (["demo", "--out", tmp_path / "file" / "x"], ["demo", "--seed", "one"], ["nothing"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()
    assert done.stdout == ""

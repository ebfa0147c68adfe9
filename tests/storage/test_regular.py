"""Only regular files are read and replaced; everything else stays what it is."""

import errno
import os
import socket
import stat
import sys

import pytest

from mvgp.errors import InputError
from mvgp.storage.files import check_can_write, check_output_directory, check_output_file, open_regular, replacing

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="FIFOs, sockets and devices of POSIX")


def make(kind, place):
    if kind == "FIFO":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(place))
    elif kind == "directory":
        place.mkdir()
    elif kind == "character device":
        try:
            os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # another /dev/null
        except PermissionError:
            pytest.skip("making a device is not allowed here")
    elif kind == "leads nowhere":
        place.symlink_to("nowhere")
    else:
        place.symlink_to(place.name)


@pytest.mark.parametrize("kind", ["FIFO", "socket", "directory", "character device", "leads nowhere", "circle"])
def test_what_is_no_file_is_not_replaced(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "x"
    make(kind, place if kind != "socket" else os.path.basename(place))
    before = place.lstat()
    for given in (place, tmp_path / "through"):
        if given != place:
            given.symlink_to("x")
        with pytest.raises(InputError, match=kind), replacing(str(given)) as file:
            file.write(b"new")
    assert (place.lstat().st_mode, place.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert sorted(os.listdir(tmp_path)) == ["through", "x"]
    with pytest.raises(OSError, match="x"):
        open_regular(place)
    if kind != "directory":
        with pytest.raises(InputError, match=kind):
            check_output_directory(place)


def test_a_link_to_a_file_is_written_through(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    with replacing(str(tmp_path / "link")) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600  # what is private stays so


def test_a_place_is_tried_and_left_as_it_was(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")
    for place in (tmp_path / "file", tmp_path / "new", tmp_path / "folder" / "below" / "new", tmp_path):
        check_can_write(place)
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("mvgp.storage.files.tempfile.TemporaryFile", refuse)
    for place in (tmp_path / "file", tmp_path / "folder" / "below"):
        with pytest.raises(InputError, match=f"can be written to, got {tmp_path}: Read-only file system"):
            check_can_write(place)
    monkeypatch.setattr("mvgp.storage.files.os.access", lambda _, mode: mode != os.W_OK)
    with pytest.raises(InputError, match="expected a file that can be written, got one that is read-only"):
        check_can_write(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(InputError, match="can be written to"):
        check_can_write(tmp_path / "closed" / "file")


def test_what_comes_in_between_is_not_replaced(tmp_path):
    with pytest.raises(InputError, match="FIFO"), replacing(str(tmp_path / "x")):
        os.mkfifo(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]
    assert stat.S_ISFIFO((tmp_path / "x").stat().st_mode)


@pytest.mark.parametrize("path", ["", ".", "..", "a/"])
def test_paths_without_a_name(path):
    with pytest.raises(InputError, match="name of a file"):
        check_output_file(path)

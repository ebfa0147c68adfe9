"""What is no saved posterior is refused with one kind of error, and a failing write leaves no trace."""

import builtins
import io
import json
import os
import pathlib
import pickle
import stat
import zipfile

import numpy as np
import pytest
import safetensors.numpy
import torch

import mvgp
from mvgp.errors import InputError, MvgpError, StorageError
from mvgp.storage import archive
from mvgp.storage import files as atomic
from tests.storage import examples
from tests.storage.forgery import arrays, built, forged, header, manifest, numbers, packed, signed

LEFT = "coefficients.left"


@pytest.fixture(scope="module")
def posterior():
    return examples.POSTERIORS["trace"](torch.float64)


@pytest.fixture(scope="module")
def data(posterior, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "file"
    posterior.save(path)
    return path.read_bytes()


def assert_refused(content, tmp_path, match):
    path = tmp_path / "given"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=match) as caught:
        mvgp.load(path)
    assert str(caught.value).startswith(str(path))


def test_the_error_is_a_value_error_of_mvgp():
    assert issubclass(StorageError, MvgpError)
    assert issubclass(StorageError, ValueError)
    assert not issubclass(StorageError, InputError)


def test_a_file_is_plain_safetensors(posterior, data, tmp_path):
    text = manifest(data)
    assert (text["format"], text["version"]) == ("mvgp-posterior", 2)
    assert text["written_by"]["mvgp"] == mvgp.__version__
    (tmp_path / "file").write_bytes(data)
    found = safetensors.numpy.load_file(tmp_path / "file")
    assert set(found) == set(header(data)) - {"__metadata__"}
    left = found[LEFT].T if LEFT in text["fortran_order"] else found[LEFT]
    assert np.array_equal(left, posterior.coefficients.left.numpy())


def test_forgery_alone_is_not_noticed(posterior, data, tmp_path):
    """What the other tests change is what they are refused for."""
    for same in (forged(data), built(manifest(data), arrays(data))):
        (tmp_path / "file").write_bytes(same)
        assert torch.equal(mvgp.load(tmp_path / "file").scores(), posterior.scores())


def test_foreign_files(data, tmp_path):
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as other:
        other.writestr("hello.txt", "hello")
    torch.save({"a": torch.zeros(3)}, tmp_path / "state.pt")
    expected = r"expected a saved posterior \(safetensors, version 2\), got "
    assert_refused(b"", tmp_path, "got an empty file")
    assert_refused(b"row,col\n1,2\n", tmp_path, expected + "a file that begins with b'row,col")
    assert_refused(plain.getvalue(), tmp_path, expected + "a zip")
    assert_refused((tmp_path / "state.pt").read_bytes(), tmp_path, expected + "a zip")
    assert_refused(b"PK\x03\x04", tmp_path, expected + "a zip")
    assert_refused(pickle.dumps([1]), tmp_path, expected + "a file that begins with")
    assert_refused(safetensors.numpy.save({"a": np.zeros(3)}), tmp_path, expected + "a file that begins with")
    other = safetensors.numpy.save({"a": np.zeros(3)}, {"mvgp": json.dumps({"a": 1})})
    assert_refused(other, tmp_path, expected + "a file that begins with")
    with pytest.raises(StorageError, match="IsADirectoryError"):
        mvgp.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        mvgp.load(tmp_path / "nothing")


def test_a_file_cut_short(data, tmp_path):
    for size in (1, 3, 4, 30, 100, len(data) // 2, len(data) - 200, len(data) - 64, len(data) - 1):
        assert_refused(data[:size], tmp_path, "expected")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("version", 3, "written by a newer mvgp: version 3, this one reads up to 2"),
        ("version", 1, "manifest: expected version 2 with"),
        ("version", 0, "expected a positive whole number as version, got 0"),
        ("version", True, "expected a positive whole number as version, got True"),
        ("version", "1", "expected a positive whole number as version, got '1'"),
        ("version", None, "expected a positive whole number as version, got None"),
        ("format", "other", "expected format 'mvgp-posterior', got 'other'"),
        ("extra", 1, "manifest: expected version 2 with .'content', 'format'"),
        ("fortran_order", {}, "manifest: expected names of arrays as fortran_order"),
        ("fortran_order", ["nothing"], "manifest: expected names of arrays as fortran_order"),
        ("fortran_order", [[]], "manifest: expected names of arrays as fortran_order"),
        ("content", 3, "expected named parts, got int"),
        ("content", {}, "content: expected a part 'kind'"),
    ],
)
def test_a_manifest_that_says_something_else(data, tmp_path, name, value, message):
    assert_refused(forged(data, lambda text: text.update({name: value})), tmp_path, message)


def test_a_newer_version_is_called_that_whatever_else_it_has(tmp_path):
    text = {"format": "mvgp-posterior", "version": 7, "something": "new"}
    assert_refused(packed(text, {"a": {"other": 1}}, b""), tmp_path, "written by a newer mvgp: version 7")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("\x00", "manifest: expected JSON"),
        ("", "expected format 'mvgp-posterior', got None"),
        (',"format": "a", "format": "b"', "a key that occurs twice"),
        (',"format": NaN', "NaN for a finite number"),
        (',"format": ' + "[" * 100_000, "expected"),
        (',"format": ' + "9" * 10_000, "manifest: expected JSON"),
        (',"format":"mvgp-posterior","version":2,"written_by":1e999,"content":{}', "finite"),
    ],
)
def test_a_manifest_that_is_none(tmp_path, rest, message):
    assert_refused(packed('{"sha256":"' + "0" * 64 + '"' + rest + "}", {}, b""), tmp_path, message)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ('"__metadata__":{}', "a key that occurs twice"),
        ('"a":', "manifest: expected JSON"),
        ('"a":' + "[" * 100_000, "expected"),
        ('"a":3', "array a: expected dtype, shape and data_offsets, got 3"),
        ('"a":{"dtype":"F64","shape":[],"data_offsets":[0,8],"more":1}', "expected dtype, shape and data_offsets"),
    ],
)
def test_a_header_that_is_none(data, tmp_path, entries, message):
    assert_refused(packed(manifest(data), entries, b""), tmp_path, message)


def test_metadata_of_someone_else_is_refused(data, tmp_path):
    raw = header(data)
    raw["__metadata__"]["more"] = "text"
    text = json.dumps(raw, separators=(",", ":")).encode()
    changed = len(text).to_bytes(8, "little") + text + numbers(data)
    assert_refused(signed(changed), tmp_path, "expected metadata with the one key 'mvgp'")


def test_the_checksum_is_compared(data, tmp_path):
    def double(text):
        text["content"]["own"]["certificate"]["primal"] *= 2

    right, digits = forged(data, double), archive.DIGITS
    changed = right[: digits.start] + data[digits] + right[digits.stop :]
    assert_refused(changed, tmp_path, "expected sha256 .*, got .* damaged or was changed")
    for place in (digits.start, digits.stop, len(data) // 2, len(data) - 1):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert_refused(flipped, tmp_path, "it is cut short, damaged or was changed")
    end = archive.LENGTH + int.from_bytes(data[:8], "little")
    padded = (end - archive.LENGTH + 8).to_bytes(8, "little") + data[8:end] + b"       \t" + data[end:]
    assert_refused(padded, tmp_path, "damaged or was changed")  # what JSON does not mind is noticed, too


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.path),)


@pytest.mark.parametrize("called", ["F64", "object", "O", "BOOL", "U8"])
def test_a_pickled_object_is_never_opened(data, tmp_path, called):
    marker = tmp_path / "marker"
    content = pickle.dumps(Bomb(str(marker)))
    pickle.loads(content)
    assert marker.exists()  # it would work
    marker.unlink()
    content += b"." * (-len(content) % 8)
    shape = [len(content) // 8 if called == "F64" else len(content)]
    entry = {LEFT: {"dtype": called, "shape": shape, "data_offsets": [0, len(content)]}}
    assert_refused(packed(manifest(data), entry, content), tmp_path, "expected")
    assert not marker.exists()


@pytest.mark.parametrize(
    "shape", [[2**40], [2**46, 2**46], [2**60], [2**31, 2**31, 2**31], [2**46, 0, 2**46], [0, 2**60]]
)
def test_nothing_is_allocated_for_a_shape_that_is_only_said(data, tmp_path, monkeypatch, shape):
    monkeypatch.setattr(archive.torch, "tensor", lambda *_: pytest.fail("was made"))
    change = lambda entries: entries[LEFT].update(shape=shape)  # noqa: E731
    assert_refused(forged(data, entries=change), tmp_path, f"array {LEFT}: expected|SafetensorError")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F16"}, "expected dtype float32, float64"),
        ({"dtype": "F32"}, "SafetensorError"),
        ({"dtype": ["F64"]}, "expected dtype"),
        ({"shape": [1]}, "SafetensorError"),
        ({"shape": [-1]}, "expected a shape of whole numbers"),
        ({"shape": [1.0]}, "expected a shape of whole numbers"),
        ({"shape": "7"}, "expected a shape of whole numbers"),
        ({"shape": [1] * 50}, "expected at most 8 dimensions"),
        ({"more": 1}, "expected dtype, shape and data_offsets"),
        ({"data_offsets": [0, 2**40]}, "SafetensorError"),
        ({"data_offsets": [-8, 0]}, "SafetensorError"),
        ({"data_offsets": [8, 0]}, "SafetensorError"),
        ({"data_offsets": [2**63, 2**63 + 8]}, "SafetensorError"),
        ({"data_offsets": [2**64, 2**65]}, "SafetensorError"),
        ({"data_offsets": [0]}, "SafetensorError"),
        ({"data_offsets": "all"}, "SafetensorError"),
    ],
)
def test_an_entry_that_does_not_fit_its_array(data, tmp_path, entry, message):
    assert_refused(forged(data, entries=lambda found: found[LEFT].update(entry)), tmp_path, message)


def test_arrays_that_overlap_or_leave_a_hole(data, tmp_path):
    def overlap(entries):
        twin = next(other for other in entries if other != LEFT)
        entries[twin] = dict(entries[LEFT])

    def hole(entries):
        del entries[LEFT]

    def shift(entries):
        for entry in entries.values():
            entry["data_offsets"] = [place + 8 for place in entry["data_offsets"]]

    for change in (overlap, hole, shift):
        assert_refused(forged(data, entries=change), tmp_path, "SafetensorError")


def test_more_or_fewer_numbers_than_the_header_says(data, tmp_path):
    content = numbers(data)
    for wrong in (content[:-8], content + b"\0" * 8, content[:-1], b""):
        assert_refused(forged(data, content=wrong), tmp_path, "SafetensorError")


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**25 + 1, 2**31, 2**62, 2**63, 2**64 - 1])
def test_a_header_length_that_is_wrong(data, tmp_path, length):
    found = header(data)
    del found["__metadata__"]
    wrong = packed(manifest(data), found, numbers(data), length)
    assert_refused(wrong, tmp_path, "expected a header of|manifest: expected JSON")


def test_a_boolean_is_zero_or_one(tmp_path):
    archive.write(tmp_path / "file", {"a": torch.tensor([True, False])})
    assert torch.equal(archive.read(tmp_path / "file")["a"], torch.tensor([True, False]))
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(signed(content[:-1] + b"\x07"))
    with pytest.raises(StorageError, match="expected bytes 0 and 1"):
        archive.read(tmp_path / "file")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(2.5),
        torch.zeros(3, 0),
        torch.zeros(0),
        torch.arange(24).reshape(2, 3, 4),
        torch.arange(24).reshape(2, 3, 4).permute(2, 1, 0),
        torch.arange(24).reshape(2, 3, 4).permute(1, 0, 2),
        torch.arange(6.0).reshape(2, 3).T,
        torch.arange(12.0).reshape(3, 4)[:, ::2],
        torch.arange(12.0).reshape(3, 4).T[:, :2],
        torch.tensor(1.5).expand(4, 3),
        torch.tensor([[-0.0, torch.inf, -torch.inf, torch.nan, 5e-324]], dtype=torch.float64),
        torch.tensor([True, False]),
        torch.arange(3, dtype=torch.int32),
    ],
)
def test_tensors_of_any_order(tensor, tmp_path):
    archive.write(tmp_path / "file", {"a": tensor})
    found = archive.read(tmp_path / "file")["a"]
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert found.contiguous().numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    if tensor.dim() == 2 and tensor.numel() and (tensor.is_contiguous() or tensor.mT.is_contiguous()):
        assert found.stride() == tensor.stride()
    content = (tmp_path / "file").read_bytes()
    array = arrays(content)["a"].T if manifest(content)["fortran_order"] else arrays(content)["a"]
    assert np.array_equal(array, tensor.numpy(), equal_nan=tensor.is_floating_point())


@pytest.mark.parametrize("tensor", [torch.zeros(2, dtype=torch.float16), torch.zeros(2, dtype=torch.complex64)])
def test_other_types_are_refused(tensor, tmp_path):
    with pytest.raises(InputError, match="part: expected a dense tensor of float32, float64, int32, int64, bool, got"):
        archive.write(tmp_path / "file", {"part": tensor})
    assert list(tmp_path.iterdir()) == []


def test_trees_come_back_as_they_were(tmp_path):
    tree = {"a": [1, 2.5, None, True, "text", {"b": torch.arange(3)}], "c": {"d": float("inf"), "e": float("-inf")}}
    archive.write(tmp_path / "file", tree)
    found = archive.read(tmp_path / "file")
    assert torch.equal(found["a"][-1].pop("b"), tree["a"][-1].pop("b"))
    assert found == tree
    with pytest.raises(TypeError, match="a: object is not a plain value"):
        archive.write(tmp_path / "other", {"a": object()})


def test_equal_arrays_are_stored_once(tmp_path):
    archive.write(tmp_path / "file", {"a": torch.ones(3), "b": torch.ones(3), "c": torch.ones(1, 3)})
    assert len(arrays((tmp_path / "file").read_bytes())) == 2
    found = archive.read(tmp_path / "file")
    assert found["a"] is found["b"]
    assert found["c"].shape == (1, 3)


def fail_on_write(monkeypatch):
    opened = builtins.open

    class Full(io.FileIO):
        def write(self, content):
            if self.tell():
                raise OSError(28, "No space left on device")
            return super().write(content)

    def failing(path, mode="r", *args, **options):
        return Full(path, "x+") if mode == "x+b" else opened(path, mode, *args, **options)

    monkeypatch.setattr(builtins, "open", failing)


def fail_on_sync(monkeypatch):
    def failing(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(atomic.os, "fsync", failing)


def fail_on_replace(monkeypatch):
    def failing(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(atomic.os, "replace", failing)


def interrupt(monkeypatch):
    def failing(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(archive, "checksum", failing)


@pytest.mark.parametrize("breaking", [fail_on_write, fail_on_sync, fail_on_replace, interrupt])
@pytest.mark.parametrize("exists", [True, False])
def test_a_failing_write_leaves_things_as_they_were(posterior, tmp_path, monkeypatch, breaking, exists):
    path = tmp_path / "file"
    if exists:
        path.write_bytes(b"before")
    breaking(monkeypatch)
    with pytest.raises((OSError, KeyboardInterrupt)):
        posterior.save(path)
    assert [p.name for p in tmp_path.iterdir()] == (["file"] if exists else [])
    assert not exists or path.read_bytes() == b"before"


def test_paths_that_cannot_be_written(posterior, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="missing/file: expected an existing directory for the file, got .*missing"):
        posterior.save(tmp_path / "missing" / "file")
    with pytest.raises(InputError, match=f"{tmp_path}: expected the path of a file, got a directory"):
        posterior.save(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="expected an existing directory"):
        posterior.save(tmp_path / "file" / "inside")

    def forbidden(path, mode="r", *args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(builtins, "open", forbidden)  # root may write anywhere
    with pytest.raises(InputError, match="new: expected a directory that can be written to, got .*Permission denied"):
        posterior.save(tmp_path / "new")
    with pytest.raises(StorageError, match="file: expected a saved posterior, got PermissionError"):
        mvgp.load(tmp_path / "file")


def test_permissions_follow_the_umask(posterior, tmp_path):
    before = os.umask(0o027)
    try:
        posterior.save(tmp_path / "file")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640

"""What is no saved posterior is refused with one kind of error, and a failing write leaves no trace."""

import builtins
import hashlib
import io
import json
import os
import pathlib
import stat
import zipfile

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError, MvgpError, StorageError
from mvgp.storage import archive, npy
from mvgp.storage import files as atomic
from tests.storage import examples
from tests.storage.forgery import forged, manifest, members, packed, sealed, signed


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


def test_a_file_is_a_plain_zip(posterior, data):
    found = members(data)
    assert next(iter(found)) == "manifest.json"
    text = manifest(data)
    assert (text["format"], text["version"]) == ("mvgp-posterior", 1)
    assert set(found) == {"manifest.json", *(f"arrays/{name}.npy" for name in text["arrays"])}
    left = np.load(io.BytesIO(found["arrays/coefficients.left.npy"]), allow_pickle=False)
    assert np.array_equal(left, posterior.coefficients.left.numpy())


def test_forgery_alone_is_not_noticed(posterior, data, tmp_path):
    """What the other tests change is what they are refused for."""
    (tmp_path / "file").write_bytes(forged(data))
    assert torch.equal(mvgp.load(tmp_path / "file").scores(), posterior.scores())


def test_foreign_files(data, tmp_path):
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as other:
        other.writestr("hello.txt", "hello")
    torch.save({"a": torch.zeros(3)}, tmp_path / "state.pt")
    assert_refused(b"", tmp_path, "got an empty file")
    assert_refused(
        b"row,col\n1,2\n", tmp_path, r"expected a saved posterior \(a zip\), got a file that begins with b'row,'"
    )
    assert_refused(plain.getvalue(), tmp_path, "expected the seal of mvgp at the end, got none")
    assert_refused((tmp_path / "state.pt").read_bytes(), tmp_path, "expected the seal of mvgp")
    assert_refused(b"PK\x03\x04", tmp_path, "expected the seal of mvgp")
    assert_refused(
        packed({"hello.txt": "hello"}), tmp_path, "expected manifest.json as the first member, got .'hello.txt'"
    )
    assert_refused(
        sealed(b"PK\x03\x04" + b"x" * 100 + archive.OPEN), tmp_path, "expected a saved posterior, got BadZipFile"
    )
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
        ("version", 2, "written by a newer mvgp: version 2, this one reads up to 1"),
        ("version", 0, "expected a positive whole number as version, got 0"),
        ("version", True, "expected a positive whole number as version, got True"),
        ("version", "1", "expected a positive whole number as version, got '1'"),
        ("version", None, "expected a positive whole number as version, got None"),
        ("format", "other", "expected format 'mvgp-posterior', got 'other'"),
        ("extra", 1, "manifest: expected arrays, content, format"),
        ("arrays", [], "manifest: expected arrays by names"),
        ("arrays", {"../../x": {}}, "manifest: expected arrays by names"),
        ("content", 3, "expected named parts, got int"),
        ("content", {}, "content: expected a part 'kind'"),
    ],
)
def test_a_manifest_that_says_something_else(data, tmp_path, name, value, message):
    assert_refused(forged(data, lambda text: text.update({name: value})), tmp_path, message)


def test_a_newer_version_is_called_that_whatever_else_it_has(data, tmp_path):
    text = signed({"format": "mvgp-posterior", "version": 7, "something": "new"})
    assert_refused(packed({"manifest.json": text, "other": b""}), tmp_path, "written by a newer mvgp: version 7")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff\xfe", "manifest: expected JSON"),
        (b"[]", "expected format 'mvgp-posterior', got \\[\\]"),
        (b'{"format": "a", "format": "b"}', "a key that occurs twice"),
        (b'{"format": NaN}', "NaN, which is no JSON"),
        (b"[" * 100_000, "expected"),
        (b'{"format": ' + b"9" * 10_000 + b"}", "manifest: expected JSON"),
        (b'{"format":"mvgp-posterior","version":1,"written_by":1e999,"arrays":{},"content":{},"sha256":""}', "finite"),
    ],
)
def test_a_manifest_that_is_none(tmp_path, text, message):
    assert_refused(packed({"manifest.json": text}), tmp_path, message)


def test_hashes_are_compared(data, tmp_path):
    parts, text = members(data), manifest(data)
    text["content"]["own"]["certificate"]["primal"] *= 2
    changed = {**parts, "manifest.json": json.dumps(text).encode()}
    assert_refused(packed(changed), tmp_path, "manifest: expected sha256 .*, got")
    name = "arrays/coefficients.left.npy"
    changed = {**parts, name: parts[name][:-1] + bytes([parts[name][-1] ^ 1])}
    assert_refused(packed(changed), tmp_path, "array coefficients.left: expected sha256")
    middle = len(data) // 2
    assert_refused(
        data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], tmp_path, "it is damaged or was changed"
    )


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_have_to_be_those_of_the_manifest(data, tmp_path):
    parts = members(data)
    assert_refused(packed({**parts, "arrays/more.npy": b""}), tmp_path, "unknown .'arrays/more.npy'")
    assert_refused(packed({**parts, "run.py": b"print()"}), tmp_path, "unknown .'run.py'")
    less = {name: content for name, content in parts.items() if "coefficients.left" not in name}
    assert_refused(packed(less), tmp_path, "missing .'arrays/coefficients.left.npy'")
    assert_refused(packed([*parts.items(), ("manifest.json", b"{}")]), tmp_path, "got 'manifest.json' twice")
    assert_refused(packed(parts, zipfile.ZIP_DEFLATED), tmp_path, "expected members that are stored as they are")
    moved = [*list(parts.items())[1:], next(iter(parts.items()))]
    assert_refused(packed(moved), tmp_path, "expected manifest.json as the first member")


def npy_bytes(array, **options):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.path),)


@pytest.mark.parametrize("called", ["float64", "object", "bool"])
def test_a_pickled_object_is_never_opened(data, tmp_path, called):
    marker = tmp_path / "marker"
    array = np.empty(1, dtype=object)
    array[0] = Bomb(str(marker))
    content = npy_bytes(array, allow_pickle=True)
    np.load(io.BytesIO(content), allow_pickle=True)
    assert marker.exists()  # it would work
    marker.unlink()

    def change(text):
        text["arrays"]["coefficients.left"].update(dtype=called, shape=[1])

    assert_refused(forged(data, change, {"coefficients.left": content}), tmp_path, "array coefficients.left: expected")
    assert not marker.exists()


@pytest.mark.parametrize("shape", [[2**40], [2**46, 2**46], [2**60], [2**31, 2**31, 2**31]])
def test_nothing_is_allocated_for_a_shape_that_is_only_said(data, tmp_path, monkeypatch, shape):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": tuple(shape)})

    def change(text):
        text["arrays"]["coefficients.left"]["shape"] = shape

    content, sizes, empty = out.getvalue() + b"\0" * 64, [], torch.empty

    def watched(*args, **options):
        sizes.append(args[0])
        return empty(*args, **options)

    monkeypatch.setattr(npy.torch, "empty", watched)
    assert_refused(forged(data, change, {"coefficients.left": content}), tmp_path, "array coefficients.left: expected")
    assert tuple(shape) not in sizes


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "float16"}, "expected dtype float32, float64"),
        ({"dtype": "float32"}, "as in the manifest, got"),
        ({"dtype": ["float64"]}, "expected dtype"),
        ({"shape": [1]}, "as in the manifest, got"),
        ({"shape": [-1]}, "expected a shape of whole numbers"),
        ({"shape": [1.0]}, "expected a shape of whole numbers"),
        ({"shape": "7"}, "expected a shape of whole numbers"),
        ({"shape": [1] * 50}, "expected at most 8 dimensions"),
        ({"fortran_order": True}, "as in the manifest, got"),
        ({"fortran_order": 0}, "expected a flag"),
        ({"sha256": "0"}, "expected sha256 0, got"),
        ({"more": 1}, "expected dtype, shape, fortran_order and sha256"),
    ],
)
def test_an_entry_that_does_not_fit_its_array(data, tmp_path, entry, message):
    assert_refused(forged(data, lambda text: text["arrays"]["coefficients.left"].update(entry)), tmp_path, message)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x02\x00\x76\x00" + b" " * 200,
        b"\x93NUMPY\x01\x00\xff\xff{}",
        b"\x93NUMPY\x01\x00\x02\x00{}",
        b"\x93NUMPY\x01\x00\x28\x00{'descr': '<f8', 'fortran_order': False}",
        b"\x93NUMPY\x01\x00\x1a\x00__import__('os').getcwd()\n",
        b"\x93NUMPY\x01\x00\x04\x00" + b"((((",
    ],
)
def test_headers_that_are_none(data, tmp_path, content):
    assert_refused(forged(data, arrays={"coefficients.left": content}), tmp_path, "array coefficients.left: expected")


def test_an_array_with_more_or_fewer_numbers_than_its_header_says(data, tmp_path):
    content = members(data)["arrays/coefficients.left.npy"]
    for wrong in (content[:-8], content + b"\0" * 8, content[:-1]):
        assert_refused(forged(data, arrays={"coefficients.left": wrong}), tmp_path, r"expected \d+ bytes for")


def test_a_boolean_is_zero_or_one():
    content = npy_bytes(np.array([True, False]))
    entry = npy.make_member(torch.tensor([True, False]), "a").entry
    assert torch.equal(npy.read_member(io.BytesIO(content), len(content), entry, "a"), torch.tensor([True, False]))
    wrong = content[:-1] + b"\x07"
    entry = npy.ArrayEntry("bool", (2,), False, hashlib.sha256(wrong).hexdigest())
    with pytest.raises(StorageError, match="expected bytes 0 and 1"):
        npy.read_member(io.BytesIO(wrong), len(wrong), entry, "a")


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
def test_tensors_of_any_order(tensor):
    member, out = npy.make_member(tensor, "a"), io.BytesIO()
    member.write(out)
    assert len(out.getvalue()) == member.size
    out.seek(0)
    found = npy.read_member(out, member.size, member.entry, "a")
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert found.contiguous().numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    if tensor.dim() == 2 and tensor.numel() and (tensor.is_contiguous() or tensor.mT.is_contiguous()):
        assert found.stride() == tensor.stride()
    assert np.array_equal(np.load(io.BytesIO(out.getvalue())), tensor.numpy(), equal_nan=tensor.is_floating_point())


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
    assert len(members((tmp_path / "file").read_bytes())) == 3
    found = archive.read(tmp_path / "file")
    assert found["a"] is found["b"]
    assert found["c"].shape == (1, 3)


def fail_on_write(monkeypatch):
    write = npy.Member.write

    def failing(self, to):
        write(self, to)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npy.Member, "write", failing)


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

    monkeypatch.setattr(archive, "seal", failing)


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

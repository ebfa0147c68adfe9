"""Files that were not written by mvgp, with a checksum as if they had been."""

import json

import safetensors.numpy

from mvgp.storage.archive import DIGITS, LENGTH, START, ZEROS, checksum


def signed(data):
    """Bytes whose checksum is right for the rest."""
    return data[: DIGITS.start] + checksum(data) + data[DIGITS.stop :]


def header(data):
    """The header of a file, metadata included, as JSON says it."""
    length = int.from_bytes(data[:LENGTH], "little")
    return json.loads(data[LENGTH : LENGTH + length])


def numbers(data):
    """The bytes after the header."""
    return data[LENGTH + int.from_bytes(data[:LENGTH], "little") :]


def manifest(data):
    """The metadata of mvgp: format, version, content."""
    return json.loads(header(data)["__metadata__"]["mvgp"])


def arrays(data):
    """numpy arrays by name."""
    return safetensors.numpy.load(data)


def packed(text, entries, content, length=None):
    """A signed file.

    :param text: the manifest, or the text that stands for it.
    :param entries: of the arrays, by name: dtype, shape, data_offsets; or the text of the header after the metadata.
    :param content: the bytes after the header.
    :param length: of the header, as the file says it.
    """
    if isinstance(text, dict):
        text = json.dumps(
            {"sha256": ZEROS.decode(), **{k: v for k, v in text.items() if k != "sha256"}}, separators=(",", ":")
        )
    head = json.dumps({"__metadata__": {"mvgp": text}}, separators=(",", ":"))
    more = entries if isinstance(entries, str) else json.dumps(entries, separators=(",", ":"))[1:-1]
    raw = (head[:-1] + ("," if more else "") + more + "}").encode()
    raw += b" " * (-len(raw) % 8)
    return signed((len(raw) if length is None else length).to_bytes(LENGTH, "little") + raw + content)


def built(text, stored):
    """A signed file of a manifest and numpy arrays, as safetensors writes it."""
    text = {"sha256": ZEROS.decode(), **{key: value for key, value in text.items() if key != "sha256"}}
    data = safetensors.numpy.save(stored, {"mvgp": json.dumps(text, separators=(",", ":"))})
    assert data[LENGTH:].startswith(START)
    return signed(data)


def forged(data, change=None, entries=None, content=None):
    """The file with a changed manifest, changed entries of arrays or changed bytes; all else is right.

    :param change: edits the manifest in place.
    :param entries: edits the entries of the arrays in place.
    """
    text, found = manifest(data), header(data)
    del found["__metadata__"]
    if change is not None:
        change(text)
    if entries is not None:
        entries(found)
    return packed(text, found, numbers(data) if content is None else content)

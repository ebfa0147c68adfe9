"""Files that were not written by mvgp, sealed as if they had been."""

import hashlib
import io
import json
import zipfile

from mvgp.storage.archive import LENGTH, OPEN


def sealed(data):
    """Bytes whose last digits are right for the rest."""
    return data[:-LENGTH] + hashlib.sha256(data[:-LENGTH]).hexdigest().encode()


def members(data):
    """(name, bytes) of a saved posterior."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(parts, compression=zipfile.ZIP_STORED, comment=OPEN):
    """A sealed zip of (name, bytes)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.comment = comment
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, content)
    return sealed(out.getvalue())


def manifest(data):
    return json.loads(members(data)["manifest.json"])


def signed(text):
    """A manifest with the right SHA-256."""
    body = {key: value for key, value in text.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**body, "sha256": digest}).encode()


def forged(data, change=None, arrays=None):
    """The file with a changed manifest, which is right about its arrays in everything that is not changed.

    ``change`` edits the manifest in place; ``arrays`` are new bytes of members.
    """
    parts, text = members(data), manifest(data)
    for name, content in (arrays or {}).items():
        parts[f"arrays/{name}.npy"] = content
        text["arrays"][name]["sha256"] = hashlib.sha256(content).hexdigest()
    if change is not None:
        change(text)
    return packed({**parts, "manifest.json": signed(text)})

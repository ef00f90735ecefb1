"""The file of a snapshot: a head that tells what it is, and a body that is read only when it is wanted.

======  =====================================================================================
bytes
======  =====================================================================================
8       magic
4       version of the format
4       length of the description
8, 8    lengths of the elements and of the logits in bytes
8       length of the state in bytes
4       CRC-32 of all that is above and of the description and the elements
…       description: JSON, in ASCII
…       elements of the prefix, int32
…       logits of the last token, float32; none where there are none
…       state
4       CRC-32 of logits and state
======  =====================================================================================

The numbers of the frame are little endian, what they frame is in the byte order that the description names. A file has
exactly the length that its head says. Checksums find what disks and aborted copies do, not what people forge; a forged
state meets the checks of `State.seq_set`. CRC-32 was chosen for its speed: four to six times that of the hashes.
"""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.prefix import Media, Prefix
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.errors import CheckpointError, CorruptCheckpointError, IncompatibleCheckpointError

if TYPE_CHECKING:
    from typing import Any

MAGIC = b"\x89LCYCKP\n"
VERSION = 1

_frame = Struct("<8sIIQQQ")
_checksum = Struct("<I")

HEAD_LEAST = _frame.size + _checksum.size


@dataclass(frozen=True)
class Head:
    """What a file says about the snapshot in it; checked."""

    fingerprint: Fingerprint
    prefix: Prefix
    n_logits_bytes: int
    n_state_bytes: int
    #: Where logits and state begin.
    body: int

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole file."""
        return self.body + self.n_logits_bytes + self.n_state_bytes + _checksum.size


def address(fingerprint: Fingerprint, elements: bytes) -> str:
    """Return what a snapshot is filed under: a hash of where it belongs and what it holds."""
    return blake2b(fingerprint.digest + elements, digest_size=20).hexdigest()


def file_size(snapshot: Snapshot) -> int:
    """Return the size of the file of a snapshot."""
    n_logits = 0 if snapshot.logits is None else snapshot.logits.nbytes
    return (
        HEAD_LEAST
        + len(_description(snapshot))
        + len(snapshot.prefix.elements)
        + n_logits
        + len(snapshot.state)
        + _checksum.size
    )


def write_snapshot(file: BinaryIO, snapshot: Snapshot) -> None:
    """Write a snapshot to a binary file; nothing is copied on the way."""
    description = _description(snapshot)
    elements = snapshot.prefix.elements
    logits = b"" if snapshot.logits is None else snapshot.logits.cast("B")
    frame = _frame.pack(MAGIC, VERSION, len(description), len(elements), len(logits), len(snapshot.state))
    head = crc32(elements, crc32(description, crc32(frame)))
    body = crc32(snapshot.state, crc32(logits))
    for part in (frame, _checksum.pack(head), description, elements, logits, snapshot.state, _checksum.pack(body)):
        file.write(part)


def read_head(file: BinaryIO) -> Head:
    """Read the head of a file from its beginning; the body is not looked at.

    Raises
    ------
    CorruptCheckpointError
        It isn't the file of a snapshot, or is damaged or cut off.
    IncompatibleCheckpointError
        It is of another version of the format, or of a machine with another byte order.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    frame = _exactly(file, _frame.size)
    magic, version, n_description, n_elements, n_logits, n_state = _frame.unpack(frame)
    if magic != MAGIC:
        raise CorruptCheckpointError("it isn't the file of a snapshot")
    if version != VERSION:
        raise IncompatibleCheckpointError(f"it is of version {version} of the format; this llamacy reads {VERSION}")
    body = HEAD_LEAST + n_description + n_elements
    expected = body + n_logits + n_state + _checksum.size
    # before anything of these lengths is read
    if size != expected:
        raise CorruptCheckpointError(f"it has {size} bytes, not the {expected} that its head says: it was cut off")
    checksum = _exactly(file, _checksum.size)
    description = _exactly(file, n_description)
    elements = _exactly(file, n_elements)
    if _checksum.unpack(checksum)[0] != crc32(elements, crc32(description, crc32(frame))):
        raise CorruptCheckpointError("its head is damaged: the checksum is another one")
    fingerprint, prefix = _read_description(description, elements)
    return Head(fingerprint, prefix, n_logits, n_state, body)


def read_snapshot(file: BinaryIO) -> Snapshot:
    """Read a snapshot from the beginning of a file and check all of it.

    Raises
    ------
    CorruptCheckpointError, IncompatibleCheckpointError
        As for `read_head`; also when the body is damaged.
    """
    head = read_head(file)
    file.seek(head.body)
    logits = _exactly(file, head.n_logits_bytes)
    state = _exactly(file, head.n_state_bytes)
    if _checksum.unpack(_exactly(file, _checksum.size))[0] != crc32(state, crc32(logits)):
        raise CorruptCheckpointError("its state is damaged: the checksum is another one")
    try:
        row = memoryview(logits).cast("f") if logits else None
        return Snapshot(head.fingerprint, head.prefix, state, row)
    except (CheckpointError, TypeError) as error:
        raise CorruptCheckpointError(f"its parts don't fit each other: {error.args[0]}") from error


def snapshot_to_bytes(snapshot: Snapshot) -> bytes:
    """Return the content of the file of a snapshot."""
    buffer = io.BytesIO()
    write_snapshot(buffer, snapshot)
    return buffer.getvalue()


def snapshot_from_bytes(data: bytes) -> Snapshot:
    """Return the snapshot in what `snapshot_to_bytes` returned; raise as `read_snapshot` does."""
    try:
        return read_snapshot(io.BytesIO(data))
    except (CorruptCheckpointError, IncompatibleCheckpointError) as error:
        raise type(error)(f"these {len(data)} bytes are of no use: {error.args[0]}") from error


def _description(snapshot: Snapshot) -> bytes:
    media = [[medium.at, medium.key.hex(), medium.n_tokens, medium.n_positions] for medium in snapshot.prefix.media]
    return json.dumps(
        {"byteorder": sys.byteorder, "media": media, "fingerprint": dict(snapshot.fingerprint)},
        separators=(",", ":"),
    ).encode("ascii")


def _read_description(description: bytes, elements: bytes) -> tuple[Fingerprint, Prefix]:
    try:
        facts: dict[str, Any] = json.loads(description)
        if facts["byteorder"] != sys.byteorder:
            raise IncompatibleCheckpointError(f"it is of a machine with {facts['byteorder']!r} byte order")
        media = [Media(at, bytes.fromhex(key), n, n_positions) for at, key, n, n_positions in facts["media"]]
        prefix = _prefix(elements, media)
        return Fingerprint(facts["fingerprint"]), prefix
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, IncompatibleCheckpointError):
            raise
        raise CorruptCheckpointError(f"its description can't be read: {error!r}") from error


def _prefix(elements: bytes, media: list[Media]) -> Prefix:
    """Return the prefix with these elements; it is made anew, so that media and elements are sure to agree."""
    from array import array

    from llamacy.checkpoint.prefix import MEDIA_ELEMENTS

    ids = array("i", elements)
    for number in range(len(media) - 1, -1, -1):
        start = media[number].at + number * MEDIA_ELEMENTS
        del ids[start : start + MEDIA_ELEMENTS]
    prefix = Prefix(ids, media)
    if prefix.elements != elements:
        raise ValueError("media and tokens don't agree")
    return prefix


def _exactly(file: BinaryIO, n: int) -> bytes:
    data = file.read(n)
    if len(data) != n:
        raise CorruptCheckpointError("it ends too early: it was cut off")
    return data

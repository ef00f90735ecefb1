"""Unpacking: nothing lands outside, whatever the archive says."""

from __future__ import annotations

import stat
import tarfile

import pytest

from buildtools.errors import BuildError
from buildtools.vendor_sync import sync

from .conftest import NAME, Place, add_file


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        f"{NAME}/../../evil.txt",
        f"{NAME}/third/tree/include/../../../../../evil.txt",
        "/tmp/evil.txt",
        f"{NAME}/third/tree/include/..\\evil.txt",
        f"{NAME}/third/tree/include/c:evil.txt",
    ],
)
def test_unpack_name_that_points_out_is_refused(place: Place, name: str) -> None:
    place.remake(lambda tar: add_file(tar, name, b"evil"))
    with pytest.raises(BuildError, match="isn't trusted"):
        sync(place.tree, place.pin)
    assert not place.tree.exists()
    assert place.left_behind() == set()
    assert not list(place.tree.parent.parent.rglob("*evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_unpack_entry_that_is_no_file_is_refused(place: Place, kind: bytes) -> None:
    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(f"{NAME}/third/tree/include/link.h")
        member.type = kind
        member.linkname = "/etc/passwd"
        tar.addfile(member)

    place.remake(add)
    with pytest.raises(BuildError, match=r"link\.h.*isn't a plain file"):
        sync(place.tree, place.pin)
    assert not place.tree.exists()
    assert place.left_behind() == set()


def test_unpack_links_elsewhere_in_the_archive_are_ignored(place: Place) -> None:
    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(f"{NAME}/docs/link")
        member.type = tarfile.SYMTYPE
        member.linkname = "/etc/passwd"
        tar.addfile(member)

    place.remake(add)
    assert sync(place.tree, place.pin)


def test_unpack_name_twice_is_refused(place: Place) -> None:
    place.remake(lambda tar: add_file(tar, f"{NAME}/third/tree/include/llama.h", b"// other"))
    with pytest.raises(BuildError):
        sync(place.tree, place.pin)
    assert not place.tree.exists()


def test_unpack_modes_are_plain(place: Place) -> None:
    place.remake(lambda tar: add_file(tar, f"{NAME}/third/tree/tools/run.sh", b"#!/bin/sh\n", 0o6777))
    sync(place.tree, place.pin)
    assert stat.S_IMODE((place.tree / "tools/run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((place.tree / "tools/kept.cpp").stat().st_mode) == 0o644

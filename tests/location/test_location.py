"""What every kind of place keeps to. A second implementation is one more entry of `KINDS`: a root
of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.errors import InputError
from rewindow.location import Location, location
from rewindow.location.local import LocalLocation

KINDS: dict[str, Callable[[Path], Location]] = {"local": lambda folder: LocalLocation(str(folder))}
RACERS = 3
KEYS = 40
LENGTH = 100_000
NAMES = ("plain", "with spaces", "Grüße, 世界", "a%20b", "key=value", "#1?")


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    made: Callable[[Path], Location] = request.param
    return made(Path(tmp_path))


def test_locations_are_compared_by_value(root: Location) -> None:
    # Creating one accesses no storage.
    place = root / "streams" / "clicks"
    assert place == root / "streams/clicks" and len({place, root / "streams/clicks"}) == 1
    assert sorted([root / "b", root / "a"]) == [root / "a", root / "b"]
    assert (place.name, place.parent, place.with_name("x.y")) == (
        "clicks",
        root / "streams",
        root / "streams/x.y",
    )
    assert (root / "a.b.csv").stem == "a.b" and str(place) == place.uri
    with pytest.raises(AttributeError):
        place.uri = "other"  # type: ignore[misc]
    assert root.entries() == [] and not place.exists()


def test_containment_compares_path_parts_instead_of_text(root: Location) -> None:
    # `streams2` is not below `streams`.
    folder = root / "streams"
    assert (folder / "a" / "b").relative_to(folder) == "a/b" and folder.is_below(folder)
    assert not (root / "streams2").is_below(folder) and not root.is_below(folder)
    with pytest.raises(ValueError, match="streams2.* is not below"):
        (root / "streams2").relative_to(folder)
    assert root / "elsewhere" / folder.uri == folder


@pytest.mark.parametrize("name", NAMES)
def test_file_with_any_name_can_be_written_listed_and_read(root: Location, name: str) -> None:
    file = root / name / f"{name}.txt"
    file.write(name)
    assert [entry.name for entry in root.entries()] == [name] and (root / name).entries() == [file]
    assert file.read_text() == name and file.size() == len(name.encode())
    assert [one.relative_to(root) for one in root.files()] == [f"{name}/{name}.txt"]


def test_writing_replaces_the_file_and_leaves_no_temporary_files(root: Location) -> None:
    file = root / "a" / "b"
    for content in (b"first", "second \N{SNOWMAN}"):
        file.write(content)
    assert file.read_text() == "second \N{SNOWMAN}" and list(root.files()) == [file]
    with file.open() as stream:
        assert stream.read(6) == b"second"
    assert (file.is_file(), file.is_dir(), file.parent.is_dir(), file.parent.is_file()) == (
        True,
        False,
        True,
        False,
    )


def test_missing_file_is_not_listed_cannot_be_read_and_is_deleted_silently(root: Location) -> None:
    gone = root / "gone"
    assert not gone.exists() and gone.entries() == [] and list(gone.files()) == []
    for read in (gone.read_bytes, gone.size, gone.modified, lambda: gone.copy_to(root / "copy")):
        with pytest.raises(FileNotFoundError):
            read()
    gone.delete()
    gone.delete_tree()
    assert root.entries() == [] and list(root.files()) == []


def test_file_lists_are_sorted_filtered_and_without_hidden_files(root: Location) -> None:
    for name in ("b.json", "a.json", "c.html", ".draft.json", "sub/d.json"):
        (root / name).write("x")
    assert [place.name for place in root.entries()] == ["a.json", "b.json", "c.html", "sub"]
    assert [place.name for place in root.entries("*.json")] == ["a.json", "b.json"]
    assert [place.name for place in root.folders()] == ["sub"]
    assert len(list(root.files())) == 5


def test_only_the_first_of_several_puts_is_stored(root: Location) -> None:
    file = root / "log" / "0.json"
    assert file.put_if_absent("first") and not file.put_if_absent(b"second")
    assert file.read_text() == "first" and list(root.files()) == [file]


def put_all(folder: Location, racer: int) -> list[int]:
    """Tries every key and returns those that it won; what another has put is there whole as soon as
    one has lost.
    """
    return [key for key in range(KEYS) if _put(folder / f"{key}.json", racer)]


def _put(file: Location, racer: int) -> bool:
    ready = file.with_name(f"{file.stem}.ready")
    (ready / f"{racer}").write("")
    while len(ready.entries()) < RACERS:
        pass  # All begin with it at once.
    won = file.put_if_absent(f"{racer}" * LENGTH)
    assert won or file.size() == LENGTH
    return won


def test_exactly_one_of_concurrent_puts_stores_each_file(root: Location) -> None:
    with ProcessPoolExecutor(RACERS, get_context("spawn")) as pool:
        won = [
            job.result()
            for job in [pool.submit(put_all, root / "race", racer) for racer in range(RACERS)]
        ]
    assert sorted(key for keys in won for key in keys) == list(range(KEYS))
    for racer, keys in enumerate(won):
        assert {(root / "race" / f"{key}.json").read_text() for key in keys} <= {
            f"{racer}" * LENGTH
        }


def test_copy_survives_deletion_of_its_source_and_never_overwrites(root: Location) -> None:
    source = root / "a" / "one"
    copy = root / "b" / "two"
    source.write("content")
    source.copy_to(copy)
    source.write("other")
    source.copy_to(copy)
    source.delete()
    assert copy.read_text() == "content" and list(root.files()) == [copy]


def test_folder_is_moved_completely_or_not_at_all(root: Location) -> None:
    for name in ("first", "second"):
        (root / name / "deep" / "file").write(name)
    target = root / "new" / "place"
    assert (root / "first").move_to(target) and not (root / "second").move_to(target)
    assert (target / "deep" / "file").read_text() == "first" and not (root / "first").exists()
    assert (root / "second" / "deep" / "file").read_text() == "second"


def test_deleting_a_folder_removes_only_the_folder_and_its_contents(root: Location) -> None:
    for name in ("gone/a/b", "gone/c", "kept/d"):
        (root / name).write("x")
    (root / "gone").delete_tree()
    (root / "kept" / "d").delete()
    assert not (root / "gone").exists() and list(root.files()) == []


def test_modification_time_can_be_set_to_the_millisecond(root: Location) -> None:
    file = root / "file"
    file.write("x")
    file.set_modified(1_700_000_000_123)
    assert file.modified_ms() == 1_700_000_000_123
    file.set_modified()
    assert file.modified() > 1_700_000_001


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/state", "gs://bucket/state", "abfss://c@a.dfs.core.windows.net/x", "file:///x"],
)
def test_unknown_store_is_rejected_by_name(url: str) -> None:
    # It would otherwise be taken for a folder of that name.
    with pytest.raises(InputError, match=url) as caught:
        location(url)
    assert "Object stores are not supported" in caught.value.hint


def test_interrupted_deletion_is_completed_by_the_next_deletion(tmp_path: Path) -> None:
    folder = LocalLocation(str(tmp_path))
    (folder / ".dead.0a1b2c3d.trash" / "x").write("x")
    (folder / "other" / "y").write("y")
    (folder / "other").delete_tree()
    assert list(folder.files()) == []


def test_failed_write_keeps_the_old_content_and_leaves_no_temporary_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = LocalLocation(str(tmp_path))
    (folder / "file").write("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rewindow.location.local.os.fsync", full)
    for attempt in ((folder / "file").write, (folder / "new").put_if_absent):
        with pytest.raises(OSError, match="No space"):
            attempt("new")
    assert (folder / "file").read_text() == "old" and list(folder.files()) == [folder / "file"]


@given(
    st.lists(st.sampled_from(["/", "//", ".", "..", "a", "b.c", ".d", "e."]), max_size=8).map(
        "".join
    )
)
def test_location_path_is_normalized(text: str) -> None:
    assert LocalLocation(text).uri == str(PurePosixPath(text))

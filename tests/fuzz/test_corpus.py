"""The fuzzer's corpus, replayed without the fuzzer: what it once found stays found."""

from __future__ import annotations

import pytest
from tests.fuzz import folders, fuzz_wire, targets


@pytest.mark.parametrize("target", ["scalar", "batch", "columns", "folder"])
def test_the_corpus_and_its_seeds_pass(target: str) -> None:
    inputs = fuzz_wire.seeds(target)
    assert len(inputs) >= 16
    for data in inputs:
        getattr(targets, target)(data)


@pytest.mark.parametrize("target", ["scalar", "batch", "columns", "folder"])
def test_the_committed_corpus_is_small(target: str) -> None:
    assert fuzz_wire.corpus_file(target).stat().st_size < 65_000
    assert len(fuzz_wire.committed(target)) >= 3


def test_seeds_reach_every_decoder_with_bytes_that_it_reads() -> None:
    reached = set()
    for data in fuzz_wire.seeds("scalar"):
        number = data[0] if data[0] < len(targets.CODECS) else 0
        try:
            targets.CODECS[number].decode(data[1:])
        except targets.WireError:
            continue
        reached.add(number)
    assert reached == set(range(len(targets.CODECS)))


def test_many_records_survive_packing() -> None:
    pairs = [(b"k", b"v"), (b"", None), (None, b"")]
    assert targets.records_in(targets.records_out(pairs)) == pairs
    assert targets.split(targets.join(b"key", None)) == (b"key", None)
    assert targets.split(targets.join(b"key", b"")) == (b"key", b"")


@pytest.mark.parametrize("kind", folders.KINDS)
def test_a_file_is_read_as_it_is_and_the_corpus_has_some_that_are_refused(kind: str) -> None:
    (good,) = (one for one in folders.folder_seeds() if folders.KINDS[one[0]] == kind)
    assert folders.read_and_written(kind, good[1:])
    number, n = folders.KINDS.index(kind), len(folders.KINDS)
    strange = [one[1:] for one in fuzz_wire.committed("folder") if one[0] % n == number]
    assert not all(folders.read_and_written(kind, data) for data in strange)

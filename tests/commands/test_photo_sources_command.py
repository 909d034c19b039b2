"""Photos as people have them, given to a training."""

from photo_files import photos, write_table

from vsehub.data import Table


def test_a_listing_is_read_once(tmp_path, run_here, monkeypatch):
    """The command fails only when the words of the captions are counted."""
    reads, read = [], Table.read_listing
    monkeypatch.setattr(Table, "read_listing", lambda self: reads.append(self.listing) or read(self))
    table = write_table(tmp_path, photos()).listing
    settings = "data=table", f"data.table={table}", f"data.images={tmp_path}/photos", "loader.min_count=999"
    assert "min_count" in run_here("train", *settings, "data.pictures.size=32", status=2)
    assert len(reads) == 1

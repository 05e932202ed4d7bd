import pytest

from labelling import write_textures
from lmfcn.data.sources import open_collection
from lmfcn.label.result import write_result
from lmfcn.label.session import LabellingSession


def opened(folder, **options):
    return LabellingSession(folder, network="texture-fcn", device="cpu", **options)


@pytest.mark.parametrize("files", ["links", "copies"])
def test_the_table_and_the_class_folders_can_be_opened(tmp_path, files):
    images, out = tmp_path / "images", tmp_path / "out"
    for part in ("a", "b"):
        write_textures(images / part, 1)
    with opened(images, groups_from=r"(\d+).png") as session:
        with pytest.raises(ValueError, match="No image has a label yet"):
            write_result(session, out)
        session.put([0, 3], "wood")  # a/00.png and b/00.png
        session.put([1], "stone")
        table = write_result(session, out, files)
        with pytest.raises(ValueError, match="is inside the folder with the images"):
            write_result(session, images / "out")
        with pytest.raises(ValueError, match="classes exists already"):
            write_result(session, out, files)
    read = open_collection(table)
    assert read.labels.tolist() == ["wood", "stone", "wood"]
    assert read.groups.tolist() == ["00", "01", "00"]
    assert read[0].shape == (18, 22, 1)
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.png"))
    assert found == ["classes/stone/01.png", "classes/wood/00.png", "classes/wood/b-00.png"]
    assert (out / found[0]).is_symlink() == (files == "links")
    assert open_collection(out / "classes")[1].shape == (18, 22, 1)

"""Arguments and options that several commands have, with one name and one explanation each."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option


def _present(context: Context, path: Path) -> Path:
    """Refuse what is not there at once, before packages are loaded that take seconds."""
    if not context.resilient_parsing and not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    return path


Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        callback=_present,
        help="Folder of class folders, table (.csv, .tsv), list (.txt) or .npz.",
    ),
]
ModelFile = Annotated[
    Path, Argument(metavar="MODEL", callback=_present, help="File that lmfcn train wrote, such as model.lmfcn.")
]
Size = Annotated[int | None, Option(min=8, metavar="PIXELS", help="Side to bring all images to.")]
Color = Annotated[str, Option(metavar="KIND", help="keep, grey or rgb: for images of mixed kinds.")]
GalleryFile = Annotated[
    Path | None, Option(metavar="FILE", help="Small pictures of training images; those beside MODEL by default.")
]
Device = Annotated[str, Option(metavar="NAME", help="auto, cpu, cuda, mps, ...: where to compute.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no notes; only results and errors.")]
AsJson = Annotated[bool, Option("--json", help="One JSON object on standard output, and nothing else there.")]

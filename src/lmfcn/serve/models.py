"""The models of the server: chosen by name, and loaded anew when their files were replaced."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmfcn.explain.gallery import Gallery, gallery_path, load_gallery
from lmfcn.model import TextureModel
from lmfcn.model_file import load
from lmfcn.serve.logs import LOGGER
from lmfcn.serve.predictions import Predictor
from lmfcn.serve.uploads import Limits, Refusal, default_pixels

_ATTEMPTS = 3


@dataclass(frozen=True)
class ModelSource:
    """A model file, and how it is to be served.

    Attributes
    ----------
    path : Path
        Its name is that of the model.
    gallery : Path or None
        None takes the gallery beside the model, if there is one.
    device : str
    limits : Limits
    pixels : int or None
        Largest number of pixels of one image; None lets it depend on the model.
    """

    path: Path
    gallery: Path | None = None
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    pixels: int | None = None

    def open(self) -> Predictor:
        """Return the model that is in the file now.

        Raises
        ------
        ValueError, OSError
            If a file is not there, is damaged, or is replaced again and again while it is read.
        """
        for _ in range(_ATTEMPTS):
            state = _state(self.path)
            model, digest = load(self.path, self.device), _digest(self.path)
            if _state(self.path) == state:
                return Predictor(model, self._load_gallery(model), self._limits(model), self.path.name, digest)
        raise ValueError(f"{self.path} is replaced while it is read; try again later.")

    def _load_gallery(self, model: TextureModel) -> Gallery | None:
        beside = gallery_path(self.path)
        if self.gallery is None and not beside.exists():
            return None
        return load_gallery(self.gallery or beside, model)

    def _limits(self, model: TextureModel) -> Limits:
        pixels = default_pixels(model.form) if self.pixels is None else self.pixels
        return replace(self.limits, pixels=pixels)


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes if a file is replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ModelStore:
    """Models by name. A request keeps the one that it got, whatever is loaded meanwhile.

    Parameters
    ----------
    predictors : sequence of Predictor
        The first is the default.
    sources : sequence of ModelSource
        Where they come from, for `reload`.
    """

    def __init__(self, predictors: Sequence[Predictor], sources: Sequence[ModelSource] = ()) -> None:
        self._by_name = {predictor.name: predictor for predictor in predictors}
        self._sources = sources

    @classmethod
    def open(cls, sources: Sequence[ModelSource]) -> "ModelStore":
        """Return the models in some files, whose names must differ."""
        names = [source.path.name for source in sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Two models have the name {twice}, by which they are chosen; rename one of the files.")
        return cls([source.open() for source in sources], sources)

    def __iter__(self) -> Iterator[Predictor]:
        return iter(list(self._by_name.values()))

    def get(self, name: str | None) -> Predictor:
        """Return the model of a name, or the first; refuse an unknown name."""
        if name is None:
            return next(iter(self))
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(self._by_name)
            raise Refusal(404, f"There is no model {name[:80]!r}; the models are {known}.")
        return found

    def reload(self) -> list[tuple[str, str]]:
        """Read all files anew; return the name of every model, and whether it was "loaded" or "failed".

        Where it fails, the model of before stays.
        """
        return [(source.path.name, "loaded" if self._replace(source) else "failed") for source in self._sources]

    def _replace(self, source: ModelSource) -> bool:
        name = source.path.name
        try:
            predictor = source.open()
        except Exception as error:  # whatever it is, the server goes on
            LOGGER.error("%s was not loaded, the model of before stays: %s", name, error)
            return False
        self._by_name[name] = predictor
        LOGGER.info("%s is loaded, its fingerprint is %s.", name, predictor.fingerprint)
        return True

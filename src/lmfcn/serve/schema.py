"""The types of the JSON interface, from which the OpenAPI document is made."""

from typing import Annotated

from pydantic import BaseModel, Field

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Address = Annotated[str, Field(description="The picture as a data URL: data:image/...;base64,...")]
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the file of the model.")]
Two = Field(min_length=2, max_length=2)
Place = Annotated[list[float], Two, Field(description="Coordinates on the plane of the training images.")]


class FileProblem(BaseModel):
    """The problem with one file."""

    name: str
    reason: str


class Problem(BaseModel):
    """The reason for which a request is refused."""

    detail: str = Field(description="The reason in one sentence.")
    files: list[FileProblem] = Field(description="The files that cannot be used; empty for other problems.")


class DecidingImage(BaseModel):
    """A support vector and its weight in the decision value."""

    weight: float
    label: str | None = Field(description="Its class, if it is known.")
    name: str | None = Field(description="Name of the training image; null if the server has no gallery.")
    picture: Address | None


class Neighbour(BaseModel):
    """A training image that is close in the latent space."""

    image: int = Field(description="Number in the gallery.")
    distance: float


class Reasons(BaseModel):
    """The decision value of the predicted class and its parts."""

    value: float = Field(description="Equals intercept + all weights + rest.")
    standing: str = Field(description="How the value compares with those of the other classes, in words.")
    intercept: float
    in_favour: list[DecidingImage] = Field(description="Images with the largest positive weights, the largest first.")
    against: list[DecidingImage] = Field(description="Images with the largest negative weights, the largest first.")
    rest: float = Field(description="Sum of the weights of all other support vectors.")
    n_rest: int = Field(ge=0, description="Number of these other support vectors.")
    picture: Address = Field(description="The image as the model sees it, in the shape of the file.")
    map: Address = Field(description="The same in grey with a map: orange supports the label, blue contradicts it.")
    place: Place | None = None
    neighbours: list[Neighbour] = Field(description="The nearest training images; empty without a gallery.")


class Prediction(BaseModel):
    """The prediction for one image."""

    name: str = Field(description="Name of the file.")
    label: str = Field(description="The most probable class.")
    probabilities: dict[str, Probability] = Field(description="By class, the most probable first.")
    prediction_set: list[str] | None = Field(
        description="Classes that cannot be ruled out; null if the model was fitted without held-out images."
    )
    typicality: Probability | None = Field(
        default=None,
        description="Share of held-out images that are at least as far from their class: small for an image of no"
        " class. Null if the model does not know it.",
    )
    fingerprint: Fingerprint
    reasons: Reasons | None = Field(default=None, description="Only if the request asks for them.")


class Predictions(BaseModel):
    """The predictions, in the order of the files."""

    answers: list[Prediction]


class AllowedUploads(BaseModel):
    """The limits of a request."""

    files: int
    file_bytes: int
    request_bytes: int
    pixels: int


class ModelCard(BaseModel):
    """A description of the model and its input."""

    name: str
    fingerprint: Fingerprint
    classes: list[str]
    channels: int
    pixels: str = Field(description="uint8, uint16 or float.")
    size: Annotated[list[int], Two] | None = Field(
        description="Height and width that images are given; null: images keep their size."
    )
    coverage: Probability | None = Field(
        description="Approximate share of images whose true class is in the prediction set."
    )
    n_support: int
    n_weights: int
    n_gallery: int | None = Field(description="Number of training images in the gallery; null without one.")
    version: str = Field(description="Version of lmfcn.")
    limits: AllowedUploads


class NamedModel(BaseModel):
    """A model that can be chosen by its name."""

    name: str
    fingerprint: Fingerprint


class Models(BaseModel):
    """The models of the server; the first is the default."""

    models: list[NamedModel]


class TrainingImages(BaseModel):
    """The training images as points on a plane; the i-th entry of every list belongs to image i."""

    fingerprint: Fingerprint
    names: list[str]
    classes: list[str]
    colors: list[str] = Field(description="The colour of each class, such as #0072B2; reports and maps have the same.")
    marks: list[str] = Field(description="The mark of each class on the plane, such as circle.")
    numbers: list[int] = Field(description="The class of each image, as a position in `classes`.")
    support: list[int] = Field(description="Which images are support vectors.")
    places: list[Place]
    shares: Annotated[list[float], Two] = Field(description="Shares of the latents' variance that the two axes show.")


class Health(BaseModel):
    """The state of the server."""

    status: str

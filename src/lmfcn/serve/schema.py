"""What the JSON interface says: these classes make the OpenAPI document."""

from typing import Annotated

from pydantic import BaseModel, Field

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Address = Annotated[str, Field(description="The picture itself, as data:image/...;base64,...")]
Two = Field(min_length=2, max_length=2)
Place = Annotated[list[float], Two, Field(description="Where the image lies on the plane of the training images.")]


class FileProblem(BaseModel):
    """What is wrong with one file."""

    name: str
    reason: str


class Problem(BaseModel):
    """Why a request is refused."""

    detail: str = Field(description="The reason in one sentence.")
    files: list[FileProblem] = Field(description="The files that cannot be used; empty if something else is wrong.")


class DecidingImage(BaseModel):
    """A support vector and what it adds to the decision value."""

    weight: float
    label: str | None = Field(description="Its class, if it is known.")
    name: str | None = Field(description="Name of the training image; null if the server has no gallery.")
    picture: Address | None


class Neighbour(BaseModel):
    """A training image that is near in the latent space."""

    image: int = Field(description="Its number in the gallery.")
    distance: float


class Reasons(BaseModel):
    """The decision value of the predicted class, taken apart."""

    value: float = Field(description="Equals intercept + all weights + rest.")
    intercept: float
    in_favour: list[DecidingImage] = Field(description="Those that add most, the strongest first.")
    against: list[DecidingImage] = Field(description="Those that take most away, the strongest first.")
    rest: float = Field(description="Sum of the weights of all other support vectors.")
    n_rest: int = Field(ge=0, description="How many these are.")
    picture: Address = Field(description="The image as the model takes it.")
    map: Address = Field(description="The same in grey; orange speaks for the label, blue against it.")
    place: Place | None = None
    neighbours: list[Neighbour] = Field(description="The nearest training images; empty without a gallery.")


class Answer(BaseModel):
    """What the model says about one image."""

    name: str = Field(description="Name of the file.")
    label: str = Field(description="The most probable class.")
    probabilities: dict[str, Probability] = Field(description="By class, the most probable first.")
    prediction_set: list[str] | None = Field(
        description="Classes that cannot be ruled out; null if the model was fitted without held-out images."
    )
    reasons: Reasons | None = Field(default=None, description="Only if the request asked for them.")


class Answers(BaseModel):
    """Answers in the order of the files."""

    answers: list[Answer]


class AllowedUploads(BaseModel):
    """What a request may ask for."""

    files: int
    file_bytes: int
    request_bytes: int
    pixels: int


class ModelCard(BaseModel):
    """What the model is and takes."""

    name: str
    classes: list[str]
    channels: int
    pixels: str = Field(description="uint8, uint16 or float.")
    size: Annotated[list[int], Two] | None = Field(
        description="Height and width that images are brought to; null: as they are."
    )
    coverage: Probability | None = Field(
        description="Share of images whose class shall be in their prediction set; approximate."
    )
    n_support: int
    n_weights: int
    n_gallery: int | None = Field(description="Number of training images to look at; null without a gallery.")
    version: str = Field(description="Of lmfcn.")
    limits: AllowedUploads


class TrainingImages(BaseModel):
    """The training images as points on a plane; the i-th entry of every list belongs to image i."""

    names: list[str]
    classes: list[str]
    numbers: list[int] = Field(description="The class of each image, as a position in `classes`.")
    support: list[int] = Field(description="Which images are support vectors.")
    places: list[Place]
    shares: Annotated[list[float], Two] = Field(description="Shares of the latents' variance that the two axes show.")


class Health(BaseModel):
    """That the server is there."""

    status: str

"""What the OpenAPI document promises, tried with generated requests."""

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from serving import content

IMAGES = [
    content(np.zeros((16, 16), np.uint8)),
    content(np.eye(32, dtype=np.uint8) * 200, "JPEG"),
    content(np.arange(16 * 24 * 3, dtype=np.uint8).reshape(16, 24, 3), "BMP"),
]

OPERATIONS = [
    "POST /predict",
    "GET /model",
    "GET /models",
    "GET /gallery",
    "GET /gallery/{image}",
    "GET /health",
    "GET /ready",
    "GET /metrics",
]


def mutated(image: bytes, place: int, value: int) -> bytes:
    changed = bytearray(image)
    changed[place % len(image)] = value
    return bytes(changed)


schemathesis.openapi.format(
    "binary",
    st.one_of(
        st.sampled_from(IMAGES),
        st.builds(mutated, st.sampled_from(IMAGES), st.integers(0, 5000), st.integers(0, 255)),
        st.binary(max_size=100),
    ),
)


@pytest.fixture(scope="module")
def api(address):
    return schemathesis.openapi.from_url(f"{address}openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_generated_requests_get_what_the_document_promises(api, operation, mode):
    method, path = operation.split()
    statuses = set()

    @settings(max_examples=25, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=api[path][method].as_strategy(generation_mode=mode))
    def ask(case):
        response = case.call()
        assert response.status_code < 500
        # Not every string of bytes is an image, and no schema can say which are.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        statuses.add(response.status_code)

    try:
        ask()
    except Unsatisfiable:  # an operation without parameters cannot be asked wrongly
        assert (mode, path in ("/health", "/ready", "/models", "/metrics")) == (GenerationMode.NEGATIVE, True)
    else:
        assert 200 in statuses or mode == GenerationMode.NEGATIVE


def test_the_document_lists_everything_but_the_page(api):
    assert {operation.ok().label for operation in api.get_all_operations()} == set(OPERATIONS)

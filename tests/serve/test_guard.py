import asyncio
from urllib.parse import urlsplit

import httpx
import pytest

from lmfcn.serve.app import make_app
from lmfcn.serve.guard import HEADERS, LOOPBACK, Guard
from serving import running


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/model", "/nothing", "/predict"])
def test_every_response_has_the_headers_that_protect(client, path):
    response = client.get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in response.headers


def test_only_names_of_this_machine_are_accepted(client, address):
    port = urlsplit(address).port
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost:x", "localhost@evil"):
        response = client.get("/health", headers={"Host": host})
        assert response.status_code == 400
        assert response.json()["detail"].startswith("This server does not accept the host name")


def test_pages_of_other_sites_cannot_make_a_browser_ask(client):
    other = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    form = {**other, "Sec-Fetch-Mode": "navigate"}
    assert client.post("/predict", headers=form).status_code == 403
    response = client.post("/predict", headers=other)
    assert (response.status_code, response.json()["detail"]) == (
        403,
        "Requests from pages of other sites are refused.",
    )
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    same = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert client.get("/health", headers=same).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_origins_are_told_by_their_site(client, site):
    assert client.post("/predict", headers={"Sec-Fetch-Site": site}).status_code == 403


def test_where_browsers_do_not_tell_the_site_the_origin_counts(client, address):
    port = urlsplit(address).port
    for origin in ("http://evil.example", "null", "", f"http://localhost.evil:{port}", f"http://127.0.0.1:{port + 1}"):
        for method in ("GET", "POST", "HEAD"):
            assert client.request(method, "/model", headers={"Origin": origin}).status_code == 403, origin
    own = {"Origin": f"http://127.0.0.1:{port}"}
    assert client.get("/model", headers=own).status_code == 200
    told = {"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"}
    assert client.get("/model", headers=told).status_code == 200


def test_the_origin_may_have_a_name_that_the_user_allows(fitted):
    with running(make_app(fitted.model, hosts=[*LOOPBACK, "lab.example"])) as address:
        for origin, status in (
            ("https://lab.example", 200),
            ("https://lab.example:8443", 200),
            ("http://localhost", 403),
        ):
            assert httpx.get(f"{address}model", headers={"Origin": origin}).status_code == status, origin


@pytest.mark.parametrize(
    "path", ["/", "/health", "/ready", "/model", "/models", "/gallery", "/gallery/0", "/metrics", "/static/page.js"]
)
def test_head_gets_what_get_does_without_the_body(client, path):
    head, got = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-type", "content-security-policy"):
        assert head.headers[name] == got.headers[name]
    if path != "/metrics":
        assert head.headers["content-length"] == got.headers["content-length"]


def test_other_methods_are_told_what_is_allowed(client):
    assert client.head("/predict").status_code == 405
    response = client.delete("/model")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


def test_what_is_no_request_passes():
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["type"])

    asyncio.run(Guard(app, {"localhost"})({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from serving import as_files

CLIENTS, REQUESTS = 8, 500
GROWTH = 60_000_000  # bytes; half a megabyte that stays behind each request would be four times as much


@pytest.fixture
def served(fitted):
    """The real command in a process of its own."""
    command = [sys.executable, "-m", "lmfcn", "serve", str(fitted.path), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = ""
        while process.poll() is None and "is at" not in line:
            line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        try:
            yield process, address and address.group()
        finally:
            process.kill()


def memory_of(process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1000 * int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_many_requests_of_several_clients_leave_nothing_behind(served, fitted):
    process, address = served
    files = [as_files(fitted, [i]) for i in range(16)]

    def ask(client_number, n_requests):
        with httpx.Client(base_url=address, timeout=120) as client:
            for i in range(n_requests):
                number = (client_number + i) % 16
                response = client.post("/predict", params={"reasons": i % 20 == 0}, files=files[number])
                assert response.status_code == 200
                assert response.json()["answers"][0]["name"] == f"{number}.png"
        return n_requests

    def all_ask(n_requests):
        with ThreadPoolExecutor(CLIENTS) as pool:
            return sum(pool.map(ask, range(CLIENTS), [n_requests] * CLIENTS))

    all_ask(6)  # threads, buffers and caches come into being
    before = memory_of(process)
    assert all_ask(-(-REQUESTS // CLIENTS)) >= REQUESTS
    assert memory_of(process) - before < GROWTH
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    assert (process.stdout.read(), process.stderr.read()) == ("Stopped.\n", "")

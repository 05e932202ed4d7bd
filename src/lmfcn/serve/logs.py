"""What the server writes to standard error: sentences, or with --log-json a JSON object for each line."""

import json
import logging
from datetime import UTC, datetime

LOGGER = logging.getLogger("lmfcn.serve")
REQUESTS = logging.getLogger("lmfcn.serve.requests")
_LIBRARIES = ("asyncio", "python_multipart", "uvicorn.error")
"""They warn of wrong requests, about which the responses tell the clients."""


class JsonFormatter(logging.Formatter):
    """Formats a log record, and what it has in `fields`, as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        return json.dumps(values)


def configure_logs(*, as_json: bool) -> None:
    """Send what the server and its libraries have to say to standard error; every request only as JSON."""
    handler = logging.StreamHandler()
    if as_json:
        handler.setFormatter(JsonFormatter())
    for name in (LOGGER.name, *_LIBRARIES):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == LOGGER.name else logging.ERROR)
    REQUESTS.setLevel(logging.INFO if as_json else logging.WARNING)
    logging.getLogger("tifffile").disabled = True  # the response tells the client what is wrong

"""Log lines on stderr, as text or as one JSON object a line.

Nothing here or in the routes logs a header or a body, so no token can get into a log.
"""

from __future__ import annotations

import json
import logging
import logging.config
from datetime import UTC, datetime
from typing import Final, Literal

__all__ = ["LOG_FORMATS", "LOG_LEVELS", "LogFormat", "configure_logging"]

LogFormat = Literal["text", "json"]
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


class JsonFormatter(logging.Formatter):
    """One line a record; a traceback becomes the field `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; times are UTC."""
        moment = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_logging(level: str, log_format: LogFormat) -> None:
    """Sends every log line of the process to stderr. `level` is one of `LOG_LEVELS`."""
    # The HTTP server greets and says goodbye at info; the ready line says that already.
    uvicorn_level = "DEBUG" if level == "debug" else max(level.upper(), "WARNING", key=_severity)
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "text": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
                "json": {"()": JsonFormatter},
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": log_format}},
            "root": {"level": level.upper(), "handlers": ["stderr"]},
            "loggers": {"uvicorn": {"level": uvicorn_level}},
        }
    )


def _severity(level: str) -> int:
    return logging.getLevelNamesMapping()[level]

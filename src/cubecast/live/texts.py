"""Names that programs choose: any text that can be written and is not too long."""

from __future__ import annotations

from cubecast.errors import LocalProtocolError


def require_text(what: str, text: object, characters_max: int) -> str:
    """Return the text; LocalProtocolError if it is not a valid one."""
    if not isinstance(text, str) or not text:
        raise LocalProtocolError(f"{what} {text!r}: give a non-empty string")
    if len(text) > characters_max:
        raise LocalProtocolError(f"{what} {text[:40]!r}…: {len(text)} characters, at most {characters_max}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{what} {text!r}: it contains a lone surrogate, which is not a character") from error
    return text

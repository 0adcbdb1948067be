"""Texts of programs: names that can be written and are not too long, and texts of errors in one line."""

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


def text_of_error(error: BaseException) -> str:
    """The message of any error in one line, or its class if it has none."""
    try:
        return " ".join(str(error).split()) or type(error).__name__
    except Exception:
        return type(error).__name__

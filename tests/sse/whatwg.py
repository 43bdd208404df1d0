"""The parsing rules of WHATWG HTML 9.2.6, one step after another: what our decoder is held against.

It takes the whole stream at once, decodes it first, and knows no bound. Slow and plain on purpose,
and written from the standard's text, not from our decoder.
"""

from dataclasses import dataclass, field

BYTE_ORDER_MARK = "\ufeff"


def utf8_decode(stream):
    """Decode by the state machine of the WHATWG Encoding standard, replacing what is malformed."""
    out = []
    code = seen = needed = 0
    lower, upper = 0x80, 0xBF
    at = 0
    while at < len(stream):
        byte = stream[at]
        at += 1
        if needed == 0:
            if byte <= 0x7F:
                out.append(chr(byte))
            elif 0xC2 <= byte <= 0xDF:
                needed, code = 1, byte & 0x1F
            elif 0xE0 <= byte <= 0xEF:
                lower = 0xA0 if byte == 0xE0 else 0x80
                upper = 0x9F if byte == 0xED else 0xBF
                needed, code = 2, byte & 0xF
            elif 0xF0 <= byte <= 0xF4:
                lower = 0x90 if byte == 0xF0 else 0x80
                upper = 0x8F if byte == 0xF4 else 0xBF
                needed, code = 3, byte & 0x7
            else:
                out.append("\ufffd")
            continue
        if not lower <= byte <= upper:
            code = seen = needed = 0
            lower, upper = 0x80, 0xBF
            out.append("\ufffd")
            at -= 1  # the byte is read again, as a first one
            continue
        lower, upper = 0x80, 0xBF
        code = code << 6 | byte & 0x3F
        seen += 1
        if seen == needed:
            out.append(chr(code))
            code = seen = needed = 0
    if needed:
        out.append("\ufffd")
    return "".join(out)


def complete_lines(text):
    """The lines that have an end, be it CRLF, CR or LF."""
    lines, start, at = [], 0, 0
    while at < len(text):
        if text[at] in "\r\n":
            lines.append(text[start:at])
            at += 2 if text[at : at + 2] == "\r\n" else 1
            start = at
        else:
            at += 1
    return lines


@dataclass
class EventSource:
    """What a stream leaves behind: the events as ``(type, data, lastEventId)``, and what it set."""

    events: list = field(default_factory=list)
    last_event_id: str = ""
    reconnection_time: int | None = None


def parse(stream):
    """Run a whole stream through the rules, to its end."""
    source = EventSource()
    data = event_type = id_buffer = ""
    for line in complete_lines(utf8_decode(stream).removeprefix(BYTE_ORDER_MARK)):
        if line == "":
            source.last_event_id = id_buffer
            if data != "":
                source.events.append((event_type or "message", data[:-1], id_buffer))
            data = event_type = ""
            continue
        if line.startswith(":"):
            continue
        name, value = line, ""
        if ":" in line:
            name, value = line.split(":", 1)
            value = value.removeprefix(" ")
        if name == "event":
            event_type = value
        elif name == "data":
            data += value + "\n"
        elif name == "id":
            if "\0" not in value:
                id_buffer = value
        elif name == "retry" and value and all(digit in "0123456789" for digit in value):
            source.reconnection_time = int(value)
    return source

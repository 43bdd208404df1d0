"""A generator that writes like a language model: token by token, and not all at once."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TITLE = "The keeper of the gate"

TEXT = """\
There was a gate at the mouth of the creek, and it knew only one thing: water goes out, the sea \
stays out. Twice a day the tide leaned on it from the far side and found it shut. Twice a day the \
creek pushed from the near side, and the gate let it through, drop after drop, in the order in \
which the drops had come.

The keeper lived in a hut beside it and wrote down everything that passed. A leaf, and he gave it \
a number. A cork, and he gave it the next. He skipped no number and used none twice, and when he \
had filled a shelf of books he took the oldest one away to make room.

People came by to ask what had passed since they were last there. "Tell me your last number," he \
said, and read to them from the next line on, without leaving out a word. Some came with a number \
so old that its book was gone. Then he did not pretend. "From four hundred to five hundred I can \
tell you nothing any more," he said, "but here is what the creek looks like now, and from five \
hundred on I will read you every line."

There was one who listened slowly. He liked to stand and look at the sky between two sentences. \
The keeper read on for the others, and kept the lines for the slow one on a slate. When the slate \
was three quarters full he coughed. When it was full he wiped it and said, kindly, that he could \
not stop the creek. "Come back when you have looked enough. You know your number."

One night a storm took the hut, the books and the shelf. In the morning the keeper hung a new \
sign over a new door, and began again at one. To all who came with numbers from before he showed \
the sign first, so that nobody would take the new one for the old.

And whoever walked away in the middle of a sentence, and returned in the middle of another, found \
that between the two nothing was missing at all.
"""


async def tell(pause: float = 0.07) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield the story's beginning, its tokens and its end, ``pause`` seconds apart."""
    yield "story_begin", {"title": TITLE}
    tokens = re.findall(r"\s*\S+", TEXT)
    for token in tokens:
        await asyncio.sleep(pause)
        yield "token", {"text": token}
    yield "story_end", {"tokens": len(tokens)}

"""What token ids say, by the model's own tokenizer where it lies on this machine. A comparison needs it for nothing but
words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hsparity.capture.checkpoint import find_checkpoint
from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsparity.models import is_bundled

LONGEST = 40  # characters of one token that are kept


def token_texts(sources: Sequence[Source]) -> Callable[[int], str] | None:
    """A function from token id to text; None without a tokenizer.json beside a side's model, or without the tokenizers
    library, which comes with every engine but not with hsparity."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    for source in sources[:2]:
        if is_bundled(source.manifest.model):
            continue  # to build a model for its words would be much for little
        try:
            file = find_checkpoint(source.manifest) / "tokenizer.json"
            return _reader(Tokenizer.from_file(str(file)))
        except (HsparityError, OSError):
            continue
        except Exception as error:
            # The library raises Exception itself for a file that is not there or not a tokenizer's.
            if type(error) is not Exception:
                raise
    return None


def _reader(tokenizer: Any) -> Callable[[int], str]:
    @cache
    def text(token: int) -> str:
        if not 0 <= token < tokenizer.get_vocab_size():
            return ""
        said = tokenizer.decode([token], skip_special_tokens=False)
        # Part of a character: the vocabulary's own spelling says more.
        said = tokenizer.id_to_token(token) or "" if "\ufffd" in said else said
        return str(said)[:LONGEST]

    return text

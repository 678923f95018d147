"""Runs under an interpreter that has transformers: prompts as JSON on stdin, token ids as JSON on stdout.

Imports nothing of hsparity: its own environment may lack transformers, and an engine's lacks hsparity.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.utils import cached_file

    asked = json.load(sys.stdin)
    options = {"trust_remote_code": asked["trust_remote_code"]}
    if asked["revision"]:
        options["revision"] = asked["revision"]
    # Brings config.json into the hub's cache, where hsparity reads the model's shape.
    cached_file(asked["model"], "config.json", **options)
    try:
        tokenizer = AutoTokenizer.from_pretrained(asked["model"], **options)
    except (
        AttributeError
    ):  # a model_type that Transformers does not know, as Kimi-K2's: tokenizer.json says enough
        tokenizer = PreTrainedTokenizerFast.from_pretrained(asked["model"], **options)
    answer: list[dict[str, Any]] = []
    for item in asked["items"]:
        try:
            text, special = _text(tokenizer, item)
            ids = tokenizer(text, add_special_tokens=special)["input_ids"]
            answer.append({"text": text, "token_ids": list(ids)})
        except Exception as error:  # one bad prompt is reported with its line
            answer.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\nhsparity-answer " + json.dumps(answer) + "\n")


def _text(tokenizer: Any, item: dict[str, Any]) -> tuple[str, bool]:
    """The text, and whether the tokenizer is to add its special tokens: a chat template has written them."""
    if "messages" not in item:
        return item["text"], True
    if not getattr(tokenizer, "chat_template", None):
        return "\n\n".join(str(message["content"]) for message in item["messages"]), True
    text = tokenizer.apply_chat_template(item["messages"], add_generation_prompt=True, tokenize=False)
    return text, False


if __name__ == "__main__":
    main()

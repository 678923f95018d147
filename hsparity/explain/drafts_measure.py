"""E290 to E299: a draft served by a real engine. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E290",
        "serves-no-draft",
        "The engine named has no speculative decoding with an EAGLE-3 head.",
        "vLLM and SGLang serve one. Transformers does not.",
        "Take --engine vllm or --engine sglang. What a head would get on Transformers' states: hsparity drafter DRAFT "
        "REF CAND.",
    ),
    entry(
        "E291",
        "ids-do-not-fit",
        "--ids names more or fewer layers than the head has room for.",
        "The head's fc layer takes the states of so many layers side by side; its width says how many.",
        "Give as many ids as the error says, or --ids default to leave them to the engine.",
    ),
    entry(
        "E292",
        "nothing-drafted",
        "The engine ran, and no draft was ever shown to the target.",
        "The first token of a text comes from the pass over the prompt. Where that token ends the text, or one token was "
        "asked for, there is no step with drafts.",
        "Give prompts that call for an answer, as chat messages where the model is a chat model, and more tokens: "
        "--generate 64.",
    ),
    entry(
        "E293",
        "no-measurement",
        "The file is no record of hsparity drafter measure.",
        "Another file, one cut short, or one written by a later hsparity.",
        "Make one: hsparity drafter measure DRAFT --engine E --model M -o FILE.",
    ),
    entry(
        "E294",
        "counts-disagree",
        "The steps that were recorded are not those that the engine counted, or do not make the text that it returned.",
        "Steps are read where the target judges drafts; the engine counts in its scheduler. They agree in every version "
        "that was tried. An engine that drops a step, runs a finished request one step too far (asynchronous "
        "scheduling), or counts in another way makes them differ.",
        "Do not quote the figures. Leave out the engine arguments behind --; if they differ still, report the engine's "
        "version: the record holds the steps and the engine's counters of every prompt.",
    ),
)

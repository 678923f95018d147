"""The capture whose floor is made: its tokens, and the spec that makes it again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hsparity.capture import passes, sides
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureSpec, PromptSpec

FAMILIES = ("boundary", "final_norm", "attn_out", "mlp_out")  # sites that a reference is captured at as well


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A capture and what a floor of it needs."""

    path: Path
    source: Source
    spec: CaptureSpec | None  # None: a file, which no engine of ours can make again
    prompts: tuple[PromptSpec, ...]  # prompt tokens, and the continuation that was decoded
    generate: int

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt as it was prefilled."""
        return max(len(p.token_ids) for p in self.prompts)

    @property
    def decodes(self) -> bool:
        return any(len(p.forced) > 1 for p in self.prompts)

    @property
    def chunked(self) -> bool:
        """Whether some prompt was prefilled in more than one pass."""
        return passes.chunked(self.source)

    @property
    def remade(self) -> CaptureSpec:
        """The spec that makes the capture again, its continuation forced. The base must have a spec."""
        assert self.spec is not None
        return replace(self.spec, prompts=self.prompts, generate=self.generate)

    def reference(self, dtype: str) -> CaptureSpec:
        """The same tokens and sites by Transformers, plainly."""
        manifest = self.source.manifest
        asked = self.spec.sites if self.spec else ()
        sites = tuple(key for key in asked if key.partition(".")[0] in FAMILIES)
        plain = self.spec or CaptureSpec("hf", manifest.model, (), ())
        return CaptureSpec(
            engine="hf",
            model=plain.model,
            prompts=self.prompts,
            sites=sites or ("boundary.*", "final_norm"),
            generate=self.generate,
            dtype=dtype,
            revision=plain.revision or manifest.revision,
            trust_remote_code=plain.trust_remote_code,
        )


def open_base(path: Path) -> Base:
    """The capture in `path` and its tokens. Raises E202 and E207 as opening does, E250 for tokens that it does not
    hold."""
    source = open_source(path, verify=False)
    if not source.prompts:
        raise HsparityError("E250", f"{path} holds no prompt, so there is nothing to measure")
    prompts = []
    for prompt in source.prompts:
        ids = source.token_ids(prompt.id).tolist()
        forced = (*ids[prompt.prefill :], *prompt.generated[-1:]) if prompt.generated else ()
        prompts.append(PromptSpec(prompt.id, tuple(ids[: prompt.prefill]), tuple(forced), prompt.text))
    generate = max(len(p.forced) for p in prompts)
    return Base(path, source, sides.spec_of(path), tuple(prompts), generate)

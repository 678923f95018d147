"""E3xx: an engine failed, or cannot do what was asked. These exit 4."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E301",
        "engine-not-installed",
        "No interpreter that holds this engine is known.",
        "hsparity never imports vLLM or SGLang; each runs in an interpreter of its own, managed by "
        "hsparity or adopted from you.",
        "`hsparity engines install NAME` makes an environment; `hsparity engines add NAME --python PATH` "
        "adopts one you have.",
    ),
    entry(
        "E302",
        "probe-never-started",
        "The engine ran, but the probe inside it never wrote its first file.",
        "Engines log and swallow a plugin that fails to import. Or the engine failed before it loads "
        "plugins: no memory, no model, a bad argument.",
        "Read the last lines of engine.log in the message. VLLM_PLUGINS and SGLANG_PLUGINS are "
        "allow-lists: the launcher adds hsprobe to them, "
        "a wrapper script may take it out again.",
    ),
    entry(
        "E303",
        "engine-died",
        "The engine's process ended before the capture was complete.",
        "Out of memory, a crash in a kernel, a stopped job. SGLang exits with 137 on any failure at "
        "start: read the log, not the number.",
        "The message holds the last lines of engine.log. Type the same command to go on: finished prompts "
        "are kept.",
    ),
    entry(
        "E304",
        "partial-capture",
        "The hooks recorded less than the engine computed, so the capture was refused.",
        "Compiled models and replayed graphs do not call Python hooks. Fused kernels can skip a module.",
        "Run eager (vLLM: --enforce-eager, SGLang: --disable-cuda-graph), or take --mechanism native, "
        "which reads what the engine itself returns.",
    ),
    entry(
        "E305",
        "capture-contradicts-itself",
        "The capture contradicts itself, so it was not marked complete.",
        "The final norm of the last boundary is not what the engine fed its head, boundary 0 is not the "
        "embedding of the tokens, rows and "
        "scheduling data disagree, or a hash is wrong.",
        "Please report it with engine name, version and model: either the probe does not know this "
        "version, or the engine moves rows in a way it does not know.",
    ),
    entry(
        "E306",
        "engine-cannot",
        "The engine cannot do what was asked, in this version, on this machine, or for this model.",
        "Native ids that its family does not hand over, parallelism that spreads rows over ranks, a mode "
        "in which hooks are silent, a version without a lock.",
        "The message says what it can do instead.",
    ),
    entry(
        "E307",
        "model-not-supported",
        "The probe found no decoder stack that it knows in this model.",
        "A new architecture, or several residual streams instead of one.",
        "docs/capture-format.md lists the families that were tried. The plain form takes data that you "
        "dump yourself.",
    ),
    entry(
        "E308",
        "install-failed",
        "An engine's environment could not be made.",
        "No disk (SGLang brings 11 GB), no network, a package that pip cannot find, no compiler. CPU "
        "builds of torch come from where your pip configuration says.",
        "The message names the log. An install that was cut short is detected and done again. You can "
        "always adopt an environment of your own: "
        "`hsparity engines add NAME --python PATH`.",
    ),
    entry(
        "E309",
        "native-path-unavailable",
        "The engine offers no auxiliary hidden states for this model, or not for these ids.",
        "The family does not support EAGLE-3 there, or the version is older than the switch.",
        "Use --mechanism hooks, or ids of layers that the model has.",
    ),
)

"""The words of docs/accuracy.md that the tables do not say. Figures stand here only where no table holds them."""

INTRODUCTION = """
Made by `make matrix` (`python -m tests.accuracy`), from captures of the real engines on a CPU. Every case is two captures
that differ in one thing that is known; the table says what was named. Nothing was left out because it came out wrong: what
an engine refuses stands at the end.

Read a row by its last column. *right*: the true cause is named first, or nobody is accused where nothing is wrong.
*second*: it is named second. *inconclusive*: hsparity says that the evidence is short. *wrong*: another cause is named
first. *false alarm*: a healthy pair is accused. *missed*: a fault stays within the floor.
"""

COMPARE = """What the captures alone show: the settings in their manifests, the weights' digests, and the
fingerprints of the error. No experiment was made. "named" holds every hypothesis with its confidence word; the second table
is the calibration: of the first causes given a word, how many were right.

Where `truth` holds *within-noise* beside another name, the settings differ and the difference is below what bf16 arithmetic
costs: saying nothing is right, and so is naming the setting. A healthy pair that ends *inconclusive* accuses nobody and
counts as right; its row says so."""

BISECT = """Here the engines are started again with one setting turned at a time. What is within the noise by the bf16 floor
can still be named: `attention-backend` for MLA on against off is no fault, it is what makes the difference there is.
*not-applied* is a setting that the engine takes and ignores (block size and chunking under MLA on a CPU).

Where one setting differs and is set alike, the other side's own capture is what comes out, so a share of 1.00 says only
that nothing else differed. Shares are news where two things are taken apart (FP8 and W8A8 into weights and activations, by
the twin) and where the sides are different engines. A quantised checkpoint against its own twin differs by the kernel alone;
bisect can turn the checkpoint only, says *quantised-weights*, and that is counted as right."""

PLANTED = """A healthy engine, and a fault planted in its process by the probe while it runs: a test's tool, never part of a
capture that a user makes. Each fault was tried at several severities. Scored here is what `compare` says alone, of the
severities that it sees and of those strong enough that it should; the last table holds the weakest severity of each fault
that is found, by replay too, counted from the strongest down to the first that is missed ("-": none)."""

DISTANCES = """At the last boundary, medians over tokens, over what bf16 arithmetic costs at the same tokens (Transformers
float32 against bfloat16): the pair's by sqrt(2) of it, each side's own error to float32 by itself. About 1 is healthy, 1.5
the default limit. The twin cases are measured by a floor of the twin's own weights."""

FLIPS = """The healthy engines' bfloat16 runs of the tiny DeepSeek-V3 differ by little on most tokens and by ten to thirty
times as much on a few. Are these tokens sent to other experts? Yes. Counted against Transformers float32 on the same
tokens, where a layer's step *jumps* if its error is over five times the layer's median: every flip jumps, every jump has a
flip behind it, and where no flip reaches nothing comes near. Transformers in bfloat16 that is handed float32's experts has
no jump at all (tests/engines/test_router_flips.py).
"""

CUTS = """Some of vLLM's CPU kernels narrow float32 by cutting off the low bits. A rounded value keeps its length on average,
a cut one loses some of it, the same share at every position: the gain <ref, cand> / |ref|^2 of a branch falls below 1.

The fp8 KV cache is written so: attention loses 6 to 7 % of its length. At position 0, where attention is the one value that
is read back, vLLM's output lies 0.9 % from an emulation that cuts to e4m3 and 6.1 % from one that rounds. The error is there
at position 0, then, in prefill and in decode alike: an exact softmax over one key does not rule the cache out.

Without avx512_bf16 the W4A16 kernel cuts the dequantised weights and its outputs to bfloat16 (csrc/cpu/cpu_types_x86.hpp);
an emulation of both cuts equals the kernel's output in every bit. On such a CPU a quantised checkpoint is therefore not
within the noise of its own bf16 twin: that case's truth follows the CPU. With avx512_bf16 it was within the noise, and with
AMX the same checkpoint runs with int8 activations (`VLLM_CPU_INT4_W4A8`, on by default)."""

LIMITS = """- The rules of the diagnosis were made with these cases in view: the shares are of known cases, not of new ones.
- Tiny random models and SmolLM2-135M on a CPU. GPU kernels, FlashInfer, CUDA graphs and quantised experts were not run:
  no CPU kernel exists for them. Figures in units of the floor carry over, thresholds were not tuned on a GPU.
- The SGLang triton backend ran under TRITON_INTERPRET, which has no bfloat16: float16 and float32 are judged by the bf16
  floor, far above their own noise.
- Some truths were settled by measuring. W8A8 and FP8: which error is larger. W4A16 against its twin was expected within the
  noise and was not; the cut was then proved (above) and the truth follows the CPU. SGLang's radix cache was expected within
  the noise; `compare` said prefix-cache-skip, rows are indeed left out, and that became the truth.
- Not run for time: SGLang's interpreted triton backend on the tiny DeepSeek (minutes per prompt).
- Each setting was captured once. The intervals are over tokens, not over starts of an engine.
- Faults of decode graphs (a stale buffer, a padded bucket) are simulated on recorded files: docs/confusion.md.
- Causes are known because we made them. A pair that differs in two things at once is only met in docs/confusion.md."""

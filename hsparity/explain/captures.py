"""E2xx: captures and results on disk. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E201",
        "unknown-schema",
        "The capture was written in a format this version of hsparity does not read.",
        "Another major version of the format, hsparity.capture/N, or a manifest that names no format.",
        "Install the version of hsparity that the message names, or capture again.",
    ),
    entry(
        "E202",
        "not-a-capture",
        "The path does not exist, or holds nothing in a format that is read.",
        "Often the folder above the capture, or a path from another machine.",
        "Name the folder that holds manifest.json, or the files. docs/formats.md lists what is read; anything else goes in the "
        "plain form.",
    ),
    entry(
        "E203",
        "no-shared-tokens",
        "No prompt has the same token ids on both sides, so there is nothing to compare.",
        "Different prompts, or different tokenisation: a BOS token on one side only, a chat template "
        "applied twice or not at all.",
        "Capture both sides from the same token ids: give --prompts a file with token_ids. The message "
        "lines up the first ids of both sides. "
        "Sides that share some tokens are compared, and the difference is finding HS401.",
    ),
    entry(
        "E204",
        "resume-refused",
        "The capture folder was begun with another request, so it cannot be continued with this one.",
        "Resume would mix rows that were captured under different settings. The request's digest guards "
        "against that.",
        "Capture into another folder with -o, or remove this one.",
    ),
    entry(
        "E205",
        "not-enough-disk",
        "The capture does not fit on the disk, or the disk filled up while it was written.",
        "A row costs hidden size x bytes of the dtype, for every boundary: all 62 boundaries of a model "
        "with H = 7168 are 0.89 MB a token.",
        "Ask for fewer boundaries or prompts, or name a folder on a larger disk. After a full disk, free "
        "some and type the same command: "
        "finished prompts are kept.",
    ),
    entry(
        "E206",
        "damaged-shard",
        "A shard is shorter than it should be, its sha256 is not the one in the manifest, or a tensor is "
        "missing.",
        "An interrupted copy, a disk error, or a file that was changed after the capture.",
        "Copy the folder again (rsync --checksum), or capture again. hsparity does not compare damaged data.",
    ),
    entry(
        "E207",
        "capture-incomplete",
        "The folder has no manifest.json: the capture never finished.",
        "The engine was stopped, or is still running. The manifest is written last, so its absence is the "
        "sign.",
        "Type the same `hsparity capture` command again: prompts in the journal are kept and the rest is "
        "captured.",
    ),
    entry(
        "E208",
        "different-models",
        "The two captures come from models of different shape: layer count or hidden size differ.",
        "Often two checkpoints of one family, or the draft in place of the target.",
        "Capture the same checkpoint on both sides. Equal shapes with different weights are compared, and "
        "the difference is finding HS402.",
    ),
    entry(
        "E209",
        "bad-plain-folder",
        "A folder in the plain form does not hold what plain.json promises.",
        "A tensor has another shape or dtype, a slot is missing, or positions do not match the rows.",
        "The message says what was expected and what was found. docs/formats.md describes the form, with "
        "an example.",
    ),
    entry(
        "E210",
        "layers-not-captured",
        "None of the requested layers is in the captures.",
        "The captures hold other boundaries than were asked for. Mind the two numberings: layer N is "
        "boundary N+1.",
        "Ask for boundaries that are there (the message lists them), or capture again with the same "
        "--layers.",
    ),
    entry(
        "E211",
        "floor-unusable",
        "A capture given with --floor cannot serve as the yardstick for this pair.",
        "It comes from another model, holds other tokens or boundaries, or is neither an fp32 or bf16 "
        "capture by Transformers nor a repeat of one side.",
        "Capture the floor with the same prompts:\n\n"
        "    hsparity capture hf --dtype float32  ... -o captures/hf-fp32\n"
        "    hsparity capture hf --dtype bfloat16 ... -o captures/hf-bf16",
    ),
    entry(
        "E212",
        "nothing-comparable",
        "Tokens are shared, but no row or site is held by both sides.",
        "A prefix cache or chunked prefill left rows out on one side, --tokens chose rows that only one "
        "side has, or the sites do not overlap.",
        "Capture both sides with the same prompts, the same --generate and the same --layers; turn prefix "
        "caching off.",
    ),
    entry(
        "E213",
        "not-a-comparison-result",
        "The file given to `hsparity report` is not a result that `hsparity compare --json` or `hsparity drafter --json` wrote, "
        "nor a page that carries one.",
        "It is another JSON file or page, a cut-off one, or a result of another major version.",
        "Make it with `hsparity compare REF CAND --json result.json`. Behind a comparison may stand what `hsparity bisect`, "
        "`hsparity replay` or `hsparity drafter` wrote with `--json`. Other saved results are shown by the command that made them; "
        "`hsparity inspect FILE` says which.",
    ),
    entry(
        "E214",
        "head-unreadable",
        "The checkpoint is whole, but its final norm or lm_head is of a kind that the self-check cannot compute with.",
        "A quantised lm_head, a final norm with a bias (a LayerNorm), a head that is no matrix, or tensors under names that "
        "hsparity does not know.",
        "Name an unquantised checkpoint of the same model with --model PATH. The captured states are not in question: "
        "compare them with another engine's.",
    ),
    entry(
        "E215",
        "several-streams",
        "The model keeps several residual streams between its layers, so there is no hidden + residual to compare.",
        "Hyper-connections (DeepSeek-V4, GLM-5.3-Flash), attention residuals (Kimi-K3) or AltUp (Gemma 3n). What an engine "
        "hands over as a slot is a mean or a mixture there, each engine's own. The message says which name or config key "
        "tells it.",
        "Compare logits, or log-probabilities. A slot of such a model would get a name that means nothing, so none is "
        "given. If the model does have one stream, correct the architecture or the config entry that the message names.",
    ),
    entry(
        "E216",
        "bad-sample",
        "A sample does not hold what its format promises: a key is missing, a shape or a dtype is another, lengths differ.",
        "A dataset written by two versions, a file of another program under the same name, bf16 saved as uint16, or a .gz that "
        "unpacks to more than any file of states does. In a dataset such a sample is left out and counted; as the only file "
        "it ends the command.",
        "The message says what was expected and what was found. `hsparity inspect PATH` shows what the file holds; --format "
        "reads it as another format; docs/formats.md has the layouts.",
    ),
    entry(
        "E217",
        "would-run-code",
        "A pickle file holds more than tensors, numbers and text, and opening it would run code. It was not opened.",
        "torch.save keeps any Python object: a numpy array, a class of the trainer's, a model output. Loading one runs what the "
        "file says.",
        "Where you trust the file, keep what is data, in the environment that wrote it:\n\n"
        "    PYTHONPATH=probes python -m hsprobe convert data/ data-safe/\n\n"
        "This runs the code in the files; hsparity itself never does.",
    ),
    entry(
        "E218",
        "still-being-written",
        "Another process holds the lock beside the file: the engine is still writing it.",
        "vLLM's connector locks NAME.safetensors.lock while it writes. The lock file stays behind when it is done; only a held "
        "lock counts.",
        "Wait for the request to finish, then type the same command again.",
    ),
    entry(
        "E219",
        "two-formats",
        "The folder holds files of more than one format.",
        "Two runs written into one folder, or a folder above the datasets.",
        "Name the folder of one of them, or say which is meant with --format NAME.",
    ),
    entry(
        "E220",
        "no-token-ids",
        "The files hold states but no token ids, and states are compared token by token.",
        "SGLang's responses and bare hidden_states tuples carry no ids.",
        "Give them, one list of ids for each sample, in order: hsparity import SRC --token-ids ids.jsonl -o DIR",
    ),
    entry(
        "E221",
        "nothing-readable",
        "Not one sample of the dataset can be read.",
        "The message gives the first reasons. Often all of one kind: files of an unfinished copy, or of another format under the "
        "same names.",
        "`hsparity inspect PATH` says what the first files hold; --format NAME reads them as another format.",
    ),
    entry(
        "E222",
        "result-too-large",
        "The result that an HTML page carries unpacks to more than 64 MB, or to more than 8 MB and 200 times its packed size.",
        "No comparison is that large: its maps hold about 8,192 columns, some 4 MB. The page was damaged, or made to fill the "
        "memory of whoever opens it.",
        "Ask for the page again, or for the JSON beside it: `hsparity compare REF CAND --html report.html --json result.json`.",
    ),
    entry(
        "E223",
        "results-of-other-captures",
        "`hsparity report` was given results that are not of the same two captures.",
        "A page shows one pair. A bisection, a replay or a draft's cost of other captures would stand beside figures that it "
        "does not explain. Compared are, of both sides, the paths as they were typed, engine and version, the model's name, "
        "the digest of its weights, and the number of prompts and tokens. A result of an older hsparity holds fewer of these, a "
        "replay of then the paths alone; then what it holds is compared, and nothing says that the rest agrees.",
        "Type the same two paths in the same order for each command, for instance `hsparity bisect REF CAND --json bisect.json`.",
    ),
)

"""A GGUF file under the names of a safetensors checkpoint: its configuration as config.json, its tensors,
and its vocabulary. The facts are those of llama.cpp's converter (https://github.com/ggml-
org/llama.cpp/tree/master/conversion), which renames tensors, stacks the experts of a layer in one
tensor, adds 1 to the norms of Gemma, and for llama, granite and smollm3 reorders the rows of queries
and keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gencli.errors import ModelError
from gencli.models.files.gguf_header import HINT, GgufHead, GgufTensor

# GGUF's names of architectures, and the model types of config.json. A llama with experts is a Mixtral.
_NAMES = "llama qwen2 qwen3 qwen3moe gemma gemma2 gemma3 phi3 olmo2 granite smollm3".split()
MODEL_TYPES: Mapping[str, str] = {name: name for name in _NAMES} | {
    "qwen3moe": "qwen3_moe",
    "gemma3": "gemma3_text",
}
# Keys of an architecture that are read here or in `ropes`, and those without effect on logits.
_KEYS = frozenset(
    """
    block_count context_length embedding_length feed_forward_length attention.head_count
    attention.head_count_kv attention.key_length attention.value_length
    attention.layer_norm_rms_epsilon rope.dimension_count rope.freq_base rope.scaling.type
    rope.scaling.factor rope.scaling.original_context_length rope.scaling.attn_factor
    rope.scaling.yarn_attn_factor rope.scaling.yarn_ext_factor rope.scaling.yarn_beta_fast
    rope.scaling.yarn_beta_slow
    vocab_size tensor_data_layout rope.scaling.finetuned
    """.split()
)
_MORE = {
    "llama": ("expert_count", "expert_used_count"),
    "qwen3moe": ("expert_count", "expert_used_count", "expert_feed_forward_length"),
    "gemma2": (
        *("attn_logit_softcapping", "final_logit_softcapping", "attention.scale"),
        *("attention.sliding_window", "attention.sliding_window_pattern"),
    ),
    "gemma3": (
        *("attn_logit_softcapping", "final_logit_softcapping", "attention.scale", "rope.freq_base_swa"),
        *("attention.sliding_window", "attention.sliding_window_pattern"),
    ),
    "phi3": ("attention.sliding_window",),
    "granite": ("attention.scale", "embedding_scale", "residual_scale", "logit_scale"),
}
# Layers of Gemma models of 27 billion parameters, whose scores are scaled by the width of the model.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
_PATTERN = {"gemma2": 2, "gemma3": 6}


def gguf_config(head: GgufHead) -> dict[str, Any]:
    """Return the configuration that config.json would hold, for the parts that change what is computed.

    Raises ModelError for an architecture, or a key of one, that gencli does not know.
    """
    arch = str(head.text("general.architecture"))
    if arch not in MODEL_TYPES:
        raise ModelError(
            f"{head.path} has the architecture {arch[:60]!r}, which gencli does not run from GGUF.",
            hint=f"It runs {', '.join(MODEL_TYPES)}. "
            "The folder of the original model may run with transformers.",
        )
    check_keys(head, arch, _MORE.get(arch, ()))
    config = _sizes(head, arch) | rope_config(head, arch)
    if arch in ("gemma2", "gemma3"):
        config |= _gemma(head, arch, config)
    if arch == "phi3":
        config["sliding_window"] = head.count(f"{arch}.attention.sliding_window") or None
    if arch == "granite":
        config |= {
            "attention_multiplier": head.number("granite.attention.scale") or config["head_dim"] ** -0.5,
            "embedding_multiplier": head.number("granite.embedding_scale"),
            "residual_multiplier": head.number("granite.residual_scale"),
            "logits_scaling": head.number("granite.logit_scale"),
        }
    if arch == "qwen3moe":
        config |= {
            "norm_topk_prob": True,
            "moe_intermediate_size": need(head, f"{arch}.expert_feed_forward_length"),
        }
    check_sizes(head, arch, config)
    return {key: value for key, value in config.items() if value is not None}


def check_keys(head: GgufHead, arch: str, more: Iterable[str]) -> None:
    """Raise ModelError for a key of an architecture that is neither common to all nor among `more`."""
    keys = {f"{arch}.{key}" for key in (*_KEYS, *more)}
    for key in head.values:
        if key.startswith(f"{arch}.") and key not in keys:
            raise head.wrong(
                key, f"is not known for the architecture {arch}, and may change what is computed"
            )


def check_sizes(head: GgufHead, arch: str, config: Mapping[str, Any]) -> None:
    """Raise ModelError for sizes that the tensors of the first layer, and embeddings if any, do not have.

    Memory is taken by these sizes before the tensors are read, so they have to be those of the file.
    """
    inner = config["num_attention_heads"] * config["head_dim"]
    wanted: dict[str, tuple[int, ...]] = {
        "blk.0.attn_output": (config["hidden_size"], inner),
        "blk.0.ffn_down": (config["hidden_size"], config["intermediate_size"]),
    }
    if "token_embd.weight" in head.tensors:
        wanted["token_embd"] = (config["vocab_size"], config["hidden_size"])
    if experts := config.get("num_experts") or config.get("num_local_experts"):
        if not 1 <= (config.get("num_experts_per_tok") or 0) <= experts:
            raise head.wrong(f"{arch}.expert_used_count", f"is not from 1 to {experts}")
        del wanted["blk.0.ffn_down"]
        width = config.get("moe_intermediate_size", config["intermediate_size"])
        wanted["blk.0.ffn_down_exps"] = (experts, config["hidden_size"], width)
    for name, shape in wanted.items():
        tensor = head.tensors.get(f"{name}.weight")
        if tensor is None or tensor.shape != shape:
            held = f"has the shape {list(tensor.shape)}" if tensor else "is missing"
            raise ModelError(
                f"{head.path}: {name}.weight {held}; the metadata asks for {list(shape)}.",
                hint="It is damaged, or not made for this; download it again.",
            )


def layer_sizes(head: GgufHead, arch: str) -> dict[str, Any]:
    """Return the sizes of layers. Raises ModelError for one that is missing or cannot be."""
    heads = need(head, f"{arch}.attention.head_count")
    groups = head.count(f"{arch}.attention.head_count_kv") or heads
    if heads % groups:
        raise head.wrong(
            f"{arch}.attention.head_count_kv", f"is {groups}, which does not divide {heads} heads"
        )
    width = head.count(f"{arch}.attention.key_length")
    if head.count(f"{arch}.attention.value_length") != width:
        raise head.wrong(f"{arch}.attention.value_length", "differs from the length of the keys")
    layers = need(head, f"{arch}.block_count")
    if layers > len(head.tensors):
        raise head.wrong(f"{arch}.block_count", f"is {layers}, but the file has {len(head.tensors)} tensors")
    return {
        "hidden_size": need(head, f"{arch}.embedding_length"),
        "intermediate_size": need(head, f"{arch}.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": width or need(head, f"{arch}.embedding_length") // heads,
        "max_position_embeddings": need(head, f"{arch}.context_length"),
        "rms_norm_eps": head.number(f"{arch}.attention.layer_norm_rms_epsilon"),
    }


def _sizes(head: GgufHead, arch: str) -> dict[str, Any]:
    if "token_embd.weight" not in head.tensors:
        raise ModelError(
            f"{head.path} lacks the tensor token_embd.weight.", hint="Is it the vocabulary of a model?"
        )
    has_bias = arch != "qwen2" and _has_bias(head, "attn_output")
    if arch != "qwen2" and not has_bias and (_has_bias(head, "attn_q") or _has_bias(head, "attn_qkv")):
        raise ModelError(f"{head.path} has biases of queries, which gencli does not know for {arch}.")
    experts = head.count(f"{arch}.expert_count")
    return {
        "architectures": [f"{arch} (GGUF)"],
        "model_type": "mixtral" if arch == "llama" and experts else MODEL_TYPES[arch],
        "vocab_size": head.tensors["token_embd.weight"].shape[0],
        **layer_sizes(head, arch),
        "tie_word_embeddings": "output.weight" not in head.tensors,
        "attention_bias": has_bias,
        "mlp_bias": _has_bias(head, "ffn_down"),
        ("num_experts" if arch == "qwen3moe" else "num_local_experts"): experts or None,
        "num_experts_per_tok": head.count(f"{arch}.expert_used_count") if experts else None,
    }


def need(head: GgufHead, key: str) -> int:
    value = head.count(key)
    if not value:
        raise head.wrong(key, "is missing or zero")
    return value


def _has_bias(head: GgufHead, name: str) -> bool:
    return f"blk.0.{name}.bias" in head.tensors


def _gemma(head: GgufHead, arch: str, config: Mapping[str, Any]) -> dict[str, Any]:
    layers, width = config["num_hidden_layers"], config["head_dim"]
    if layers == _LAYERS_OF_27B[arch]:
        width = config["hidden_size"] / config["num_attention_heads"]
    scale = head.number(f"{arch}.attention.scale")
    return {
        **window_config(head, arch, layers, _PATTERN[arch]),
        "query_pre_attn_scalar": scale**-2 if scale else width,
        "attn_logit_softcapping": head.number(f"{arch}.attn_logit_softcapping"),
        "final_logit_softcapping": head.number(f"{arch}.final_logit_softcapping"),
    }


def window_config(head: GgufHead, arch: str, layers: int, every: int = 0) -> dict[str, Any]:
    """Return the sliding window and the types of layers, which the file lists; or all but each n-th have it.

    `every` is n if the file does not give it. Raises ModelError for a list of another length, and without n.
    """
    key = f"{arch}.attention.sliding_window_pattern"
    window = head.count(f"{arch}.attention.sliding_window")
    if type(head.values.get(key)) is not int and key in head.values:
        are_near = [bool(mark) for mark in head.numbers(key) or ()]
        if len(are_near) != layers:
            raise head.wrong(key, f"has {len(are_near)} values for {layers} layers")
    else:
        every = head.count(key) or every or (need(head, key) if window else 1)
        are_near = [(layer + 1) % every != 0 for layer in range(layers)]
    types = ["sliding_attention" if window and is_near else "full_attention" for is_near in are_near]
    return {"sliding_window": window, "layer_types": types}


_THETA = 10_000.0  # of files that do not give it
_YARN = {"attention_factor": "yarn_attn_factor", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}


def rope_config(head: GgufHead, arch: str) -> dict[str, Any]:
    """Return the rotary part of the configuration. Raises ModelError for unknown parameters.

    Factors that divide the frequencies one by one (Llama 3 and its successors) have the type `factors`.
    """
    values = _values(head, arch)
    values["rope_theta"] = head.number(f"{arch}.rope.freq_base") or _THETA
    if values["rope_theta"] < 1:
        raise head.wrong(f"{arch}.rope.freq_base", "is less than 1")
    if arch == "gemma3":
        near = {"rope_theta": head.number("gemma3.rope.freq_base_swa") or _THETA}
        return {"rope_parameters": {"full_attention": values, "sliding_attention": near}}
    dims, width = _dims(head, arch), _width(head, arch)
    # The share of a head that is rotated has half a value more: share times width is rounded down.
    share = None if dims == width else (dims + 0.5) / width
    return {"rope_parameters": values, "partial_rotary_factor": share}


def _values(head: GgufHead, arch: str) -> dict[str, Any]:
    kind = head.text(f"{arch}.rope.scaling.type") or "none"
    factor = head.number(f"{arch}.rope.scaling.factor")
    context = head.count(f"{arch}.rope.scaling.original_context_length")
    short, long = head.vector("rope_factors_short.weight"), head.vector("rope_factors_long.weight")
    single = head.vector("rope_freqs.weight")
    if short or long:
        kind = "longrope"
    if single and kind != "none":
        raise head.wrong(f"{arch}.rope.scaling.type", f"is {kind[:60]!r} beside the tensor rope_freqs.weight")
    for factors in (short, long, single):
        if factors is not None and (len(factors) != _dims(head, arch) // 2 or min(factors) <= 0):
            raise head.wrong(f"{arch}.rope.dimension_count", "does not fit the tensors of rotary factors")
    if single:
        return {"rope_type": "factors", "factors": single}
    if kind == "longrope" and short and long:
        return {
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": context,
            "attention_factor": head.number(f"{arch}.rope.scaling.attn_factor"),
        }
    if kind == "yarn":
        if head.number(f"{arch}.rope.scaling.yarn_ext_factor") not in (None, 1.0):
            raise head.wrong(f"{arch}.rope.scaling.yarn_ext_factor", "is not 1")
        values = {name: head.number(f"{arch}.rope.scaling.{key}") for name, key in _YARN.items()}
        present = {name: value for name, value in values.items() if value is not None}
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": context, **present}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor or 1.0}
    if kind != "none":
        raise head.wrong(f"{arch}.rope.scaling.type", f"is {kind[:60]!r}, which gencli does not know")
    return {"rope_type": "default"}


def _dims(head: GgufHead, arch: str) -> int:
    """Return the number of values of a head that are rotated."""
    width = _width(head, arch)
    dims = head.count(f"{arch}.rope.dimension_count") or width
    if dims % 2 or not 2 <= dims <= width:
        raise head.wrong(f"{arch}.rope.dimension_count", f"is {dims} for heads of {width} values")
    return dims


def _width(head: GgufHead, arch: str) -> int:
    heads = head.count(f"{arch}.attention.head_count") or 1
    return (
        head.count(f"{arch}.attention.key_length") or (head.count(f"{arch}.embedding_length") or 0) // heads
    )


_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_EXPERTS = {
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
# Names of some architectures that differ from these.
_OWN = {
    "llama": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "gemma3": {"ffn_norm": "pre_feedforward_layernorm"},
    "eagle3": {"attn_norm_2": "hidden_norm", "enc.output_norm": "input_norm"},
    "dflash": {
        "enc.output_norm": "hidden_norm",
        "markov_w1": "markov_head.markov_w1",
        "markov_w2": "markov_head.markov_w2",
        "conf_proj": "confidence_head.proj",
    },
}
_TENSOR = re.compile(r"(?:blk\.(\d{1,6})\.)?((?:enc\.)?\w+)\.(weight|bias)")
_MAX_EXPERTS = 4096
# Architectures whose converter reorders rows, and those where it adds 1.
_REORDERED = ("llama", "granite", "smollm3", "eagle3")
_NORMS_PLUS_1 = ("gemma", "gemma2", "gemma3")


@dataclass(frozen=True, slots=True)
class GgufSource:
    """Rows of a tensor in the file, and what undoes the converter's changes.

    The shape is that of a safetensors checkpoint; `first` is the first row. `heads` is the number of heads
    whose rows were reordered, 0 for none. `added` is to be subtracted.
    """

    tensor: GgufTensor
    shape: tuple[int, ...]
    first: int = 0
    heads: int = 0
    added: float = 0.0


def sources_of(head: GgufHead) -> dict[str, GgufSource]:
    """Return the tensors of a file by their names in a safetensors checkpoint; unknown ones by their own.

    Raises ModelError for one that means the same as another.
    """
    arch = str(head.text("general.architecture"))
    named = {name: source for each in head.tensors.values() for name, source in _sources(head, arch, each)}
    if lost := head.tensors.keys() - {source.tensor.name for source in named.values()}:
        raise ModelError(f"{head.path}: nothing would read the tensor {min(lost)}.", hint=HINT)
    return named


def _sources(head: GgufHead, arch: str, tensor: GgufTensor) -> Iterator[tuple[str, GgufSource]]:
    match = _TENSOR.fullmatch(tensor.name)
    layer, part, kind = match.groups() if match else (None, "", "")
    names = (_OUTER if layer is None else _PARTS | _EXPERTS) | _OWN.get(arch, {})
    prefix = "" if layer is None else f"model.layers.{layer}."
    if part not in names:
        yield tensor.name, GgufSource(tensor, tensor.shape)
    elif part not in _EXPERTS:
        added = 1.0 if arch in _NORMS_PLUS_1 and part.endswith("norm") else 0.0
        heads = 0
        if arch in _REORDERED and part in ("attn_q", "attn_k"):
            heads = head.count(f"{arch}.attention.head_count") or 0
            if part == "attn_k":
                heads = head.count(f"{arch}.attention.head_count_kv") or heads
        yield f"{prefix}{names[part]}.{kind}", GgufSource(tensor, tensor.shape, heads=heads, added=added)
    elif len(tensor.shape) == 3 and tensor.shape[0] <= _MAX_EXPERTS:
        for number in range(tensor.shape[0]):
            name = f"{prefix}{names[part].format(number)}.{kind}"
            yield name, GgufSource(tensor, tensor.shape[1:], first=number * tensor.shape[1])


NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_PREFIX = "tokenizer.ggml."
# Control tokens that end a turn or a text. Few files say so otherwise: llama.cpp knows them by these names.
_ENDS = frozenset(
    """
    <|eot_id|> <|im_end|> <|end|> <end_of_turn> <|endoftext|> <|end_of_text|> <|eom_id|> <EOT> </s> <eos>
    <end_of_utterance>
    """.split()
)
_SENTENCEPIECE = {"bos": 1, "eos": 2, "unknown": 0}  # ids of roles where the file names none
_ROLES = ("bos", "eos", "eot", "eom", "unknown", "padding")


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """Tokens by id, and the kind of each; `ids` are the ids with a role, such as "bos"."""

    tokens: Sequence[str]
    kinds: Sequence[int]
    ids: dict[str, int]

    @property
    def ends(self) -> list[int]:
        """The ids that end a text, sorted."""
        named = {self.ids[role] for role in ("eos", "eot", "eom") if role in self.ids}
        pairs = enumerate(zip(self.tokens, self.kinds, strict=True))
        return sorted(named | {index for index, (text, kind) in pairs if kind == CONTROL and text in _ENDS})

    @property
    def special(self) -> frozenset[str]:
        """The texts of the tokens that are no text."""
        pairs = zip(self.tokens, self.kinds, strict=True)
        return frozenset(text for text, kind in pairs if kind in (CONTROL, UNKNOWN))


def read_vocabulary(head: GgufHead) -> GgufVocabulary:
    """Return the vocabulary of a file. Raises ModelError if it has none, or a faulty one."""
    tokens = head.texts(f"{_PREFIX}tokens")
    if not tokens:
        raise ModelError(
            f"{head.path} has no tokenizer.", hint="Its converter left it out; take another file."
        )
    tokens = [text or f"[EMPTY_{index}]" for index, text in enumerate(tokens)]
    if len(set(tokens)) != len(tokens):
        raise head.wrong(f"{_PREFIX}tokens", "has a token twice")
    types = head.numbers(f"{_PREFIX}token_type")
    kinds = [NORMAL] * len(tokens) if types is None else [int(kind) for kind in types]
    if len(kinds) != len(tokens):
        raise head.wrong(f"{_PREFIX}token_type", f"has {len(kinds)} values for {len(tokens)} tokens")
    defaults = _SENTENCEPIECE if head.text(f"{_PREFIX}model") == "llama" else {}
    ids = {role: head.count(f"{_PREFIX}{role}_token_id") for role in _ROLES}
    roles = {role: defaults.get(role) if number is None else number for role, number in ids.items()}
    inside = {role: number for role, number in roles.items() if number is not None and number < len(tokens)}
    return GgufVocabulary(tokens, kinds, inside)

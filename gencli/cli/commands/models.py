"""`gencli models`: list, show, fetch, remove and name models."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gencli.cli import fetching
from gencli.cli.fetching import CommandOutput
from gencli.cli.render import Sink, table
from gencli.cli.usage import FORMAT_AND_DEBUG, Page, in_format, read_subcommand, values_of
from gencli.config.option import MAX_BATCH, Option
from gencli.config.option_names import with_flags
from gencli.config.preset_files import folder_words as folders
from gencli.config.preset_files import models
from gencli.errors import ModelError, UsageError
from gencli.helpers import size
from gencli.models.backend import choose_backend, why_no_graphs
from gencli.models.files import local_models as local
from gencli.models.files.gguf_header import PART, is_gguf, kept_kinds
from gencli.models.files.model_card import Card, held_bytes, kv_bytes, read_card, read_config
from gencli.models.files.model_files import stored_bits
from processors.params import MOST, Bounds

# Keys of the options of each subcommand, besides --debug.
_OF_WORD = {
    "list": ("format",),
    "show": ("batch", "context", "memory", "card", "format"),
    "pull": ("trust_remote_code", "format"),
    "rm": ("yes", "format"),
    "alias": ("remove", "format"),
}
PAGE = Page(
    """\
Usage: gencli models list [FOLDER]...
       gencli models show NAME [OPTIONS]
       gencli models pull NAME[@REVISION] [OPTIONS]
       gencli models rm NAME[@REVISION] [OPTIONS]
       gencli models alias [NAME [TARGET]] [OPTIONS]

List the models on this machine (bundled, in the hub's cache, and in the folders
that are given), show one of them and the memory that it needs, fetch one from
the Hugging Face hub, remove one from the cache, or give one a name of your own.
""",
    (
        Option(("--batch",), int, "Samples side by side, for the memory.", "Model", 1,
               Bounds(ge=1, le=MAX_BATCH)),
        Option(("--context",), int, "Tokens of each, for the memory; the model's context if not given.",
               "Model", bounds=Bounds(ge=1, le=MOST)),
        Option(("--memory",), bool, "Show in full what the model takes on the CPU: weights, keys and values, "
               "buffers, libraries.", "Model", False),
        Option(("--card",), str, "Show what of the model fits a GPU of this memory, such as 24GB, or of this "
               "name, such as H100; no GPU is needed.", "Model", metavar="CARD"),
        Option(("--trust-remote-code",), bool, "Fetch the Python code that comes with a model, too; only "
               "commands that are given the same flag run it.", "Model", False),
        Option(("--yes", "-y"), bool, "Remove without a question.", "Model", False),
        Option(("--remove",), bool, "Forget the alias.", "Model", False),
        *FORMAT_AND_DEBUG,
    ),
    "list|show|pull|rm|alias [NAME]",
    tuple(_OF_WORD),
    {"list": folders, "show": models, "pull": models, "rm": models, "alias": models},
)  # fmt: skip
_GRAMMARS = {
    "exact": "yes: xgrammar and llguidance know the bytes of each token",
    "decoded": "yes, with bytes as they are decoded: its tokens change with their neighbours",
    "unknown": "not known before it is loaded: there is no tokenizer.json",
}
_RECORDED = {
    "native": "recorded on a CUDA GPU",
    "transformers": "recorded on a CUDA GPU, if transformers compiles the model as one graph",
}
_NUMBERS = {"float32": 4, "bfloat16": 2}
_PACKS = platform.machine() in ("x86_64", "AMD64")  # where releases of PyTorch pack the projection


# A model by name, its source (bundled, hub, folder or file), and its card or an error message.
_ListedModel = tuple[str, str, Card | str]


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run the subcommand that the first argument names and return the exit code.

    Raises UsageError for an unknown subcommand, and for arguments and options that it does not accept.
    """
    values = values_of(PAGE.options, flags)
    word, names = read_subcommand("gencli models", _OF_WORD, arguments, flags)
    functions = {"pull": fetching.pull, "rm": fetching.remove, "alias": fetching.alias}
    record, text = {**functions, "list": _list, "show": _show}[word](names, values)
    Sink().write(in_format(text, record, values))
    return 0


def _list(names: Sequence[str], values: Mapping[str, Any]) -> CommandOutput:
    """Return all models, partial downloads and aliases."""
    complete, cached, aliases = list(_all(names)), list(local.cached_models()), local.read_aliases()
    partial, rows = [model for model in cached if model.is_partial], []
    for name, source, card in complete:
        record = {**_card_json(card), "error": None} if isinstance(card, Card) else {"error": card}
        rows.append({"name": name, "source": source, **record})
    rows += [fetching.partial_json(model) for model in partial]
    rows += [{"name": name, "source": "alias", "target": target} for name, target in aliases.items()]
    lines = [_table(complete), *map(fetching.partial_line, partial)]
    lines += [f"{name}: alias of {target}\n" for name, target in aliases.items()]
    return rows, "".join([*lines, fetching.cache_line(len(cached))])


def _all(folders: Sequence[str]) -> Iterator[_ListedModel]:
    for name in local.BUNDLED:
        if name != "fake":
            yield _listed_model(name, "bundled", local.bundled_folder(name))
    for model in local.cached_models():
        if model.folder is not None and not model.is_partial:
            yield _listed_model(model.name, "hub", model.folder)
    for name in folders:
        source = Path(name).expanduser()
        if is_gguf(source) and source.is_file():
            yield _listed_model(name, "file", source)
            continue
        if not source.is_dir():
            raise ModelError(f"There is no folder {name}.")
        inner = [path.parent for path in sorted(source.glob("*/config.json"))]
        is_model = (source / "config.json").is_file() or not (inner or any(source.glob("*.gguf")))
        for folder in [source] if is_model else inner:
            yield _listed_model(str(folder), "folder", folder)
        for file in sorted(source.glob("*.gguf")):
            part = PART.fullmatch(file.name)
            if part and int(part["number"]) > 1:
                continue
            yield _listed_model(str(file), "file", file)


def _listed_model(name: str, source: str, folder: Path) -> _ListedModel:
    try:
        return name, source, read_card(folder)
    except ModelError as error:
        return name, source, error.message


def _table(models: Sequence[_ListedModel]) -> str:
    rows = [("name", "source", "size", "dtype", "architecture", "context", "chat", "lanes", "rollback")]
    broken = ""
    for name, source, card in models:
        if isinstance(card, str):
            broken += f"{name}: {with_flags(card)}\n"
            continue
        context = "?" if card.context is None else str(card.context)
        chat, rollback = ("yes" if flag else "no" for flag in (card.has_chat_template, card.can_rollback))
        cells = (size(card.weights.bytes), card.weights.stored or "-", card.architecture, context, chat)
        rows.append((name, source, *cells, card.lanes, rollback))
    return f"{table(rows)}{broken}fake, a table of random numbers for tests, is made when it is used.\n"


def _card_json(card: Card) -> dict[str, Any]:
    return {
        "folder": str(card.folder),
        "architecture": card.architecture,
        "model_type": card.model_type,
        "bytes": card.weights.bytes,
        "parameters": card.weights.parameters,
        "dtype": card.weights.stored or None,
        "context": card.context,
        "vocabulary": card.vocabulary,
        "chat_template": card.has_chat_template,
        "lanes": card.lanes,
        "rollback": card.can_rollback,
    }


def _show(names: Sequence[str], values: Mapping[str, Any]) -> CommandOutput:
    """Return one model and the memory that it needs."""
    batch, context = values["batch"], values["context"]
    if len(names) != 1:
        hint = "gencli models list shows the models on this machine."
        raise UsageError("models show takes one model.", hint=hint)
    if names[0] == "fake":
        raise UsageError("The fake model is a table that is made when it is used; it has no files.")
    folder = local.find_local(names[0])
    if folder is None:
        raise local.absent(names[0])
    card, config = read_card(folder), read_config(folder)
    from gencli.speculative.head_files import holds_head
    from gencli.text.tokenizer import grammar_support

    if holds_head(folder, config):
        return _head(names[0], card)
    if context is not None and card.context is not None and context > card.context:
        raise UsageError(f"--context is {context}, but the model takes {card.context}.")
    tokens = context or card.context or 4096
    record = {"name": names[0], **_card_json(card), "grammars": grammar_support(folder)}
    spec, reason = choose_backend("auto", config)
    record["backend"] = f"{'transformers' if spec is None else 'native'}: {reason}"
    why_not = why_no_graphs(spec, has_shared_lanes=card.lanes == "shared")
    record["graphs"] = f"none, as {why_not}" if why_not else _RECORDED[record["backend"].partition(":")[0]]
    bits, kept = stored_bits(config), " and ".join(kept_kinds(folder, "cpu"))
    record["quantization"] = kept or (None if bits is None else f"int{bits}")
    if values["card"] is not None:
        from gencli.cli.commands.model_fit import card_json, card_text

        record["memory"] = card_json(card, values["card"], batch, tokens)
        return record, card_text(record)
    if values["memory"]:
        from gencli.cli.commands.model_fit import memory_json, memory_text

        record["memory"] = memory_json(card, batch, tokens, has_decoder=spec is not None)
        return record, memory_text(record)
    memory = []
    formats = dict[str, int]()
    if (stored := record["quantization"]) is not None and is_gguf(card.folder):
        import torch

        from gencli.models.model_memory import weight_bytes

        formats[stored] = weight_bytes(card, torch.float32, torch.device("cpu"), "kept")
    elif stored is not None:
        formats[stored] = card.weights.bytes
    if stored is None or is_gguf(card.folder):
        formats |= {
            dtype: held_bytes(card, width, "cpu", is_packed=_PACKS) for dtype, width in _NUMBERS.items()
        }
    for dtype, weights in formats.items():
        kv = kv_bytes(card, batch=batch, context=tokens, number_bytes=_NUMBERS.get(dtype, 4))
        memory.append({"dtype": dtype, "weights": weights, "kv": kv})
    record["memory"] = {"batch": batch, "context": tokens, "of": memory}
    return record, _show_text(record)


def _head(name: str, card: Card) -> CommandOutput:
    """Return a trained draft head, which needs no memory of its own without its model."""
    files = (file for kind in ("safetensors", "bin", "pt") for file in card.folder.glob(f"*.{kind}"))
    held = card.weights.bytes if is_gguf(card.folder) else sum(file.stat().st_size for file in files)
    folder = str(card.folder)
    record = {"name": name, "folder": folder, "is_head": True, "architecture": card.architecture}
    rows = [
        ("name", name),
        ("file" if is_gguf(card.folder) else "folder", folder),
        ("kind", f"a draft head: --draft {name} drafts with it for its model"),
        ("architecture", card.architecture),
        ("weights", size(held)),
    ]
    return {**record, "bytes": held}, table(rows)


def _show_text(record: Mapping[str, Any]) -> str:
    is_shared, can_rollback = record["lanes"] == "shared", record["rollback"]
    shared = "several requests in one pass" if is_shared else "one request at a time in a step"
    rollback = "no: no drafts; a chat that goes back reads its text again"
    if can_rollback:
        rollback = "yes: drafts, and chats that go back"
    rows = [
        ("name", record["name"]),
        ("file" if is_gguf(Path(record["folder"])) else "folder", record["folder"]),
        ("architecture", f"{record['architecture']} ({record['model_type']})"),
        ("weights", f"{record['parameters']:,} numbers, {size(record['bytes'])} in {record['dtype'] or '-'}"),
        ("context", str(record["context"] or "?")),
        ("vocabulary", str(record["vocabulary"] or "?")),
        ("chat template", "yes" if record["chat_template"] else "no (gencli chat needs --raw)"),
        ("backend", record["backend"]),
        ("graphs", record["graphs"]),
        ("lanes", f"{record['lanes']}: {shared}"),
        ("grammars", _GRAMMARS[record["grammars"]]),
        ("rollback", rollback),
    ]
    memory = record["memory"]
    count = f"{memory['batch']} x {memory['context']} tokens"
    for entry in memory["of"]:
        total = None if entry["kv"] is None else entry["weights"] + entry["kv"]
        text = f"{size(entry['weights'])} weights + {size(entry['kv'])} keys and values = {size(total)}"
        rows.append((f"in {entry['dtype']}", f"{text} ({count})"))
    return table(rows)

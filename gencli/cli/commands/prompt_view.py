"""`--show-prompt`: prompts as passed to the model, with special tokens, without loading weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.writers import block_label

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = ["show_prompts"]


def show_prompts(
    prompts: Sequence[str], all_ids: Sequence[Sequence[int]], tokenizer: Tokenizer, form: str, sink: Sink
) -> None:
    """Write the decoded ids of each prompt: as text, with labels if there are several, or as records."""
    rendered = [tokenizer.decode(ids, skip_special=False) for ids in all_ids]
    records = [
        {"prompt": prompt, "rendered": text, "ids": list(ids)}
        for prompt, text, ids in zip(prompts, rendered, all_ids, strict=True)
    ]
    if form == "jsonl":
        sink.write("".join(record_text(record, form, encoding=sink.encoding) for record in records))
    elif form != "text":
        document = records if records[1:] else records[0]
        sink.write(record_text(document, form, encoding=sink.encoding))
    else:
        blocks = [text if text.endswith("\n") else f"{text}\n" for text in rendered]
        if blocks[1:]:
            numbered = enumerate(zip(prompts, blocks, strict=True), start=1)
            blocks = [f"{block_label(str(number), prompt)}\n{block}" for number, (prompt, block) in numbered]
        sink.write("\n".join(blocks))

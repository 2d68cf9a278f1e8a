"""`--show-prompt`: prompts as the model gets them, special tokens included, without its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gencli.cli.render import Sink
from gencli.cli.writers import headed
from gencli.jsontext import to_json

if TYPE_CHECKING:
    from gencli.tokenizer import Tokenizer

__all__ = ["show_prompts"]


def show_prompts(
    prompts: Sequence[str], all_ids: Sequence[Sequence[int]], tokenizer: Tokenizer, form: str, sink: Sink
) -> None:
    """Write the text of each prompt's ids: as it is, labelled where there are several, or as JSON."""
    texts = [tokenizer.decode(ids, skip_special=False) for ids in all_ids]
    records = [
        {"prompt": prompt, "rendered": text, "ids": list(ids)}
        for prompt, text, ids in zip(prompts, texts, all_ids, strict=True)
    ]
    if form == "json":
        document = records if records[1:] else records[0]
        sink.write(to_json(document, encoding=sink.encoding, indent=2) + "\n")
    elif form == "jsonl":
        sink.write("".join(to_json(record, encoding=sink.encoding) + "\n" for record in records))
    else:
        blocks = [text if text.endswith("\n") else f"{text}\n" for text in texts]
        if blocks[1:]:
            numbered = enumerate(zip(prompts, blocks, strict=True), start=1)
            blocks = [f"{headed(str(number), prompt)}\n{block}" for number, (prompt, block) in numbered]
        sink.write("\n".join(blocks))

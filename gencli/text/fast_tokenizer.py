"""A model folder's tokenizer without transformers: the part of the interface that gencli uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

__all__ = ["FastTokenizer"]


class FastTokenizer:
    """A `tokenizers.Tokenizer` with the names of its special tokens and its chat templates.

    Methods and attributes return the same values as those of a transformers tokenizer. `special_tokens_map`:
    named special tokens ("bos_token": "<s>"). `extra`: special tokens without a name. All of them have to be
    tokens of `backend`. `chat_template`: one template, or a mapping of named ones.
    """

    def __init__(
        self,
        backend: Tokenizer,
        special_tokens_map: Mapping[str, str],
        extra: Iterable[str] = (),
        chat_template: str | Mapping[str, str] | None = None,
    ) -> None:
        self.backend_tokenizer = backend
        self.special_tokens_map = dict(special_tokens_map)
        self.all_special_tokens = list(dict.fromkeys((*self.special_tokens_map.values(), *extra)))
        self.chat_template = chat_template

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The added tokens by id."""
        added: dict[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return added

    @property
    def bos_token_id(self) -> int | None:
        """The id of the BOS token."""
        return self._id_of("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the EOS token."""
        return self._id_of("eos_token")

    @property
    def all_special_ids(self) -> list[int | None]:
        """The ids of the named and the extra special tokens."""
        return [self.backend_tokenizer.token_to_id(token) for token in self.all_special_tokens]

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token, added tokens included."""
        vocabulary: dict[str, int] = self.backend_tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary

    def encode(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> list[int]:
        """Return the ids of `text`, by default with the special tokens around it; `verbose` is ignored."""
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(
        self,
        ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """Return the text of `ids`. Raises ValueError for `clean_up_tokenization_spaces`, which is unused."""
        if clean_up_tokenization_spaces:
            raise ValueError("clean_up_tokenization_spaces needs transformers")
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Return the token of an id, None for an id without a token."""
        token: str | None = self.backend_tokenizer.id_to_token(token_id)
        return token

    def get_chat_template(self, name: str | None = None, tools: Sequence[Any] | None = None) -> str:
        """Return the template that is called `name`, or the one for a conversation with or without `tools`.

        Raises ValueError if there is none, or if several have names and none is the default.
        """
        known = self.chat_template
        if known is None:
            raise ValueError("the tokenizer has no chat template")
        if isinstance(known, str):
            return known if name is None else name
        if name is not None:
            return known.get(name, name)
        if tools is not None and "tool_use" in known:
            return known["tool_use"]
        if "default" not in known:
            raise ValueError(f"none of its templates is the default: {', '.join(sorted(known))}")
        return known["default"]

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens_map.get(name)
        token_id: int | None = None if token is None else self.backend_tokenizer.token_to_id(token)
        return token_id

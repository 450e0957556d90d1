"""Texts: strings go in, and explanations have a number for each word.

Inside of standfast a text is a row of numbers, one code for each of its words. `TextModel` makes a `Model` of a network
and its tokenizer, which writes such a row as a string and reads it again.
"""

from standfast.texts.answers import AnswerModel
from standfast.texts.embedded import EmbeddedText, TransformersText, padded_batch, token_relevance
from standfast.texts.model import CausalModel, TextModel
from standfast.texts.network import TextBox, TokenBatch, find_text_box
from standfast.texts.prompts import Prompt, Prompts
from standfast.texts.words import encode_texts, split_words, sum_sentences, write_text

__all__ = [
    "AnswerModel",
    "CausalModel",
    "EmbeddedText",
    "Prompt",
    "Prompts",
    "TextBox",
    "TextModel",
    "TokenBatch",
    "TransformersText",
    "encode_texts",
    "find_text_box",
    "padded_batch",
    "split_words",
    "sum_sentences",
    "token_relevance",
    "write_text",
]

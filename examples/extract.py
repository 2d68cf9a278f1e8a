"""Sentences to objects: a dataclass gives the schema, and the valid output gives an instance of it."""

from dataclasses import dataclass

from gencli import LLM, SamplingParams


@dataclass
class Person:
    name: str
    age: int
    job: str
    city: str


SENTENCES = [
    "Nora is a 41 year old pilot from Quito.",
    "Omar is a 29 year old baker from Lima.",
]

params = SamplingParams(json_schema=Person, temperature=0, max_tokens=80)
with LLM("tiny", dtype="float32") as llm:
    for out in llm.generate([f"Sentence: {sentence}\nJSON:" for sentence in SENTENCES], params):
        if out.error:
            print("not valid:", out.error)
        else:
            print(Person(**out.parsed))

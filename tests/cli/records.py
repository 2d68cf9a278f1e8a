"""Records of tokens for the tests of what a terminal shows of them."""

__all__ = ["record", "text"]

from gencli.explain.trace_file import TracedText


def place(p, top, alive):
    return {"p": p, "rank": 1, "logit": 0.0, "entropy": 1.0, "alive": alive, "top": top, "others": 0.25}


def record(pos, text="ab", *, p=0.5, decided=(), surprise=1.0, name="top_k", stages=2):
    """The record of a token that stages of one name let through; the last one removed another."""
    top = [[1, text, p], [2, "xy", 0.25]]
    stage = {"name": name, "params": f"{name}=2", "acted": True, "alive": [9, 2], "mass_kept": 0.5}
    stage |= {**place(p, top, 2), "alive": [9, 2], "removed": [[3, "no", 0.1]], "changed": [], "note": ""}
    return {
        "run": "1",
        "sample": 0,
        "pos": pos,
        "id": 1,
        "text": text,
        "bytes": "",
        "surprise": surprise,
        "raw": place(p, [*top, [3, "no", 0.1]], 9),
        "final": place(p, top, 2),
        "stages": [stage] * stages,
        "draw": {"kind": "gumbel", "margin": 1.0, "runner_up": [2, "xy"]},
        "decided_by": [*decided],
        "forgone": None,
    }


def text(*records, sample=0):
    """A text of these records."""
    return TracedText({"run": "1", "sample": sample}, records, "length")

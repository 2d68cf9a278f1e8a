"""lm-evaluation-harness on local tasks: every way gives the numbers of the harness's own backend `hf`."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gencli.models.files.local_models import find_local

pytestmark = pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed")


ROOT = Path(__file__).parents[2]


TASKS = Path(__file__).with_name("tasks")


NAMES = ["brindle_choice", "brindle_continuation", "brindle_texts", "brindle_stories"]


@pytest.fixture(scope="module")
def evaluate(own_folders):
    """Run tasks; return the answers to each sample, by task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # the tasks name their file from here
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager

        manager = TaskManager(include_path=str(TASKS), include_defaults=False)

        def run(model, tasks=NAMES, **options):
            found = simple_evaluate(model, tasks=tasks, task_manager=manager, bootstrap_iters=0, **options)
            return {task: [one["filtered_resps"] for one in found["samples"][task]] for task in tasks}

        yield run


@pytest.fixture(scope="module")
def tiny():
    return str(find_local("tiny"))


@pytest.fixture(scope="module")
def through(server, tiny):
    """The arguments with which the harness asks the server, with the ids of its own tokenizer."""
    return {"base_url": f"{server.url}/completions", "model": "tiny", "max_length": 1024,
            "tokenizer": tiny, "tokenizer_backend": "huggingface"}  # fmt: skip


@pytest.fixture(scope="module")
def expected(evaluate, tiny):
    return evaluate("hf", model_args={"pretrained": tiny, "device": "cpu", "dtype": "float32"})


@pytest.fixture(scope="module")
def own(own_folders):
    from gencli.lm_eval import GencliLM

    model = GencliLM("tiny", dtype="float32")
    yield model
    model.llm.close()


def same(found, expected):
    """Compare log-probabilities to 1e-3 (sums of up to 30 tokens), greedy flags and texts exactly."""
    assert found.keys() == expected.keys()
    for task, answers in expected.items():
        for mine, theirs in zip(found[task], answers, strict=True):
            (numbers, rest), (others, other_rest) = split(mine), split(theirs)
            assert rest == other_rest
            assert numbers == pytest.approx(others, abs=1e-3)


def split(answers):
    """The numbers of a sample's answers, and what else they say: flags or texts."""
    parts = [answer if isinstance(answer, tuple) else (answer,) for answer in answers]
    return (
        [part for answer in parts for part in answer if isinstance(part, float)],
        [part for answer in parts for part in answer if not isinstance(part, float)],
    )


def test_the_tasks_say_something(expected):
    assert [flag for ((_, flag),) in expected["brindle_continuation"]] == [True, False, False]
    assert all(text for (text,) in expected["brindle_stories"])


def test_the_model_of_gencli(evaluate, own, expected):
    same(evaluate(own), expected)


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_server(evaluate, through, expected, at_once):
    arguments = {**through, "add_bos_token": True, "num_concurrent": at_once}
    same(evaluate("local-completions", model_args=arguments), expected)


def test_the_tokenizer_of_the_server(evaluate, through):
    """Without a folder the harness asks the server for ids, and adds no beginning of text."""
    tasks = ["brindle_choice", "brindle_stories"]
    remote = {key: value for key, value in through.items() if not key.startswith("tokenizer")}
    found = evaluate("local-completions", tasks, model_args=remote)
    same(found, evaluate("local-completions", tasks, model_args=through))


def test_conversations(evaluate, own, server, through, tiny):
    options = {"tasks": ["brindle_choice", "brindle_stories"], "apply_chat_template": True}
    theirs = evaluate("hf", model_args={"pretrained": tiny, "device": "cpu", "dtype": "float32"}, **options)
    same(evaluate(own, **options), theirs)
    same(evaluate("local-completions", model_args=through, **options), theirs)
    options["tasks"] = ["brindle_stories"]  # the route of chats scores no choices
    arguments = {"base_url": f"{server.url}/chat/completions", "model": "tiny", "max_length": 1024}
    found = evaluate("local-chat-completions", model_args=arguments, **options)
    same(found, {"brindle_stories": theirs["brindle_stories"]})


def test_the_launcher(expected, tmp_path):
    words = "-m gencli.lm_eval run --model gencli --tasks brindle_choice"
    command = [sys.executable, *words.split()]
    command += ["--model_args", "pretrained=tiny", "--include_path", TASKS]
    command += ["--log_samples", "--output_path", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "|brindle_choice" in done.stdout
    (log,) = tmp_path.rglob("samples_brindle_choice_*.jsonl")
    samples = [json.loads(line)["filtered_resps"] for line in log.read_text().splitlines()]
    assert len(samples) == 3
    found = [[(float(value), flag == "True") for value, flag in answers] for answers in samples]
    same({"brindle_choice": found}, {"brindle_choice": expected["brindle_choice"]})

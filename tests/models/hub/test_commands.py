"""The commands with models of the hub: what fetches, what refuses to, and what is said."""

from gencli.models.files.local_models import HubName, cached_models, find_snapshot, repository_folder
from tests.models.cases import case
from tests.models.hub.server import COMMIT, Repo

NAME = HubName("some/one")
SHORT = ("--seed", "1", "--max-tokens", "3")
WEIGHTS = "model.safetensors"


def test_the_defaults_that_come_with_the_model_hold_at_once(gencli, hub):
    hub.repos["some/one"].files["generation_config.json"] = b'{"temperature": 0.25, "do_sample": true}'
    record = gencli("run", "-m", "some/one", "--download", "hi", *SHORT, "--format", "json").json
    assert {"temperature": {"temperature": 0.25}} in record["chain"]


def test_no_other_command_fetches_and_each_says_how(gencli, hub):
    for arguments in [
        ("batch", "-m", "some/one", "-"),
        ("batch", "-m", "some/one", "--dry-run", "-"),
        ("tokenize", "-m", "some/one", "hi"),
        ("models", "show", "some/one"),
        ("chat", "-m", "some/one"),
        ("chat", "-m", "some/one", "--offline"),
        ("run", "-m", "some/one", "--offline", "hi"),
    ]:
        with case(arguments):
            result = gencli(*arguments, stdin=b'{"prompt": "hi"}\n')
            assert (result.code, hub.log) == (5, [])
            assert "gencli models pull some/one" in result.err


def test_run_show_chain_doctor_list_and_a_slip_of_the_pen_ask_nobody(gencli, hub):
    assert gencli("run", "-m", "some/one", "--show-chain").code == 0
    assert gencli("models", "list").code == 0
    assert "models come from 127.0.0.1" in gencli("doctor").out
    result = gencli("run", "-m", "tiyn", "hi")
    assert (result.code, "Did you mean 'tiny'?" in result.err, hub.log) == (5, True, [])


def test_a_variable_that_forbids_the_network_is_named(gencli, hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "GENCLI_OFFLINE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "1")
            download = () if variable == "GENCLI_OFFLINE" else ("--download",)
            for command in (("run", "-m", "some/one", *download, "hi"), ("models", "pull", "some/one")):
                result = gencli(*command)
                said = variable if variable == "GENCLI_OFFLINE" else f"{variable}=1"
                assert (result.code, said in result.err, hub.log) == (5, True, []), variable
            if variable != "GENCLI_OFFLINE":
                assert f"off ({variable}=1)" in gencli("doctor").out


def test_two_that_fetch_at_once_are_kept_apart(gencli, hub):
    from gencli.models.files.local_models import repository_lock

    with repository_lock(NAME):
        result = gencli("models", "pull", "some/one")
    assert (result.code, "some/one is being fetched by process" in result.err) == (2, True)


def test_rm_removes_what_is_whole_and_what_is_not(gencli, hub):
    gencli("models", "pull", "some/one")
    asked = gencli("models", "rm", "some/one")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert find_snapshot(NAME)
    gone = gencli("models", "rm", "some/one", "--yes")
    assert (gone.code, "freed" in gone.out) == (0, True)
    assert list(cached_models()) == []
    place = repository_folder(NAME) / "blobs"
    place.mkdir(parents=True)
    (place / f"{'0' * 64}.incomplete").write_bytes(b"x" * 5000)
    result = gencli("models", "rm", "some/one", "--yes", "--format", "json")
    assert result.json["freed_bytes"] == 5000
    assert not repository_folder(NAME).exists()


def test_what_is_no_name_or_no_model_is_refused(gencli, hub):
    for arguments, code, said in [
        (("pull",), 2, "takes one model"),
        (("pull", "a/b", "c/d"), 2, "takes one model"),
        (("pull", "tiny"), 2, "is bundled with gencli"),
        (("rm", "tiny", "--yes"), 2, "is bundled with gencli"),
        (("rm", "no/where", "--yes"), 5, "is not in"),
        (("pull", "no/where"), 5, "There is no model no/where"),
        (("pull", "some/one@nothing"), 5, "no revision nothing"),
        (("list", "--yes"), 2, "gencli models list does not take --yes"),
        (("pull", "some/one", "--batch", "3"), 2, "gencli models pull does not take --batch"),
        (("lst",), 2, "Did you mean 'list'?"),
        *(
            ((word, name), 5, "is not the name of a model of the hub")
            for word in ("pull", "rm")
            for name in (
                "../../etc",
                "a/b/c",
                "a/..",
                "..",
                "/etc/passwd",
                "a--b/c",
                "a/b@../x",
                "a/b@",
                "a b",
                "a/b.git",
                "-x/y"[1:] + "/",
                "a/b@x//y",
                "a/b@x/../../y",
                "\x1b[31m",
            )
        ),
    ]:
        with case(arguments, code, said):
            result = gencli("models", *arguments)
            assert (result.code, result.out) == (code, "")
            assert said in result.err
            assert "\x1b" not in result.err


def test_an_alias_may_stand_for_a_folder(gencli, hub, tmp_path, monkeypatch):
    gencli("models", "pull", "some/one")
    monkeypatch.chdir(find_snapshot(NAME).parent)
    assert gencli("models", "alias", "here", COMMIT).code == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()  # a folder of that name does not take its place
    assert gencli("run", "-m", "here", "hi", *SHORT).code == 0


def test_an_alias_that_would_confuse_is_refused(gencli, hub):
    gencli("models", "alias", "small", "some/one")
    gencli("models", "alias", "old", "gpt2")
    for said, *names in [
        ("means something else", "tiny some/one", "fake some/one", "ngram some/one", "none some/one"),
        ("cannot be an alias", "a/b some/one", "../x some/one", "a@b some/one", " some/one"),
        ("neither a folder nor", "x ../../x"),
        ("comes with gencli", "x tiny"),
        ("is itself an alias", "x small"),
        ("The alias old stands for gpt2", "gpt2 some/one"),
        ("takes a name", "x y z", "--remove"),
        ("no alias 'nothing'", "nothing", "nothing --remove"),
    ]:
        for arguments in names:
            result = gencli("models", "alias", *arguments.split(" "))
            assert (result.code, said in result.err) == (2, True), arguments


def test_a_damaged_file_of_aliases_is_named_and_harms_no_bundled_model(gencli, hub, tmp_path):
    path = tmp_path / "config" / "gencli" / "aliases.json"
    path.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"a": 1}', "null", "[" * 99999):
        path.write_text(text)
        result = gencli("run", "-m", "small", "hi", *SHORT)
        assert (result.code, str(path) in result.err) == (3, True), text[:9]
        assert gencli("run", "-m", "fake", "hi", *SHORT).code == 0


def test_code_of_a_model_is_fetched_and_run_only_with_leave(gencli, hub):
    files = hub.repos["some/one"].files
    files["config.json"] = files["config.json"].replace(
        b'"model_type": "llama"',
        b'"model_type": "odd", "auto_map": {"AutoModelForCausalLM": "modeling_odd.Odd"}',
    )
    hub.repos["some/one"] = Repo(files)
    result = gencli("run", "-m", "some/one", "--download", "hi", *SHORT)
    assert (result.code, "--trust-remote-code" in result.err) == (5, True)
    assert hub.fetched(WEIGHTS) == []
    assert gencli("models", "pull", "some/one", "--trust-remote-code").code == 0
    assert (find_snapshot(NAME) / "modeling_odd.py").is_file()

"""A hub on this machine, and a cache of the test's own."""

from pathlib import Path

import pytest

from gencli.models.files.local_models import bundled_folder
from tests.cli.conftest import gencli  # noqa: F401 - a fixture
from tests.models.hub.server import Hub, Repo

TOKEN = "hf_secretsecretsecret"


def model_files():
    """The files of the bundled draft model, and many that nobody needs."""
    folder = bundled_folder("tiny-draft")
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    junk = ("pytorch_model.bin", "model.gguf", "flax_model.msgpack", "tf_model.h5", "README.md",
            "rust_model.ot", "original/consolidated.00.pth", "onnx/model.onnx", "model.fp16.safetensors",
            "consolidated.safetensors", "modeling_odd.py", "pytorch_model.bin.index.json")  # fmt: skip
    return {**files, **{name: name.encode() * 300 for name in junk}}


def shards():
    """The bundled draft model in two files, as large models are."""
    from json import dumps

    from safetensors.torch import load, save

    files = model_files()
    tensors = load(files.pop("model.safetensors"))
    names = sorted(tensors)
    parts = {
        f"model-0000{number}-of-00002.safetensors": {name: tensors[name] for name in half}
        for number, half in ((1, names[::2]), (2, names[1::2]))
    }
    index = {name: path for path, part in parts.items() for name in part}
    files["model.safetensors.index.json"] = dumps({"metadata": {}, "weight_map": index}).encode()
    return {**files, **{path: save(part) for path, part in parts.items()}}


@pytest.fixture(scope="session")
def _certificates(tmp_path_factory):
    """A file with one certificate: no connection is secure, and to read all of them takes 0.1 s a client."""
    import certifi

    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    end = "-----END CERTIFICATE-----\n"
    path.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    return path


@pytest.fixture(scope="session")
def _server():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def hub(_server, _certificates, tmp_path, monkeypatch):
    """A hub with the model some/one, which this process and its children talk to."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    _server.repos, _server.faults, _server.log = {"some/one": Repo(model_files())}, {}, []
    monkeypatch.setenv("HF_ENDPOINT", _server.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("SSL_CERT_FILE", str(_certificates))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # read from the environment at its import
    monkeypatch.setattr(constants, "ENDPOINT", _server.url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", _server.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("gencli.models.files.hub_download._DELAY", 0.01)
    close_session()
    yield _server
    close_session()

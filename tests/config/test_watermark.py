"""A watermark is the last stage that its phase allows; what leaves it no draw is refused by name."""

import pytest

from gencli.config.job import make_job, notices
from gencli.config.layers import gather, preset_text
from gencli.config.settings import Layer, resolve
from gencli.errors import ConfigError, UsageError

KEY = "60902184713"


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "mark.key"
    path.write_text(KEY)
    return str(path)


def job(**values):
    return make_job(gather({"model": "fake", **values}, {}))


def stages(found):
    return [name for name, _ in found.assembly.chain]


def test_kgw_follows_the_stages_that_adjust_and_the_others_are_last(key):
    values = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 1.0, "watermark_key": key}
    assert stages(job(watermark="kgw", **values)) == ["presence", "kgw", "temperature", "top_p"]
    assert stages(job(watermark="synthid", temperature_last=True, **values))[-2:] == [
        "temperature",
        "synthid",
    ]
    order = ("temperature", "top_p", "penalties")
    assert stages(job(watermark="gumbel", chain=order, **values))[-1] == "gumbel_mark"
    assert stages(job(watermark="kgw", chain=order, **values))[-2:] == ["presence", "kgw"]


def test_what_does_not_go_with_a_watermark_is_refused_without_the_key(key):
    for values, message in [
        ({"watermark": "kgw", "watermark_key": None}, "needs a key"),
        ({}, "there is no watermark"),
        ({"watermark": "synthid", "temperature": 0}, "a temperature of 0 .* none is drawn"),
        ({"watermark": "gumbel", "sampler": "greedy"}, "`sampler` = greedy none is drawn"),
        ({"watermark": "gumbel", "beams": 2}, "`beams` draws none"),
        ({"watermark": "synthid", "contrastive_alpha": 0.6}, "`contrastive_alpha` draws none"),
        ({"watermark": "gumbel", "n": 2}, "the texts would begin alike"),
        ({"watermark": "gumbel", "best_of": 2}, "the texts would begin alike"),
        ({"watermark": "kgw", "chain": ("kgw", "temperature")}, "the place of a watermark is fixed"),
        ({"watermark": "kgw", "stage": [f"kgw:key={KEY}"]}, "the stage kgw is set by `watermark`"),
        ({"stage": [f"gumbel_mark:{KEY}"], "watermark_key": None}, "is set by `watermark`"),
    ]:
        given = {name: value for name, value in {"watermark_key": key, **values}.items() if value is not None}
        with pytest.raises(UsageError, match=message) as error:
            job(**given)
        assert KEY not in f"{error.value.message}{error.value.hint}", values


def test_where_a_mark_acts_and_what_turns_it_off(key):
    for values in ({"temperature": 0.0}, {"beams": 3}, {"sampler": "greedy"}):
        assert "kgw" in [name for name, _ in job(watermark="kgw", watermark_key=key, **values).chain]

    weak = Layer.of("preset", {"watermark": "kgw", "watermark_key": key})
    assert stages(make_job(resolve(weak, ("flag", {"watermark": "none"})))) == []
    assert stages(make_job(resolve(weak))) == ["kgw"]


def test_two_keys_may_draw_several_texts_and_one_key_is_said_to_decide(tmp_path, key):
    dual = tmp_path / "dual.yaml"
    dual.write_text(f"key: {KEY}\nalpha: 0.2\n")
    assert job(watermark="gumbel", watermark_key=str(dual), n=3).n == 3
    said = list(notices(job(watermark="gumbel", watermark_key=key), ("x",)))
    assert any("texts of one prompt begin alike" in text for text in said)
    assert list(notices(job(watermark="gumbel", watermark_key=str(dual)), ("x",))) == []


def test_the_key_of_a_preset_or_a_journal_is_told_from_others_and_not_shown(tmp_path, key):
    (tmp_path / "other.key").write_text(f"{KEY}1")
    ours, other = (
        job(watermark="kgw", watermark_key=path).assembly.chain.to_list()
        for path in (key, str(tmp_path / "other.key"))
    )
    assert ours != other
    assert KEY not in f"{ours}{other}"

    preset = tmp_path / "marked.yaml"
    preset.write_text("watermark: kgw\nwatermark_key: mark.key\n")
    settings = gather({"model": "fake", "preset": [str(preset)]}, {})
    assert settings["watermark_key"] == key, "relative to the preset"
    text = preset_text(settings, make_job(settings), is_complete=True)
    assert KEY not in text
    assert "mark.key" in text
    assert "\n  kgw:" not in text
    for stage in (f"stages:\n  kgw: {{key: {KEY}}}\n", f"chain:\n- gumbel_mark: {KEY}\n"):
        preset.write_text(stage)
        with pytest.raises(ConfigError, match="is set by `watermark`") as error:
            gather({"model": "fake", "preset": [str(preset)]}, {})
        assert KEY not in str(error.value)

"""Faults are few and short; formats are checked by choice."""

from gencli.structured.schema_validator import FORMATS, MAX_FAULTS, Validator


def test_faults_are_few_and_short():
    faults = Validator({"items": {"enum": list(range(10_000))}}).faults(["x" * 1000] * 50)
    assert len(faults) == MAX_FAULTS
    assert all(len(fault) < 200 for fault in faults)


FORMAT_CASES = {
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-29", "2024-02-29T"]),
    "date-time": (
        ["2024-02-29T10:00:00Z", "1990-12-31t15:59:60.123-08:00"],
        ["2024-02-29 10:00:00Z", "2024-02-29"],
    ),
    "duration": (["P1Y2M3DT4H5M6S", "P3W", "PT0S"], ["P", "PT", "P1YT", "P1D2H", "1D"]),
    "email": (
        ["a.b+c@example.org", '"a b"@x', "a@[127.0.0.1]"],
        ["a", "a@", "@b", "a..b@c", "a b@c", "a@-b"],
    ),
    "hostname": (["example.org", "a", "xn--nxasmq6b"], ["-a", "a_b", "a..b", "", "a" * 64]),
    "idn-email": (
        ["é.ü@bücher.de", "a@b.de", '"é b"@x', "é@[127.0.0.1]"],
        ["a", "@b.de", "é@", "é..b@c", "é b@c", "é@-b", "é@b_c", "é@[b]"],
    ),
    "idn-hostname": (
        ["example.org", "bücher.de", "xn--bcher-kva.de", "例え.jp"],
        ["-a", "a_b", "a..b", "", "a.", "xn--a", "〮a", "a" * 64, "ü" * 64],
    ),
    "iri": (
        ["http://é@ü.b/ö?x#é", "urn:é", "http://a?\ue000"],
        ["/é", "é:a", "http://a é", "http://a/\ue000"],
    ),
    "iri-reference": (["/é", "", "#ü", "//é/b"], ["a\\b", "1:2", "a\x80", "\ufffe"]),
    "ipv4": (["127.0.0.1"], ["127.0.0.01", "256.0.0.1", "1.2.3"]),
    "ipv6": (["::1", "::ffff:1.2.3.4"], ["1::2::3", "::1%eth0", "1.2.3.4"]),
    "json-pointer": (["", "/a/~0~1"], ["a", "/~2"]),
    "regex": (["^(a|b)$"], ["(", r"\Z"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["-1", "01", "/a"]),
    "time": (["23:59:60Z", "10:00:00.5+01:00"], ["24:00:00Z", "10:00:60Z", "10:00:00"]),
    "uri": (["https://u@[::1]:80/a?b#c", "urn:a:b"], ["/a", "http://a b", "http://[x]/", "a:/%zz", "//a"]),
    "uri-reference": (["/a", "", "#x", "//a/b"], ["a\\b", "1:2", "/ä"]),
    "uri-template": (
        ["", "/a/{b}", "{+a,b:3}{/c*}{?d.e}", "é%20", "it's"],
        ["{", "}", "{}", "{a", "{a b}", "a b", "%2", "{a:0}", "{-a}", "<", "a\\"],
    ),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380", "x"]),
}


def test_a_format_is_checked_by_choice():
    for name in FORMATS:
        good, bad = FORMAT_CASES[name]
        schema = {"format": name}
        assert [text for text in good if Validator(schema, formats=True).faults(text)] == [], name
        assert [text for text in bad if not Validator(schema, formats=True).faults(text)] == [], name
        assert Validator(schema).faults(bad[0]) == (), name
        assert Validator(schema, formats=True).faults(5) == (), name

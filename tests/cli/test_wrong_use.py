"""What people type wrong, and the sentence that answers it."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest
from tests.cli.running import run
from tests.pipeline import fleet

GROUP = {"partitions": {"orders": 3}, "members": [{"id": "C0", "topics": ["orders"]}]}
MEMBERS = {"members": [{"id": "a", "assignors": ["range"], "client": "golang"}]}
KERBEROS = "sasl.mechanism=GSSAPI\nsasl.kerberos.kinit.cmd=kinit -R\n"
NO_TABLES = "no tables here, and not a dump; expected a folder with _manifest.json"

TYPED = [
    ("doctor --input group.json", 3, "group.json is a file, but not output of kafka-dump-log"),
    ("doctor --input .", 3, NO_TABLES),
    ("doctor --input /nowhere", 3, "no such folder"),
    ("doctor", 2, "give either --input"),
    ("doctor --input . -b x:1", 2, "give either"),
    ("doctor --fail-on critical", 2, "'--fail-on': 'critical' is not one of 'never', 'info'"),
    ("doctor --format xml", 2, "xml"),
    ("doctor --inptu x", 2, "--input"),
    ("report --input x -o /nowhere/r.html", 2, "does not exist"),
    ("tables compact .", 3, NO_TABLES),
    ("history --input .", 3, "not a dump"),
    ("lag --input .", 3, "not a dump"),
    ("plan --assignor sticky --input .", 3, "not a dump"),
    ("history --input empty", 3, "has up to 5"),
    ("history --input . --table movement", 2, "did you mean movements?"),
    ("history", 2, ""),
    ("lag -b x:1 --input .", 2, ""),
    ("plan --assignor stiky --input .", 2, "sticky"),
    ("plan --assignor lag-sticky --input . --option max_move=3", 2, "did you mean max_moves"),
    ("plan --assignor lag-sticky --input . --option max_moves", 2, ""),
    ("upgrade-check", 2, "a file or --to is missing"),
    ("upgrade-check --from range", 2, "a file or --to is missing"),
    ("upgrade-check --from rnage --to range", 2, "unknown assignor 'rnage'; did you mean range"),
    ("upgrade-check nowhere.json", 3, "nowhere.json"),
    ("upgrade-check members.json --to range", 3, "members[0]: client 'golang'; known: "),
    (
        "upgrade-check --from range --to deferred",
        2,
        "--to: 'deferred' is a policy; its members support holdfast-deferred",
    ),
    ("replay --input . --policy kip484", 2, "did you mean kip848?"),
    ("replay --input .", 3, "not a dump"),
    ("replay", 2, ""),
    ("assign group.json --assignor stikcy", 2, "did you mean sticky"),
    ("assign group.json --compare sticky,rnge", 2, "did you mean range"),
    ("assign group.json --compare ' , '", 2, "expected names of assignors"),
    ("assign group.json --option max_skew", 2, "expected NAME=VALUE"),
    ("assign group.json -a lag-sticky --option hystersis=1", 2, "did you mean hysteresis?"),
    ("assign group.json -a lag-sticky --option max_skew=-1", 2, "expected an integer of 0 or more"),
    ("assign group.json --compare lag-sticky --option max_skw=1", 2, "did you mean max_skew?"),
    ("assign group.json --compare range,sticky --option x=1", 2, "they take none"),
    ("assign group.json --format yaml", 2, "yaml"),
    ("assign none.json", 3, "No such file"),
    ("assign group.json --compare sticky --assignor range", 2, "exclude each other"),
    ("assign -", 3, "stdin is empty: a JSON snapshot of a group is expected"),
    ("lag -b localhost:99999", 2, "'localhost:99999': expected a port from 1 to 65535"),
    (
        "lag -b localhost:abc",
        2,
        "'localhost:abc': the port is not a number; expected an address such as localhost:9092",
    ),
    ("demo --format csv", 2, "'csv' is not one of 'table', 'json'"),
    ("lag -b localhost:1 -o lag.csv --format csv", 2, "`> lag.csv` writes csv to a file"),
    ("watch -b localhost:1 -o tables --every 0", 2, "--every: found '0', expected more than 0"),
    ("watch -b localhost:1 -o tables --every soon", 2, "--every"),
    ("watch -b localhost:1 -o tables --every 30", 2, "expected a number and its unit: 30s, 5m"),
    ("watch -b localhost:1 -o tables --max-records 0", 2, "found 0, expected 1 or more"),
    ("simulate --members 0", 2, "'--members': found 0, expected 1 or more"),
    ("simulate --partitions 0", 2, "--partitions"),
    ("simulate --seed -1", 2, "--seed"),
    ("simulate --policy eagre", 2, "did you mean eager"),
    ("simulate --cost rebild=1s", 2, "did you mean rebuild?"),
    ("simulate --scenario rolling-bonce", 2, "rolling-bounce"),
    ("demo --members 1", 2, "members: 2 to 12"),
    ("demo --members 13", 2, "members: 2 to 12"),
    ("demo --rate 0", 2, "rate: expected above 0"),
    ("demo --seconds -1", 2, "seconds: expected 0 to 600"),
    ("config show --command nothing", 2, ""),
    ("simulate --delay 30", 2, "--delay: found '30', expected a number and its unit"),
    ("decode subscription zz", 2, "expected pairs of hex digits"),
    (
        "doctor -b localhost:1 --command-config kerberos.properties",
        2,
        "sasl.kerberos.kinit.cmd: no kinit is run",
    ),
    ("explain storm", 2, "did you mean HF101 "),
    ("explain HF1O4", 2, "did you mean HF124 or HF114 or HF104"),
    ("lag --nope", 2, "No such option '--nope'"),
    ("serve --port 9", 2, "No such option '--port'. Did you mean '--listen'?"),
    ("broker --listen 9", 2, "Did you mean '--port'?"),
    ("lag --brokers x:1", 2, "Did you mean '--bootstrap-server'?"),
    ("broker --broker 3", 2, "Did you mean '--brokers'?"),
    ("lag --consumer-group etl", 2, "Did you mean '--group'?"),
    ("lag -g etl", 2, "Did you mean '--group'?"),
    ("doctor --json", 2, "Did you mean '--format'?"),
    ("serve --prot 9", 2, "No such option '--prot'."),
    ("doctor localhost:9092", 2, "(localhost:9092): did you mean -b localhost:9092?"),
    ("lag a:1,b:2 --total", 2, "did you mean -b a:1,b:2?"),
    ("doctor localhost", 2, "did you mean -b localhost or --input localhost?"),
    ("history empty -o x", 2, "did you mean --input empty?"),
    ("broker 9092", 2, "did you mean --port 9092?"),
    ("upgrade-check members.json more", 2, "Got unexpected extra argument (more)"),
    ("plan -b localhost:1", 2, "Missing option '--assignor'. Usual is cooperative-sticky; "),
    ("doctor -q --input full --group nosuch", 3, "no group 'nosuch' here; known: etl, web"),
    ("lag -q --input full --group nosuch", 3, "no group 'nosuch' here; known: etl, web"),
    ("lag -q --input full --group 'q*'", 3, "no group 'q*' here; known: etl, web"),
    ("history -q --input full --group wep", 3, "no group 'wep' here; did you mean web?"),
    ("doctor --input tables --input tables", 2, "--input is given 2 times; only one value"),
    ("lag -b x:1 --bootstrap-server=y:1", 2, "--bootstrap-server is given 2 times"),
    ("explain --format json --format=csv", 2, "--format is given 2 times"),
    ("tables compact tables --keep 1d --keep 2d", 2, "--keep is given 2 times"),
    ("config show --command lag --command doctor", 2, "--command is given 2 times"),
    ("history --input full --since 2h -o made", 2, "--since and --until limit what is printed"),
    ("history --input full --since 2h --table lag", 2, "lag holds one moment only"),
    ("doctor --input full --since 5", 2, "--since: '5' has no unit"),
    ("lag -b localhost:1 --timeout 0s", 2, "--timeout: found '0s', expected a duration above 0"),
    ("plan --assignor sticky -b localhost:1 --timeout soon", 2, "--timeout: found 'soon'"),
    ("lag --input full --over 1m", 2, "--over queries a cluster twice"),
    ("lgo", 2, "Did you mean 'lag'?"),
    ("doctr", 2, "Did you mean 'doctor'"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("typed")
    (made / "group.json").write_text(json.dumps(GROUP))
    (made / "members.json").write_text(json.dumps(MEMBERS))
    (made / "kerberos.properties").write_text(KERBEROS)
    fleet.write_dump(made / "empty", [], offsets=[("__consumer_offsets", 0, 0, 5)])
    commits = [(g, 1, fleet.commit(g, "t", 0, 1, at=1)) for g in ("etl", "web")]
    fleet.write_dump(made / "full", commits)
    return made


@pytest.mark.parametrize(("typed", "code", "words"), TYPED)
def test_wrong_use_is_answered_in_one_line(
    typed: str, code: int, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = run(*shlex.split(typed), width=300)
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err.startswith("error: ") and done.err.count("\n") == 1
    assert words in done.err


def test_help_of_a_command_and_the_version_as_other_tools_have_them() -> None:
    assert run("help", "lag").out == run("lag", "--help").out
    assert run("-V").out == run("--version").out


def test_a_cluster_without_a_port_has_kafkas() -> None:
    from holdfast.cli.options import servers_of

    assert servers_of("a, b:1,[::1]:2,[::1]") == "a:9092,b:1,[::1]:2,[::1]:9092"

"""`vramfit.dryrun_report` gives what `vramfit report` shows, as Python values."""

import json
from pathlib import Path

import pytest
from commands import run_vramfit

import vramfit
from vramfit.errors import InvalidFileError, IoError

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"
TOO_SMALL = TRACES / "train_gpt-t4.trace"


def report_command(*arguments):
    done = run_vramfit("report", "--full", TOO_SMALL, *arguments, code=1)
    return done.stdout


@pytest.mark.fast
def test_python_and_command_line_agree():
    report = vramfit.dryrun_report(TOO_SMALL)
    assert report.to_dict() == json.loads(report_command("--json", "-"))
    assert str(report) == report_command().rstrip("\n")
    assert str(report).startswith(report.headline.split(" in ")[0])
    assert not report.fits
    assert report.peak_bytes == report.to_dict()["peak_bytes"]


@pytest.mark.fast
def test_entries_add_up_to_what_was_in_use_and_requested():
    report = vramfit.dryrun_report(TOO_SMALL)
    refused = report.to_dict()["oom"]
    whole = refused["in_use_bytes"] + refused["requested_bytes"]
    assert sum(entry.bytes for entry in report.attribution) == whole
    assert report.attribution == sorted(report.attribution, key=lambda entry: -entry.bytes)
    owners = {entry.owner for entry in report.attribution}
    assert {"parameters", "optimizer_state", "activations", "gradients"} <= owners
    largest = report.attribution[0]
    assert "train_gpt.py:" in largest.site
    assert largest.shape


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    report = vramfit.dryrun_report(TOO_SMALL)
    shown = report._repr_html_()
    assert shown.startswith("<iframe ")
    assert shown.endswith("</iframe>")
    # Nothing of the page can end the attribute it stands in.
    assert shown.count('"') == 6
    assert "<!doctype html>" in report.to_html().lower()


def test_a_table_of_the_entries():
    pandas = pytest.importorskip("pandas", reason="a user may have none; `make setup` installs it")
    report = vramfit.dryrun_report(TOO_SMALL)
    table = report.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table["bytes"].sum() == sum(entry.bytes for entry in report.attribution)


def test_what_is_no_trace_is_refused(tmp_path):
    with pytest.raises(IoError):
        vramfit.dryrun_report(tmp_path / "nothing.trace")
    file = tmp_path / "other.trace"
    file.write_text("something else")
    with pytest.raises(InvalidFileError):
        vramfit.dryrun_report(file)

"""Bars that count arrived objects."""

from __future__ import annotations

import re
import sys
import threading

import pytest

from phalanx import exceptions


@pytest.fixture(autouse=True)
def _tqdm():
    pytest.importorskip("tqdm")


def drawn(capfd) -> list[str]:
    """Return the counts that the bars have shown, as "2/5"."""
    err = capfd.readouterr().err
    assert "phalanx:" in err
    return re.findall(r"\d+/\d+", err)


def test_get(client, capfd):
    refs = [client.ref() for _ in range(5)]
    putting = threading.Thread(target=lambda: [client.put(i, ref) for i, ref in enumerate(refs)])
    putting.start()
    assert client.get(refs, timeout=60, progress=True) == list(range(5))
    putting.join()
    counts = drawn(capfd)
    assert counts[0] == "0/5" and counts[-1] == "5/5"


def test_get_that_fails(client, capfd):
    here, failed, absent = client.put(1), client.ref(), client.ref()
    failed.set_exception(LookupError("no data"))
    with pytest.raises(LookupError, match="no data"):
        client.get([here, failed, absent], timeout=60, progress=True)
    with pytest.raises(exceptions.GetTimeoutError):
        client.get([here, absent], timeout=0.2, progress=True)
    assert drawn(capfd)[-1] == "1/2"


def test_wait(client, capfd):
    refs = [client.put(1), client.ref(), client.put(2)]
    assert client.wait(refs, 2, timeout=60, progress=True) == ([refs[0], refs[2]], [refs[1]])
    assert drawn(capfd)[-1] == "2/2"
    assert client.wait(refs, 3, timeout=0.2, progress=True)[1] == [refs[1]]
    assert drawn(capfd)[-1] == "2/3"
    threading.Timer(0.1, client.put, [3, refs[1]]).start()
    assert client.wait(refs, 3, timeout=60, progress=True) == (refs, [])
    assert drawn(capfd)[-1] == "3/3"


def test_as_completed(client, capfd):
    refs = [client.put(i) for i in range(4)]
    assert sorted(client.as_completed(refs, timeout=60, progress=True)) == sorted(refs)
    assert drawn(capfd)[-1] == "4/4"


def test_a_missing_tqdm_is_an_error(client, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tqdm"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    ref = client.put(1)
    calls = (
        lambda: client.get([ref], progress=True),
        lambda: client.wait([ref], progress=True),
        lambda: client.as_completed([ref], progress=True),
    )
    for call in calls:
        with pytest.raises(ImportError, match="pip install"):
            call()
    assert client.get(ref) == 1

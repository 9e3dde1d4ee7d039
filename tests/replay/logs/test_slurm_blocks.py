"""A table is read in blocks: where one ends changes nothing, whatever stands at its begin and end."""

from __future__ import annotations

from datetime import datetime
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic_logs_more import damages, read_texts, taken

from bft.models import InputError
from bft.replay.logs import lines

HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State|Cluster|Partition|AllocTRES|Timelimit|Eligible"
ROW = "{}|a|n0{}|1|1612900{}0|1612901{}0|COMPLETED|a|gpu|gres/gpu=2,cpu=8|01:00:00|1612899000"
# What columns hold is learned from these rows, which the first block has in any case.
HEAD = "\n".join([HEADER, *(ROW.format(k, k, k, k) for k in range(10, 16))]) + "\n"
USUAL = st.sampled_from(["1612900000", "1612950000", "2021-02-10T20:21:15"])
TIMES = USUAL | st.datetimes(datetime(2021, 2, 1), datetime(2021, 2, 3)).map(
    lambda stamp: f"{stamp:%Y-%m-%dT%H:%M:%S}"
) | st.sampled_from(
    ["", "Unknown", "0", "soon", "2021-02-10 20:21:15", "1612990000.5", "2021-10-31T02:30:00", "2021-03-28T02:30:00",
     "2021-02-29T00:00:00", "1970-01-01T00:00:00", "2262-01-01T00:00:00", "9199999999", "2021-02-10T20:21:15Z"]
)  # fmt: skip
CELLS = st.tuples(
    st.integers(0, 20).map(str) | st.sampled_from(["7.batch", "5_[1-9]", "6_1", "8+1", "", "x", "JobID"]),
    st.sampled_from(["a", "a", "a", "séquence", "a|b", "a\nb", ""]),
    st.sampled_from(["n01", "n[01-03]", "m[01-02,05]", "", "None assigned", "n01,n02", "n[03-01]", "n[01-02"]),
    st.sampled_from(["3", "3", "1", "01", "", "x", "99999999999999999999"]),
    TIMES,
    TIMES,
    st.sampled_from(["COMPLETED", "RUNNING", "CANCELLED by 7"]),
    st.sampled_from(["a", "a", "a", "B", "A", ""]),
    st.sampled_from(["gpu", "gpu", "GPU", "cpu", "cpu,gpu", ""]),
    st.sampled_from(["gres/gpu=2,cpu=8", "cpu=8", "gres/gpu=99", "", "gres/gpu:a=1"]),
    st.sampled_from(["01:00:00", "1-00:00:00", "UNLIMITED", "soon", ""]),
    st.sampled_from(["1612899000", "2021-02-10T20:21:15", "Unknown", "2021-10-31T02:30:00"]),
).map("|".join)  # fmt: skip
ODD = st.sampled_from(["", "# c", "   ", "a|b", HEADER, f"\ufeff{HEADER}"])
ROWS = st.lists(CELLS | CELLS | CELLS | ODD, min_size=1, max_size=20).map("\n".join)
TWO_LINES = ROW.format(1, 1, 1, 1).replace("|a|", "|a\nb|", 1)


def outcome(text: str, size: int, **asked: Any) -> list[Any]:
    """All that a user can see of a log, whose blocks after the first have so many bytes; or why it was refused."""

    def unpacking(stored: Any, *_: Any) -> Any:
        sizes = chain([len(HEAD.encode())], repeat(size))
        return lambda _: stored.read(next(sizes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "unpacking", unpacking)
        try:
            made = read_texts("slurm", text, **asked)
        except InputError as error:
            return [str(error)]
    account = made.account.as_dict()
    found = {each["reason"]: each for name in ("skipped", "left_out", "notes") for each in account[name]}  # fmt: skip
    jobs = made.trace.host_jobs
    columns = ("known", "start", "end", "expected_end", "count", "nodes", "offsets")
    known = [] if jobs is None else [getattr(jobs, name).tolist() for name in columns]
    counted = (account["lines"], account["rows"], found)
    return [taken(made.trace), made.coverage, made.trace.uncertain, counted, known]


ASKED = st.sampled_from(
    [{"tz": "Europe/Berlin"}, {"tz": None, "strict": True}, {"cluster": "a"}, {"partition": "gpu"},
     {"cluster": "b", "partition": "cpu"}, {"unit": "gpu", "units_per_node": 4}, {"unit": "cpu:4", "cluster": "a"}]
)  # fmt: skip


@given(
    rows=ROWS | ROWS.flatmap(damages), size=st.sampled_from([1, 60, 400]), asked=ASKED
)
@example(
    rows=f"{ROW.format(1, 1, 1, 1)}\n{HEADER}\n{HEADER}\n",
    size=60,
    asked={"cluster": "a"},
)
@example(rows=f"{TWO_LINES}\n{ROW.format(2, 1, 3, 3)}\n{TWO_LINES}\n", size=1, asked={})
@example(
    rows=f"{ROW.format(2, 1, 3, 3)}\n{TWO_LINES.partition('b|')[0]}", size=1, asked={}
)
def test_where_a_block_ends_changes_nothing(
    asked: dict[str, Any], rows: str, size: int
) -> None:
    assert outcome(HEAD + rows, size, **asked) == outcome(HEAD + rows, 1 << 20, **asked)

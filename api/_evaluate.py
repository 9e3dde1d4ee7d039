"""A machine evaluated from Python: from a scheduler's logs to the page that a director reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from bft._replay import Stages, arguments_named, several
from bft.models.checks import refuse_unknown
from bft.replay.logs.ingest import IngestOptions
from bft.replay.options.worth import PRICES, WORLD
from bft.replay.report.evaluation import needed, write_evaluation
from bft.replay.studies.evaluation import Evaluation as Evaluation
from bft.replay.studies.evaluation import evaluate as evaluated
from bft.replay.studies.evaluation import folder_of

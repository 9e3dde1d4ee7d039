"""Options of an evaluation beside those of its logs: what runs on which nodes, and what things are worth."""

from __future__ import annotations

from collections.abc import Mapping

from bft.models.checks import Number
from bft.models.errors import FLAGS
from bft.models.option_fields import OUTPUT, OptionField
from bft.replay.options.options import FIELDS

# What the user may say of jobs and nodes.
_WORLD = ("jobs", "jobs_format", "align_jobs", "trust_pickle", "node_class")
WORLD: Mapping[str, OptionField] = {name: FIELDS[name] for name in _WORLD}
# What things are worth, which no replay needs to know.
_PRICES = ("price_per_node_hour", "host_price", "node_watts", "co2_per_kwh")
PRICES: Mapping[str, OptionField] = {
    **{name: FIELDS[name] for name in _PRICES},
    "price_per_kwh": OptionField(
        name="price_per_kwh",
        flags=("--price-per-kwh",),
        check=Number(0, 1e9),
        metavar="PRICE",
        help="Reports what the energy costs (needs --node-watts).",
        section=OUTPUT,
        shown="not reported",
    ),
}
FLAGS.update({name: field.flag for name, field in PRICES.items()})

"""How many examples property tests draw, and which: a profile of Hypothesis for each purpose."""

from hypothesis import HealthCheck, settings

# Examples of a test that states no number: Hypothesis' own default.
USUAL = 100
# Each property test draws at least so many, or all that it states.
FEWEST = 5

# No test asserts wall time, so no example has a deadline: machines are noisy, and the first one may compile a kernel.
# A first run must be no lottery: the same examples are drawn on every machine, on every day.
settings.register_profile(
    "all",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    max_examples=USUAL,
)
settings.register_profile(
    "quarter", settings.get_profile("all"), max_examples=USUAL // 4
)
settings.register_profile(
    "explore", settings.get_profile("all"), derandomize=False, print_blob=True
)


def examples(number: int, *, quick: int | None = None, **stated) -> settings:
    """Let a property test draw this number of examples, or the part of it that the profile in force draws.

    `quick`: how many it draws where a profile draws a part, of one that is run for each of many formats.
    """
    part = settings().max_examples / USUAL
    drawn = max(int(number * part), min(number, FEWEST))
    if quick is not None and part < 1:
        drawn = quick
    return settings(max_examples=drawn, **stated)

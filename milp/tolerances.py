"""Every tolerance of decisions and solvers, each with its reason; tests/test_tolerances.py states how they relate.

All are relative to the quantity that a comment names. `bft.models.tolerances` has those of jobs and replays.
"""

# Two ways to compute the objective of one answer agree within this, relative to the objective.
TOLERANCE = 1e-6
# Zero to a solver: a part of the largest coefficient of the objective.
SOLVER_ZERO = 1e-9
# An answer this close to its bound is proven optimal. python-mip and SciPy stop at a relative gap of 1e-4 by default.
PROVEN_GAP = 1e-9
# Distance from a whole number that Gurobi allows an integer variable: the least that it can be told; 1e-5 by default.
INTEGRALITY = 1e-9
# A number of items in a relaxation this close to a whole one is that number.
WHOLE_ITEMS = 1e-6
# A loss of a column that is less than this part of the largest gain is rounding.
NO_LOSS = 1e-10
# Slopes of a curve that differ by less than this, relative to the larger one, are equal: the difference is rounding.
EQUAL_SLOPES = 1e-12
# Slopes of a dense table are differences of its values: they are equal up to this part of the largest value.
EQUAL_DENSE_SLOPES = 1e-13
# Sums of values in the pruning of counts may differ by this part of the values through rounding.
PRUNING_SUMS = 1e-10
# Two sums of floats this close, relative to the largest value, may be equal: nothing is excluded by less.
EQUAL_SUMS = 2.0**-40
# What draws one of several optima, for each job: less than any rounding of values, more than what solvers resolve.
DRAWN_TIES = 1e-6
# Quanta of the exact programme in its largest sum, as a power of two, and the quanta that a changed job is charged.
SCORE_BITS = 60
CHARGE_QUANTA = 2**14

from halog.core import held, positions
held.MAX_BYTES = positions.MAX_BYTES = 600
from tests.sim import hard
hard.main()

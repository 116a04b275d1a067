"""Costs that are counted: what one more request, a start, an idle minute and a partition take (`make counts`)."""

"""Made-up examples without a time limit for each: a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("protocol", deadline=None, max_examples=50)
settings.load_profile("protocol")

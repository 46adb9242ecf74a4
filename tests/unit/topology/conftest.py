from hypothesis import settings

# Machines that test share their cores; a slow example says nothing about the code.
settings.register_profile("topology", deadline=None)
settings.load_profile("topology")

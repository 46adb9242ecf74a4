"""What should exist on the broker: names, layout, delays, YAML, plan, pictures. Pure."""

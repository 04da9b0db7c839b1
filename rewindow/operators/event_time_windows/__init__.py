"""Windows over event time: settings, triggers, sessions and tuple accounting."""

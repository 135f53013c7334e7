"""May I upgrade? The stack that one has against the stack that one wants, both really run."""

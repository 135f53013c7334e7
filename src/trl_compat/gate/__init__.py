"""Is an upgrade safe?  The current stack against the wanted stack, both actually run."""

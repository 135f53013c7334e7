"""The last good and the first bad release of a failure along one package, found by running."""

"""What is made of the records for others: shipped files, OSV, and the lint before that."""

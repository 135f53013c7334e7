"""What can be run: stacks of matrix.yaml, what somebody has, and environments made of these."""

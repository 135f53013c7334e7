"""What somebody uses: trainers, strategies, options, configurations; and what they ignore."""

"""How do I get there? The shortest sequence of bumps, each of them safe."""

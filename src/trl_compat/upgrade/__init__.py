"""Upgrade paths: the shortest sequence of steps, each of them safe."""

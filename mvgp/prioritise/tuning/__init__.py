"""Tuning: the models of the application, their settings, and the choice of a setting by validation."""

"""Run-time models, and rules that say how long an iteration waits for gradients."""

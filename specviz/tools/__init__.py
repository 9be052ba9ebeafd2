"""Jobs around the engine: benchmark, fit, audit, sweep report, load test, distillation, recording."""

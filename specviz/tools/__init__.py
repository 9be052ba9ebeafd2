"""Jobs around the engine: benchmark, sweep report, load test, distillation, recording."""

"""What a run reports and writes: progress, summaries, `metrics.jsonl`, directory."""

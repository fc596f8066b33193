"""What a run reports and writes: progress, summaries, `metrics.jsonl`, TensorBoard, directory."""

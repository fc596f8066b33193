"""Where the batches of a run come from, and how a run resumes in the middle of an epoch."""

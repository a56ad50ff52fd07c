"""The specification: naive models that are obviously right, and the shadow KV memory."""

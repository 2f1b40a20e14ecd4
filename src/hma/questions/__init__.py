"""What can be asked of any model with a memory."""
